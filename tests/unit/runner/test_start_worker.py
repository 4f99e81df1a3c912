"""The threads of a worker on a CPU."""

from __future__ import annotations

import os

import pytest

from longctx.plugins.runner.start_worker import _cpu_threads

LARGE, SMALL = 135_000_000, 1_000_000


@pytest.mark.parametrize(
    ("parameters", "workers", "limit", "threads"),
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
    parameters: int, workers: int, limit: str | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if limit is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", limit)
    assert _cpu_threads(parameters, workers) == threads
