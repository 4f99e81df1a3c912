"""The threads of a worker on a CPU, and how they wait."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from longctx.plugins.runner import start_worker
from longctx.plugins.runner.start_worker import _cpu_quota, _cpu_threads

LARGE, SMALL = False, True


@pytest.mark.parametrize(
    ("is_small", "workers", "limit", "threads"),
    [
        (LARGE, 1, None, 8),
        (LARGE, 4, None, 2),
        (LARGE, 16, None, 1),
        (SMALL, 1, None, 1),
        (LARGE, 1, "1", 1),
        (LARGE, 1, "4,2", 4),
        (LARGE, 4, "4", 2),
        (SMALL, 1, "4", 1),
        (LARGE, 2, "0", 4),
        (LARGE, 2, "many", 4),
        (LARGE, 2, "", 4),
    ],
)
def test_a_worker_has_its_share_of_the_cores_and_at_most_what_the_user_sets(
    is_small: bool, workers: int, limit: str | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(start_worker, "_cpu_quota", lambda: None)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if limit is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", limit)
    assert _cpu_threads(is_small, workers) == threads


@pytest.mark.parametrize(("given", "in_force"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_wait_asleep_unless_the_user_sets_otherwise(given: str | None, in_force: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    if given:
        environment["OMP_WAIT_POLICY"] = given
    code = (
        "import os\n"
        "from longctx.fixtures.heavy_imports import exempt_from_garbage_collection\n"
        "with exempt_from_garbage_collection(): pass\n"
        "print(os.environ['OMP_WAIT_POLICY'])"
    )
    printed = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert printed.stdout.strip() == in_force


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, None),
        ({"a/cpu.max": "max 100000\n", "cpu.max": "max 100000\n"}, None),
        ({"a/cpu.max": "max 100000\n", "cpu.max": "250000 100000\n"}, 2.5),
        ({"a/b/cpu.max": "150000 100000\n", "a/cpu.max": "400000 100000\n"}, 1.5),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.max": "unreadable"}, None),
    ],
)
def test_the_limit_of_a_container_counts_as_fewer_cores(
    files: dict[str, str], cores: float | None, tmp_path: Path
) -> None:
    (tmp_path / "membership").write_text("1:cpu:/\n0::/a/b\n")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert _cpu_quota(tmp_path, tmp_path / "membership") == cores
