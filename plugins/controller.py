"""Collect the selected cases and the reports of their tests in the controller of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from longctx.fixtures.records import PropertyFinding
from longctx.plugins.options import cases_of
from longctx.plugins.runner.results import CaseReport, Controller
from longctx.plugins.stash import CONTROLLER, HELP, INVARIANCE, RUN, SELECTED_GATES


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Begin when all plugins have read their options: a selection of gates changes the run."""
    stash = session.config.stash
    if RUN in stash and not hasattr(session.config, "workerinput"):
        stash[CONTROLLER] = Controller(stash[RUN], gates=stash.get(SELECTED_GATES, None))
        session.config.pluginmanager.register(_Collector(session.config), "longctx-controller")


class _Collector:
    """Adds to the controller what pytest and its workers report."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.controller = config.stash[CONTROLLER]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self._select([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self._select(ids)

    def _select(self, node_ids: Sequence[str]) -> None:
        self.controller.selected = cases_of(self.controller.run, node_ids)

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
        self.controller.helped_samples += samples
        self.controller.helped_seconds.append(seconds)
