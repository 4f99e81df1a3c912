"""Measure one checkpoint: run the gates and compare it with its baselines.

A run of the gates has its own probability of error, and a watch makes many runs. So the runs of a watch are a series
(`--series`), which shares that probability: a failure is shown for the model as surely as this takes, and scores that
move by chance from checkpoint to checkpoint fail none. Checkpoints that pass, which are most, cost nothing more. With
--invariance, a run of its own checks the engine first, and a checkpoint whose engine fails is not measured.

A loss that is suspected and not shown is measured further at once, while the checkpoint is there: on twice as many
samples, and again, until it is shown, or refuted, or suspected no more. Every such look has a share of the probability
of error that is fixed beforehand, half of it the first one (Bonferroni), so that the promise holds for all of them.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from msgspec import structs

from longctx.ci.checkpoint_dirs import CompleteCheckpoint
from longctx.ci.suite_options import INVARIANCE, SuiteOptions
from longctx.ci.suite_process import Executor, LocalProcesses, SuiteRun, environment_of, run_suite, workers_on
from longctx.ci.watch.baselines import ANCHOR, ComparedCheckpoint
from longctx.ci.watch.history import ACCEPTED, STATES, CaseOutcome, PanelScore, State, Verdict, WatchedCheckpoint
from longctx.fixtures.installation import CASES_DIRECTORY
from longctx.fixtures.lengths import format_length
from longctx.fixtures.records import family_of
from longctx.fixtures.records.report import CaseComparison, JsonReport, ReportCase, ReportGate
from longctx.plugins.report.sections.engine import failed_properties
from longctx.plugins.report.sections.gates import gate_text, run_verdict

LAST_GOOD = "last-good"
ENGINE_CHECK = "invariance"
# The check alone, also if the user's options select cases.
CHECK_OPTIONS = (INVARIANCE, f"{CASES_DIRECTORY}/test_invariance.py", "-k", "test_invariance")
# Gates whose required value is a score of each case.
LEVELS = ("level", "category")
SEVERITY: Sequence[Verdict] = ("error", "fail", "not measured", "undecided", "pass")


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRunner:
    """Run the suite on the checkpoints of a watch."""

    options: SuiteOptions
    gpus: tuple[str, ...]
    """Numbers as in CUDA_VISIBLE_DEVICES; empty for all GPUs."""
    horizon: int
    """The number of checkpoints that share the probability of a wrong failure."""
    doublings: int = 0
    """How often the samples are doubled where a loss is suspected."""
    alerted: Collection[str] = ()
    """The ids of cases whose loss is known from an earlier step; it is no news, and takes no more samples."""
    run: Callable[..., SuiteRun] = field(default_factory=lambda: run_suite)
    """Runs pytest; a simulation has one that runs no model."""
    executor: Executor = field(default_factory=LocalProcesses)

    def measure(
        self, checkpoint: CompleteCheckpoint, baselines: Sequence[ComparedCheckpoint], report: Path
    ) -> WatchedCheckpoint:
        """Measure a checkpoint against its baselines, the second one only if it does not fail against the first.

        Both runs share the checkpoint's answers, so the second one computes only what its comparison lacks. A
        checkpoint whose engine fails is not compared at all.
        """
        usable = [baseline for baseline in baselines if baseline.argument is not None]
        # The comparisons of a checkpoint share its probability of error.
        series = self.horizon * max(1, len(usable))
        failed = self._check_engine(checkpoint, report, series)
        if failed is not None:
            return failed
        result = self._compare(checkpoint, usable[0] if usable else None, report, series)
        for baseline in usable[1:]:
            if result.verdict in ACCEPTED:
                second = self._compare(checkpoint, baseline, report.parent / LAST_GOOD / report.name, series)
                result = _worse(result, second)
        for baseline in baselines:
            if baseline.argument is None:
                gone = f"{baseline.role}, {baseline.name}, is gone: keep its checkpoint, or name another with --anchor"
                result = _worse(result, _measurement(checkpoint, report, "error", (gone,)))
        return result

    def _check_engine(self, checkpoint: CompleteCheckpoint, report: Path, series: int) -> WatchedCheckpoint | None:
        """Check the engine before any sample; return None if the checkpoint may be measured."""
        if not self.options.checks_engine:
            return None
        file = report.parent / ENGINE_CHECK / report.name
        run = self._run(checkpoint, None, file, series, *CHECK_OPTIONS)
        if run.report is not None and run.exit_code == 0:
            return None
        findings = () if run.report is None else tuple(failed_properties(run.report))
        why = run.reason or f"the engine was not checked; see {file.with_suffix('.log')}"
        reasons = findings or (f"invariance: {why}",)
        return _measurement(checkpoint, file, "fail" if findings else "error", reasons)

    def _compare(
        self, checkpoint: CompleteCheckpoint, baseline: ComparedCheckpoint | None, report: Path, series: int
    ) -> WatchedCheckpoint:
        """Compare a checkpoint, on twice as many samples as long as a loss is suspected.

        A baseline that was chosen by its answers may owe them to chance, and looks like a loss of what comes after it.
        So its comparison gets the probability of error that it would have if those with all candidates were made.
        """
        if baseline is None:
            return _compared(checkpoint, report, self._run(checkpoint, None, report, series), None)
        series *= baseline.candidates
        run = self._run(checkpoint, baseline, report, 2 * series if self.doublings else series)
        result = _compared(checkpoint, report, run, baseline)
        for _ in range(self.doublings):
            samples = None if run.report is None else self._more_samples(run.report, baseline)
            if samples is None:
                break
            file = report.parent / f"samples-{samples}" / report.name
            share = 2 * self.doublings * series
            run = self._run(checkpoint, baseline, file, share, "--samples", str(samples))
            more = _compared(checkpoint, file, run, baseline)
            if more.verdict == "error":
                # A baseline that is gone by now, say, takes nothing back.
                why = f"not measured on {samples} samples of each case: {more.failed[0]}"
                return structs.replace(result, failed=(*result.failed, why))
            why = f"measured on up to {samples} samples of each case, because a loss was suspected"
            result = structs.replace(more, failed=(*more.failed, why), most_samples=samples)
        return result

    def _more_samples(self, report: JsonReport, baseline: ComparedCheckpoint) -> int | None:
        """Return twice the samples of a comparison with a suspected loss that is news and has more samples, or None."""
        if baseline.checkpoint is None and (baseline.argument or "").endswith(".json"):
            # It cannot be run on samples that it has not answered yet.
            return None
        suspected = {case for gate in report.gates if gate.suspected for case in gate.cases}
        samples = int(report.run.options["samples"])
        has_more = any(case.planned > samples - case.group for case in report.cases if case.id in suspected)
        is_news = not suspected <= {*self.alerted}
        return 2 * samples if has_more and is_news else None

    def _run(
        self, checkpoint: CompleteCheckpoint, baseline: ComparedCheckpoint | None, report: Path, series: int, *more: str
    ) -> SuiteRun:
        """Run pytest; `series` are the comparisons of a watch that share its probability of error."""
        words = [*self.options.for_step(checkpoint.step.number), "--series", str(series)]
        words += [*workers_on(self.gpus), "--model", str(checkpoint.step.path)]
        if baseline is not None and baseline.argument:
            words += ["--baseline", baseline.argument]
        words += [*more, "--junitxml", str(report.with_suffix(".xml"))]
        words += ["--report-html", str(report.with_suffix(".html"))]
        return self.run(
            words, report=report, fingerprints=[checkpoint.fingerprint], executor=self.executor, again=True,
            environment=environment_of(self.gpus),
        )  # fmt: skip


def verdict_of(run: SuiteRun) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict of a finished run, and one line for every reason why it is not a pass."""
    report, exit_code = run.report, run.exit_code
    if report is None:
        return "error", (run.reason,)
    undecided = [gate for gate in report.gates if gate.blocking and gate.verdict == "undecided" and not gate.fails]
    open_gates = tuple(map(gate_text, undecided))
    if exit_code == 0:
        # A checkpoint with an undecided comparison must not become the last good step.
        is_compared = all(gate.kind not in ("regression", "change") for gate in undecided)
        return "pass" if is_compared else "undecided", open_gates
    decided = report.verdict or run_verdict(report, exit_code)
    if decided.word != "fail":
        return "error", (f"the verdict is {decided.word}, but pytest ended with code {exit_code}; see its log",)
    failed = [gate for gate in report.gates if gate.fails]
    words = {gate.verdict for gate in failed}
    words |= {case.verdict for case in report.cases if case.fails}
    # A comparison whose baseline has too few answers can be made once its checkpoint is there.
    is_short = words == {"undecided"} and any(gate.because == "short baseline" for gate in failed)
    verdict: Verdict = "error" if is_short or "error" in words else "fail"
    return verdict, (*decided.reasons, *open_gates)


