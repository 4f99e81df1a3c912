"""The workers of pytest-xdist: a number for each, which decides its GPU, and the retry of a case whose worker died."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from longctx.plugins.stash import RUN

# A sample is blamed after three deaths; the fourth attempt reports the error.
MOST_CRASHES = 4


_SLOTS = pytest.StashKey[dict[str, int]]()
"""The slot numbers of running workers."""

_CRASHES = pytest.StashKey[Counter[str]]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a worker the lowest free slot; a replacement gets the slot of the worker that died."""
    slots = node.config.stash.setdefault(_SLOTS, {})
    used = set(slots.values())
    slots[node.gateway.id] = next(number for number in range(len(used) + 1) if number not in used)
    node.workerinput["longctx_slot"] = slots[node.gateway.id]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Free the slot of a worker that has ended, if it had one."""
    node.config.stash.setdefault(_SLOTS, {}).pop(node.gateway.id, None)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: Any, sched: Any) -> None:
    """Give the case to another worker; the results of the dead one are in the journal."""
    config = getattr(sched, "config", None)
    if config is None or RUN not in config.stash:
        return
    crashes = config.stash.setdefault(_CRASHES, Counter())
    crashes[crashitem] += 1
    # Some schedulers of xdist cannot hand out a test again.
    with suppress(NotImplementedError, AttributeError):
        if crashes[crashitem] < MOST_CRASHES:
            sched.mark_test_pending(crashitem)
            report.outcome = "retried"


def pytest_report_teststatus(report: Any) -> tuple[str, str, str] | None:
    """Show a retried case as neither passed nor failed."""
    return ("retried", "R", "RETRIED") if report.outcome == "retried" else None
