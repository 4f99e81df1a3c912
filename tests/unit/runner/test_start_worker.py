"""The threads of a worker on a CPU, and how they wait."""

import os
import subprocess
import sys

import pytest
import torch

from longctx.plugins.runner.start_worker import _cpu_threads

LARGE, SMALL = False, True


@pytest.mark.parametrize(
    ("is_small", "workers", "limit", "threads"),
    [(LARGE, 1, 8, 8), (LARGE, 4, 8, 2), (LARGE, 16, 8, 1), (SMALL, 1, 8, 1), (LARGE, 1, 4, 4), (LARGE, 4, 4, 2)],
)
def test_a_worker_has_its_share_of_the_cores_and_at_most_what_torch_takes(
    is_small: bool, workers: int, limit: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    # torch reads OMP_NUM_THREADS.
    monkeypatch.setattr(torch, "get_num_threads", lambda: limit)
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