def _measurement(
    checkpoint: CompleteCheckpoint, report: Path, verdict: Verdict, reasons: tuple[str, ...]
) -> WatchedCheckpoint:
    """Return the measurement of a checkpoint before its cost, its end and its anchor are known."""
    return WatchedCheckpoint(
        step=checkpoint.step.number, checkpoint=str(checkpoint.step.path), fingerprint=checkpoint.fingerprint,
        verdict=verdict, failed=reasons, report=str(report), gpu_seconds=0.0, ended="",
    )  # fmt: skip


def _compared(
    checkpoint: CompleteCheckpoint, file: Path, run: SuiteRun, baseline: ComparedCheckpoint | None
) -> WatchedCheckpoint:
    report, (verdict, reasons) = run.report, verdict_of(run)
    if baseline is not None:
        against = f"against {baseline.role} ({baseline.name})"
        reasons = tuple(f"{against}: {line}" if line.startswith("regression") else line for line in reasons)
    measurement = _measurement(checkpoint, file, verdict, reasons)
    compared_with = None if baseline is None else str(baseline.checkpoint or baseline.argument)
    if report is None:
        return structs.replace(measurement, compared_with=compared_with)
    is_anchored = baseline is not None and baseline.role == ANCHOR
    is_suspected = verdict == "undecided" and any(gate.suspected for gate in report.gates)
    return structs.replace(
        measurement, panels=panel_scores(report, is_compared=is_anchored), cases=case_outcomes(report),
        compared_with=compared_with, is_suspected=is_suspected,
    )  # fmt: skip


