"""The results of a run: the reports of its tests, and its journals, which the controller reads and evaluates once."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from longctx.fixtures.engines import EngineError, execution_settings
from longctx.fixtures.records import Case, CaseResult, FailureKind, Inspection, Likelihood, Outcome
from longctx.fixtures.records.results import EngineFacts
from longctx.fixtures.scoring.match import normalize
from longctx.plugins.config.run import Run, finished_journal
from longctx.plugins.evidence.clusters import SampleRef
from longctx.plugins.journal import POLL_SECONDS, VISIBLE_SECONDS, Journal, JournalError, Subject
from longctx.plugins.runner.panel_state import PanelState
from longctx.plugins.verdicts.diagnoses import case_blocks
from longctx.plugins.verdicts.evaluate import Measured, blocks
from longctx.plugins.verdicts.evaluation import Evaluation, evaluate
from longctx.plugins.verdicts.panels import ModelRole, Panel

# The kinds of failures with an answer of the model's own.
KINDS_FROM_MEMORY: frozenset[FailureKind] = frozenset({"wrong", "incomplete", "distractor"})
Executions = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseReport:
    """The end of one case's test. The results themselves are in the journal."""

    error: str | None = None
    """The line with which the test failed; None if it did not fail."""
    samples: int = 0
    """The number of the case's results that the worker read in the journal when the test ended."""
    likelihoods: int = 0
    """The number of the case's likelihoods that the worker read in the journal when the test ended."""
    computed_samples: int = 0
    """The number of samples that the worker ran the model on during the test, those of other cases included."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """The time of the worker by activity since the case before it."""
    executions: Executions = field(default_factory=dict)
    """The execution settings under which the journal keeps the results, of "model" and, with one, of "baseline"."""
    facts: EngineFacts | None = None
    """The facts of the engine if the worker loaded one."""
    inspection: Inspection | None = None
    """The result of --preflight."""


@dataclass(slots=True)
class Controller:
    """The selected cases of a run, the reports of their tests, and the state of its journals."""

    run: Run
    gates: frozenset[str] | None = None
    """The names of the gates to evaluate; None for all."""
    selected: tuple[Case, ...] = ()
    reports: dict[str, CaseReport] = field(default_factory=dict)
    """The reports by case id."""
    helped: list[CaseReport] = field(default_factory=list)
    """The samples and the time of each worker after its last test."""
    is_interrupted: bool = False
    """True once Ctrl-C has ended the tests."""
    _panel_state: PanelState | None = None
    """The state of the journals; None until progress or the evaluation needs it."""
    _stored_before: int = 0

    @property
    def computed_samples(self) -> int:
        """Return the number of samples that this run computed.

        Workers report it as their cases end. Those of an interrupted run end without a report, so there it is what the
        journal has gained.
        """
        reported = sum(report.computed_samples for report in (*self.reports.values(), *self.helped))
        if not self.is_interrupted:
            return reported
        stored, _ = self.stored_samples()
        return max(reported, stored - self._stored_before)

    @property
    def worker_seconds(self) -> Mapping[str, float]:
        total: Counter[str] = Counter()
        for report in (*self.reports.values(), *self.helped):
            total.update(report.seconds)
        return total

    @property
    def facts(self) -> EngineFacts | None:
        """Return the facts of the model's engine, with all workers' notes; None if no case was measured."""
        known = [report.facts for report in self.reports.values() if report.facts]
        notes = dict.fromkeys(note for facts in known for note in facts.notes)
        return replace(known[0], notes=tuple(notes)) if known else None

    @property
    def executions(self) -> Executions | None:
        """The execution settings of the models; None if no worker reported them."""
        return _executions(self.reports)

    def open_journals(self) -> PanelState:
        """Open the journals on which progress is shown; raise EngineError."""
        self._panel_state = _open_panel_state(self.run, self.selected)
        self._stored_before = self.stored_samples()[0]
        return self._panel_state

    def stored_samples(self) -> tuple[int, int]:
        """Return how many of the planned samples the journal has, and their number; 0 and 0 if it was not opened."""
        state = self._panel_state
        if state is None:
            return 0, 0
        panels = state.panels.values()
        return sum(len(state.scores(panel)) for panel in panels), sum(len(panel.order) for panel in panels)

    def evaluate(self) -> Evaluation:
        """Evaluate the run from its journals. Nothing else may read the opened journals at the same time."""
        if self.is_interrupted and self._panel_state is None:
            # Without any report, the journals show the results so far.
            with suppress(EngineError, JournalError):
                self.open_journals()
        measured = read_measured(
            self.run, self.selected, self.reports, self._panel_state, interrupted=self.is_interrupted
        )
        evaluation = evaluate(self.run.thresholds, measured)
        if self.gates is None:
            return evaluation
        return replace(evaluation, verdicts=tuple(v for v in evaluation.verdicts if v.name in self.gates))


def fails(run: Run, evaluation: Evaluation) -> bool:
    """Return True if a gate, a floor, a loss against the baseline or a case without a result fails the run."""
    narrowed = evaluation.is_narrowed(run.wanted)
    if any(blocks(verdict, narrowed=narrowed) for verdict in evaluation.verdicts):
        return True
    if evaluation.endings is not None and evaluation.endings.fails:
        return True
    if any(case_blocks(one, run.thresholds) for one in evaluation.diagnoses.values()):
        return True
    # A case that was to be retried and never was, or whose results cannot be read, has no failed test.
    results = evaluation.measured.results
    return any(case.id not in results or results[case.id].error for case in evaluation.measured.scope.cases)


def journal_subject(run: Run, role: ModelRole = "model", execution: Mapping[str, str] | None = None) -> Subject:
    """Return the journal's name for a model's results in an execution, by default this machine's; raise EngineError."""
    checkpoint, name = run.checkpoint, run.options.model
    if role == "baseline":
        assert run.baseline is not None
        assert run.baseline.checkpoint is not None
        checkpoint, name = run.baseline.checkpoint, run.baseline.name
    if execution is None:
        execution = execution_settings(checkpoint, run.engine_settings(role))
    return Subject(model=name, fingerprint=checkpoint.fingerprint, execution=execution)


