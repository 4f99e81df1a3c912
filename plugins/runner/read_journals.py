"""The journals of a run as the controller reads them: opened once, for progress and for the evaluation."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fixtures.engines import EngineError, execution_settings
from fixtures.records import Case, CaseResult, Likelihood
from plugins.config.baseline import finished_journal
from plugins.config.run import Run
from plugins.gates.clusters import SampleRef
from plugins.gates.evaluate import Measured
from plugins.gates.panels import ModelRole, Panel
from plugins.journal import POLL_SECONDS, VISIBLE_SECONDS, Journal, JournalError, Subject
from plugins.runner.case_report import CaseReport
from plugins.runner.panel_state import PanelState

Executions = Mapping[str, Mapping[str, str]]


def subject_of(run: Run, role: ModelRole = "model", execution: Mapping[str, str] | None = None) -> Subject:
    """Return the name under which the journal keeps the results of the model or of a baseline checkpoint.

    Without `execution` it is worked out for this machine; raises EngineError.
    """
    checkpoint, name = run.checkpoint, run.options.model
    if role == "baseline":
        assert run.baseline is not None
        assert run.baseline.checkpoint is not None
        checkpoint, name = run.baseline.checkpoint, run.baseline.name
    if execution is None:
        execution = execution_settings(checkpoint, **run.engine_settings(role))
    return Subject(model=name, fingerprint=checkpoint.fingerprint, execution=execution)


def open_panel_state(run: Run, selected: Sequence[Case], executions: Executions | None = None) -> PanelState:
    """Open the run's journals for reading; raise EngineError.

    `executions` are those of the workers, which may be on other machines; without them, those of this machine.
    """
    directory, known = Path(run.options.journal), executions or {}
    journals: dict[ModelRole, Journal] = {
        "model": Journal(directory, subject_of(run, "model", known.get("model")), run=run.id)
    }
    baseline = run.baseline
    if baseline is None:
        return PanelState(run, selected, journals)
    if baseline.checkpoint is None:
        other = finished_journal(baseline)
    else:
        other = Journal(directory, subject_of(run, "baseline", known.get("baseline")), run=run.id)
    # A model that is its own baseline has one journal, which is read once.
    same = other.folder == journals["model"].folder
    journals["baseline"] = journals["model"] if same else other
    return PanelState(run, selected, journals, baseline_is_final=baseline.checkpoint is None)


def read_measured(
    run: Run,
    selected: Sequence[Case],
    reports: Mapping[str, CaseReport],
    panel_state: PanelState | None = None,
    *,
    interrupted: bool = False,
) -> Measured:
    """Read the results of all cases that were reported.

    `panel_state` is the state that progress was read from; another one is opened if it is None or reads other
    journals than the workers wrote. A case without a report has no result, or its results so far if the run was
    interrupted.
    """
    unfinished = frozenset(case.id for case in selected if case.id not in reports) if interrupted else frozenset()
    reports = {**reports, **dict.fromkeys(unfinished, CaseReport())}
    results = {
        case.id: _failed(case, error)
        for case in selected
        if case.id in reports and (error := reports[case.id].error) is not None
    }
    control_variate: dict[SampleRef, float] | None = None
    likelihoods: dict[ModelRole, dict[SampleRef, Likelihood]] = {"model": {}, "baseline": {}}
    executions = next((report.executions for report in reports.values() if report.executions), None)
    if executions is None and unfinished and panel_state is not None:
        executions = panel_state.executions
    if executions is not None:
        try:
            if panel_state is None or panel_state.executions != executions:
                panel_state = open_panel_state(run, selected, executions)
            _refresh_until_visible(panel_state, reports)
            results |= {result.case.id: result for result in _results(panel_state, reports)}
            control_variate = _control_variate(panel_state)
            likelihoods |= {role: _likelihoods(panel_state, role) for role in panel_state.journals}
        except (EngineError, JournalError) as error:
            unread = [case for case in selected if case.id in reports and case.id not in results]
            results |= {case.id: _failed(case, str(error)) for case in unread if case.id not in unfinished}
    results |= {case.id: _empty(case) for case in selected if case.id in unfinished and case.id not in results}
    return Measured(
        scope=run.scope(selected),
        results=results,
        control_variate=control_variate,
        likelihoods=likelihoods["model"],
        baseline_likelihoods=likelihoods["baseline"],
        unfinished=unfinished,
    )


def _refresh_until_visible(panel_state: PanelState, reports: Mapping[str, CaseReport]) -> None:
    """Read the journals until they show all results that the workers read, which may take a while on other machines."""
    deadline = time.monotonic() + VISIBLE_SECONDS
    panel_state.refresh(thorough=True)
    while _are_missing(panel_state, reports) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        panel_state.refresh(thorough=True)


def _are_missing(panel_state: PanelState, reports: Mapping[str, CaseReport]) -> bool:
    return any(
        _missing(panel_state, panel, case, reports[name].samples, reports[name].likelihoods)
        for panel in panel_state.panels.values()
        for name, case in panel.cases.items()
        if name in reports and reports[name].error is None
    )


def _results(panel_state: PanelState, reports: Mapping[str, CaseReport]) -> Iterator[CaseResult]:
    """Yield the results of all cases whose tests did not fail."""
    for panel in panel_state.panels.values():
        # A case that failed after its test had passed is no error: nothing that the test rests on is missing.
        passed = {case for case in panel.cases if case in reports and reports[case].error is None}
        status = panel_state.status(panel, failed=panel_state.failures(panel).keys() - passed)
        for case in (panel.cases[case] for case in panel.cases if case in passed):
            report = reports[case.id]
            missing = _missing(panel_state, panel, case, report.samples, report.likelihoods)
            if missing:
                yield _failed(case, missing)
            elif panel_state.run.options.signal == "likelihood":
                # The journal may hold answers of other runs.
                yield _empty(case)
            else:
                yield panel_state.result(case, panel, status)


def _missing(panel_state: PanelState, panel: Panel, case: Case, samples: int, likelihoods: int) -> str | None:
    """Return an error if the journal shows fewer results than the worker stored, as a directory not shared does."""
    keys, journal = panel_state.keys(panel), panel_state.journals["model"]
    stored = sum(keys[sample] in journal.entries for sample in panel.sample_refs({case.id}))
    if stored >= samples:
        samples, stored = likelihoods, panel_state.likelihood_counts(panel)[case.id]
    if stored >= samples:
        return None
    return (
        f"--journal: {journal.directory} shows {stored} of the {samples} results that the worker of {case.id} read "
        "there; give a directory that all workers and this process share"
    )


def _likelihoods(panel_state: PanelState, role: ModelRole) -> dict[SampleRef, Likelihood]:
    """Return the likelihoods of gold answers on all panels; none for a run that only reads answers."""
    if panel_state.run.options.signal == "answers":
        return {}
    panels = panel_state.panels.values()
    return {ref: item for panel in panels for ref, item in panel_state.likelihoods(panel, role).items()}


def _control_variate(panel_state: PanelState) -> dict[SampleRef, float] | None:
    """Return all scores of a baseline that is not run again; None for any other baseline and without one."""
    if not panel_state.baseline_is_final:
        return None
    return {
        sample: score
        for panel in panel_state.panels.values()
        for sample, score in panel_state.scores(panel, "baseline").items()
    }


def _empty(case: Case) -> CaseResult:
    return CaseResult(case=case, outcomes=(), seconds=0.0)


def _failed(case: Case, error: str) -> CaseResult:
    return CaseResult(case=case, outcomes=(), seconds=0.0, error=error)
