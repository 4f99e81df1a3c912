"""Collect the case reports on the controller and evaluate the run once, from its journals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from fixtures.engines import EngineError, EngineFacts
from fixtures.invariance import Finding
from fixtures.records import Case
from plugins.config.run import Run
from plugins.gates.evaluation import Evaluation, evaluate
from plugins.journal import JournalError
from plugins.options import RUN, cases_of
from plugins.runner.case_report import CaseReport
from plugins.runner.panel_state import PanelState
from plugins.runner.read_journals import open_panel_state, read_measured
from plugins.select_gates import SELECTED_GATES

HELPED_SAMPLES = "longctx_helped_samples"
"""The key under which a worker returns the number of samples that it computed after its last test."""
CONTROLLER = pytest.StashKey["Controller"]()
EVALUATION = pytest.StashKey[Evaluation]()
INVARIANCE = pytest.StashKey[tuple[Finding, ...]]()
"""The findings of --invariance, once its test has ended."""
INTERRUPTED = pytest.StashKey[bool]()
"""Set once Ctrl-C has ended the tests."""


def pytest_configure(config: pytest.Config) -> None:
    if RUN in config.stash and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Controller(config), "longctx-controller")


class Controller:
    """The selected cases, the reports of their tests, and the state of the run's journals."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.selected: tuple[Case, ...] = ()
        self.reports: dict[str, CaseReport] = {}
        """The reports by case id."""
        self.panel_state: PanelState | None = None
        """The state of the journals; None until progress or the evaluation needs it."""
        self._helped_samples = 0
        self._stored_before = 0
        config.stash[CONTROLLER] = self

    @property
    def run(self) -> Run:
        """Return the run, without the gates that are not selected."""
        return self.config.stash[RUN]

    @property
    def computed_samples(self) -> int:
        """Return the number of samples that this run computed.

        Workers report it as their cases end. Those of an interrupted run end without a report, so there it is what the
        journal has gained.
        """
        reported = self._helped_samples + sum(report.computed_samples for report in self.reports.values())
        if INTERRUPTED not in self.config.stash:
            return reported
        return max(reported, self.stored_samples()[0] - self._stored_before)

    @property
    def facts(self) -> EngineFacts | None:
        """Return the facts of the model's engine; None if no case was measured."""
        return next((report.facts for report in self.reports.values() if report.facts), None)

    @property
    def execution(self) -> dict[str, str] | None:
        """Return the execution settings of the model; None if no case was measured."""
        executions = next((report.executions for report in self.reports.values() if report.executions), None)
        return None if executions is None else dict(executions["model"])

    def open_journals(self) -> PanelState:
        """Open the journals on which progress is shown; raise EngineError."""
        self.panel_state = open_panel_state(self.run, self.selected)
        self._stored_before = self.stored_samples()[0]
        return self.panel_state

    def stored_samples(self) -> tuple[int, int]:
        """Return how many of the planned samples the journal has, and their number; 0 and 0 if it was not opened."""
        state = self.panel_state
        if state is None:
            return 0, 0
        panels = state.panels.values()
        return sum(len(state.scores(panel)) for panel in panels), sum(len(panel.order) for panel in panels)

    def evaluate(self) -> Evaluation:
        """Evaluate the run from its journals. Nothing else may read `panel_state` at the same time."""
        interrupted = INTERRUPTED in self.config.stash
        if interrupted and self.panel_state is None:
            # Without any report, the journals show the results so far.
            with suppress(EngineError, JournalError):
                self.open_journals()
        measured = read_measured(self.run, self.selected, self.reports, self.panel_state, interrupted=interrupted)
        evaluation = evaluate(self.run.thresholds, measured)
        selected = self.config.stash.get(SELECTED_GATES, None)
        if selected is None:
            return evaluation
        return replace(evaluation, verdicts=tuple(v for v in evaluation.verdicts if v.name in selected))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self.selected = cases_of(self.run, [item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self.selected = cases_of(self.run, ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        findings = getattr(report, "longctx_invariance", None)
        if findings is not None:
            self.config.stash[INVARIANCE] = msgspec.convert(json.loads(findings), tuple[Finding, ...])
        text = getattr(report, "longctx", None)
        if text is not None:
            self.reports[report.nodeid.rpartition("::")[2]] = msgspec.convert(json.loads(text), CaseReport)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add the samples that a worker computed for the cases of others."""
        self._helped_samples += int(getattr(node, "workeroutput", {}).get(HELPED_SAMPLES, 0))