def _executions(reports: Mapping[str, CaseReport]) -> Executions | None:
    return next((report.executions for report in reports.values() if report.executions), None)


def _open_panel_state(run: Run, selected: Sequence[Case], executions: Executions | None = None) -> PanelState:
    """Open the run's journals, by the workers' `executions` or else this machine's; raise EngineError."""
    directory, known = Path(run.options.journal), executions or {}
    journals: dict[ModelRole, Journal] = {
        "model": Journal(directory, journal_subject(run, "model", known.get("model")), run=run.id)
    }
    baseline = run.baseline
    if baseline is None:
        return PanelState(run, selected, journals)
    if baseline.checkpoint is None:
        other = finished_journal(baseline)
    else:
        other = Journal(directory, journal_subject(run, "baseline", known.get("baseline")), run=run.id)
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
    unfinished = frozenset[str]()
    if interrupted:
        unfinished = frozenset(case.id for case in selected if case.id not in reports)
    reports = {**reports, **dict.fromkeys(unfinished, CaseReport())}
    results = {}
    for case in selected:
        if case.id in reports and reports[case.id].error is not None:
            results[case.id] = _no_samples(case, reports[case.id].error)
    final_baseline: dict[SampleRef, float] | None = None
    likelihoods: dict[ModelRole, dict[SampleRef, Likelihood]] = {"model": {}, "baseline": {}}
    damage: dict[str, None] = {}
    executions = _executions(reports)
    if executions is None and unfinished and panel_state is not None:
        executions = panel_state.executions
    if executions is not None:
        try:
            if panel_state is None or panel_state.executions != executions:
                panel_state = _open_panel_state(run, selected, executions)
            _refresh_until_visible(panel_state, reports)
            for journal in panel_state.journals.values():
                damage |= dict.fromkeys(journal.damage)
            results |= {result.case.id: result for result in _results(panel_state, reports)}
            final_baseline = panel_state.final_baseline()
            # A run that only reads answers has none, whatever its journals hold.
            if run.options.signal != "answers":
                likelihoods |= {role: panel_state.all_likelihoods(role) for role in panel_state.journals}
        except (EngineError, JournalError) as error:
            unread = [case for case in selected if case.id in reports and case.id not in results]
            results |= {case.id: _no_samples(case, str(error)) for case in unread if case.id not in unfinished}
    results |= {case.id: _no_samples(case) for case in selected if case.id in unfinished and case.id not in results}
    return Measured(
        scope=run.scope(selected, executions),
        results=with_answers_from_memory(results),
        final_baseline=final_baseline,
        likelihoods=likelihoods["model"],
        baseline_likelihoods=likelihoods["baseline"],
        unfinished=unfinished,
        journal_damage=tuple(damage),
    )


