"""The controller of a run: collect the reports of tests, number the workers, and retry a case whose worker died."""

import json
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from longctx.fixtures import interrupts
from longctx.fixtures.records import PropertyFinding
from longctx.plugins.collection import cases_of
from longctx.plugins.plan import print_costs
from longctx.plugins.runner.results import CaseReport, Controller
from longctx.plugins.stash import CONTROLLER, HELP, INVARIANCE, RUN, SELECTED_GATES

# A sample is blamed after three deaths; the fourth attempt reports the error.
MOST_CRASHES = 4
_SLOTS = pytest.StashKey[dict[str, int]]()
"""The slot numbers of running workers, of which each decides its worker's GPU."""
_CRASHES = pytest.StashKey[Counter[str]]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> Generator[None, None, None]:
    """Begin when all plugins have read their options: a selection of gates changes the run.

    A signal waits until pytest-xdist has started its workers: one that reads half of its program prints a traceback.
    """
    stash = session.config.stash
    if RUN in stash and not hasattr(session.config, "workerinput"):
        stash[CONTROLLER] = Controller(stash[RUN], gates=stash.get(SELECTED_GATES, None))
        session.config.pluginmanager.register(_Collector(session.config), "longctx-controller")
    with interrupts.deferred():
        return (yield)


class _Collector:
    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.controller = config.stash[CONTROLLER]

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self._select([item.nodeid for item in session.items])

    @pytest.hookimpl(trylast=True, optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self._select(ids)

    def _select(self, node_ids: Sequence[str]) -> None:
        """Note the cases that were collected, and print what is known of them before a model is loaded."""
        is_first = not self.controller.selected
        self.controller.selected = cases_of(self.controller.run, node_ids)
        option = self.config.option
        # pytest may run other tests with these plugins.
        if is_first and self.controller.selected and not (option.collectonly or option.preflight):
            print_costs(self.config)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        findings = getattr(report, "longctx_invariance", None)
        if findings is not None:
            self.config.stash[INVARIANCE] = msgspec.convert(json.loads(findings), tuple[PropertyFinding, ...])
        text = getattr(report, "longctx", None)
        if text is not None:
            self.controller.reports[report.nodeid.rpartition("::")[2]] = msgspec.convert(json.loads(text), CaseReport)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add the samples that a worker computed for the cases of others, and its time."""
        samples, seconds = getattr(node, "workeroutput", {}).get(HELP, (0, {}))
        self.controller.helped.append(CaseReport(computed_samples=samples, seconds=seconds))


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