def _worse(first: WatchedCheckpoint, second: WatchedCheckpoint) -> WatchedCheckpoint:
    """Return the verdict on both comparisons, with the first one's report."""
    worst = min(first, second, key=lambda result: SEVERITY.index(result.verdict))
    # Only a loss that the second comparison shows is described by it.
    compared = second if second.verdict == "fail" and second.cases else first
    cases = {}
    for name, case in compared.cases.items():
        states = [result.cases[name].state for result in (first, second) if name in result.cases]
        cases[name] = structs.replace(case, state=worst_state(*states))
    return structs.replace(
        first,
        verdict=worst.verdict,
        failed=(*first.failed, *second.failed),
        cases=cases,
        compared_with=compared.compared_with,
        most_samples=compared.most_samples,
        is_suspected=worst.verdict == "undecided" and (first.is_suspected or second.is_suspected),
    )


def case_outcomes(report: JsonReport) -> dict[str, CaseOutcome]:
    compared = {} if report.regression is None else report.regression.cases
    cases = {case.id: case for case in report.cases}
    states: dict[str, State] = dict.fromkeys(cases, "pass")
    # The scores that bad cases should reach; None if they have lost against the baseline.
    required: dict[str, float | None] = {}
    failed: dict[str, list[str]] = {name: [] for name in cases}
    for case in report.cases:
        if case.error or case.score is None:
            states[case.id] = "undecided"
        elif case.fails:
            states[case.id] = "fail"
            is_below = case.floor is not None and case.score < case.floor
            required[case.id] = case.floor if is_below else None
    for gate in report.gates:
        members = [case for case in gate.cases if case in cases]
        has_failed = gate.fails and gate.verdict == "fail"
        is_open = gate.blocking and gate.verdict not in ("pass", "not measured")
        state, bad = _bad_cases(gate, members, cases, compared) if has_failed else ("undecided", [])
        for name in members if has_failed or is_open else ():
            own = state if name in bad else "undecided"
            states[name] = worst_state(states[name], own)
        for name in bad:
            failed[name].append(gate.name)
            required[name] = required.get(name, gate.required) if gate.kind in LEVELS else None
    outcomes = {}
    for name, case in cases.items():
        difference = _difference(case, compared.get(name), required.get(name))
        outcomes[name] = structs.replace(difference, state=states[name], gates=tuple(failed[name]))
    return outcomes