def with_answers_from_memory(results: Mapping[str, CaseResult]) -> dict[str, CaseResult]:
    """Return the results with the kind of those failures that repeat what the model answers without the context.

    Only a control of the run shows that (RULER, Figure 3): a case on the same samples without their text.
    """
    answers: dict[tuple[str, int, int], str] = {}
    for result in results.values():
        for outcome in result.outcomes if result.case.is_without_context else ():
            answers[result.case.samples_of, result.case.length, outcome.index] = _answer(outcome)
    labelled = dict(results)
    for case_id, result in results.items() if answers else ():
        case = result.case
        if not case.is_without_context:
            known = [answers.get((case.samples_of or case.task, case.length, one.index)) for one in result.outcomes]
            outcomes = map(_labelled, result.outcomes, known)
            labelled[case_id] = replace(result, outcomes=tuple(outcomes))
    return labelled


def _labelled(outcome: Outcome, without_context: str | None) -> Outcome:
    if outcome.score.failure not in KINDS_FROM_MEMORY or _answer(outcome) != without_context:
        return outcome
    return structs.replace(outcome, score=structs.replace(outcome.score, failure="from memory"))


def _answer(outcome: Outcome) -> str:
    """Return the first line of an answer, normalized; base models go on behind it."""
    return normalize(outcome.generation.text.strip().partition("\n")[0])


def _refresh_until_visible(panel_state: PanelState, reports: Mapping[str, CaseReport]) -> None:
    """Read the journals until they show all results that the workers read, which may take a while on other machines."""
    deadline = time.monotonic() + VISIBLE_SECONDS
    while True:
        panel_state.refresh(thorough=True)
        are_missing = any(
            _missing(panel_state, panel, case, reports[name])
            for panel in panel_state.panels.values()
            for name, case in panel.cases.items()
            if name in reports and reports[name].error is None
        )
        if not are_missing or time.monotonic() >= deadline:
            return
        time.sleep(POLL_SECONDS)


def _results(panel_state: PanelState, reports: Mapping[str, CaseReport]) -> Iterator[CaseResult]:
    for panel in panel_state.panels.values():
        # A case that failed after its test had passed is no error: nothing that the test rests on is missing.
        passed = [case for case in panel.cases.values() if case.id in reports and reports[case.id].error is None]
        failed = panel_state.failures(panel).keys() - {case.id for case in passed}
        status = panel_state.status(panel, failed=failed)
        for case in passed:
            report = reports[case.id]
            missing = _missing(panel_state, panel, case, report)
            if missing:
                yield _no_samples(case, missing)
            elif panel_state.run.options.signal == "likelihood":
                # The journal may hold answers of other runs.
                yield _no_samples(case)
            else:
                yield panel_state.result(case, panel, status)


def _missing(panel_state: PanelState, panel: Panel, case: Case, report: CaseReport) -> str | None:
    """Return an error if the journal shows fewer results than the worker stored, as a directory not shared does."""
    keys, journal = panel_state.keys(panel), panel_state.journals["model"]
    stored = sum(keys[sample] in journal.entries for sample in panel.queue({case.id}).refs)
    of = report.samples
    if stored >= of:
        stored, of = panel_state.likelihood_counts(panel)[case.id], report.likelihoods
    if stored >= of:
        return None
    return (
        f"--journal: {journal.directory} shows {stored} of the {of} results that the worker of {case.id} read "
        "there; give a directory that all workers and this process share"
    )


def _no_samples(case: Case, error: str | None = None) -> CaseResult:
    return CaseResult(case=case, outcomes=(), seconds=0.0, error=error)