def worst_state(*states: State) -> State:
    return max(states, key=STATES.index)


def _bad_cases(
    gate: ReportGate, members: list[str], cases: Mapping[str, ReportCase], compared: Mapping[str, CaseComparison]
) -> tuple[State, list[str]]:
    """Return the cases that a gate failed for: those shown to be bad, else those that have lost, else all of them."""
    shown = [name for name in members if cases[name].verdict == "fail"]
    if shown or len(members) == 1:
        return "fail", shown or members
    lost = []
    for name in members:
        score = cases[name].score or 0.0
        difference = compared[name].difference if name in compared else None
        has_lost = score < gate.required if gate.kind in LEVELS else (difference or 0.0) < 0
        if has_lost:
            lost.append(name)
    return "lost", lost or members


def _difference(case: ReportCase, comparison: CaseComparison | None, required: float | None) -> CaseOutcome:
    """Return an outcome with the points of a case; its state is set by the gates."""
    score, interval = case.score, case.interval
    if required is None and comparison is not None and comparison.pairs:
        pairs, better, worse = comparison.pairs, comparison.better, comparison.worse
        variance = max(0.0, better + worse - (better - worse) ** 2 / pairs)
        return CaseOutcome(
            length=case.length, state="undecided", points=comparison.difference, interval=comparison.interval,
            pairs=pairs, error=100 * math.sqrt(variance) / pairs,
        )  # fmt: skip
    if required is None or score is None or not case.samples:
        return CaseOutcome(length=case.length, state="undecided")
    return CaseOutcome(
        length=case.length, state="undecided", points=score - required, against="threshold",
        interval=None if interval is None else (interval[0] - required, interval[1] - required), pairs=case.samples,
        error=math.sqrt(score * (100 - score) / case.samples),
    )  # fmt: skip


def panel_scores(report: JsonReport, *, is_compared: bool) -> dict[str, PanelScore]:
    """Return the scores by family and length; `is_compared` is True for a report on a comparison with the anchor."""
    compared = report.regression.cases if is_compared and report.regression else {}
    panels: dict[str, list[ReportCase]] = {}
    for case in report.cases:
        if case.score is not None:
            name = f"{family_of(case.suite, case.category)} {format_length(case.length)}"
            panels.setdefault(name, []).append(case)
    scores = {}
    for name, cases in panels.items():
        known = [compared[case.id] for case in cases if case.id in compared]
        points = [case.difference for case in known if case.difference is not None]
        scores[name] = PanelScore(
            score=fmean(case.score or 0.0 for case in cases),
            samples=sum(case.samples for case in cases),
            points=fmean(points) if points else None,
            pairs=sum(case.pairs for case in known),
        )
    return scores
