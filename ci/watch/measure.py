"""Measure one checkpoint: run the gates and compare it with its baselines.

A run of the gates has its own probability of error, and a watch makes many runs. So the runs of a watch are a series
(`--series`), which shares that probability: a failure is shown for the model as surely as this takes, and scores that
move by chance from checkpoint to checkpoint fail none. Checkpoints that pass, which are most, cost nothing more. With
--invariance, a run of its own checks the engine first, and a checkpoint whose engine fails is not measured.

A loss that is suspected and not shown is measured further at once, while the checkpoint is there: on twice as many
samples, and again, until it is shown, or refuted, or suspected no more. Every such look has a share of the probability
of error that is fixed beforehand, half of it the first one (Bonferroni), so that the promise holds for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from longctx.ci.suite_options import INVARIANCE, SuiteOptions
from longctx.ci.suite_process import Executor, LocalProcesses, SuiteRun, run_suite
from longctx.ci.watch.baselines import ComparedCheckpoint
from longctx.ci.watch.checkpoint_watcher import CompleteCheckpoint
from longctx.ci.watch.history import ACCEPTED, Verdict
from longctx.ci.watch.outcomes import STATES, CaseOutcome, case_outcomes
from longctx.fixtures.installation import CASES_DIRECTORY
from longctx.fixtures.records.report import JsonReport
from longctx.plugins.report.sections.engine import failed_properties
from longctx.plugins.report.sections.gates import gate_text, run_verdict

LAST_GOOD = "last-good"
# The folder of the reports on more samples, with their number.
MORE_SAMPLES = "samples-{}"
ENGINE_CHECK = "invariance"
# The check alone, whatever cases the user's options select.
CHECK_OPTIONS = (INVARIANCE, f"{CASES_DIRECTORY}/test_invariance.py", "-k", "test_invariance")
SEVERITY: Sequence[Verdict] = ("error", "fail", "not measured", "undecided", "pass")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointResult:
    """The verdict on a checkpoint. The fields without documentation are those of `WatchedCheckpoint`."""

    verdict: Verdict
    reasons: tuple[str, ...]
    """One line for every reason why it is not a pass."""
    exit_code: int
    report: JsonReport | None
    """The report of the first comparison; None if it was not completed."""
    cases: Mapping[str, CaseOutcome] = field(default_factory=dict)
    """The outcome of the comparisons for every case, by id; empty if none was completed."""
    compared_with: str | None = None
    file: Path | None = None
    """Where the report is, if not in the first comparison's file: that of a check of the engine which failed or could
    not be made, or that of a comparison on more samples."""
    most_samples: int | None = None
    is_suspected: bool = False


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
    ) -> CheckpointResult:
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
                not_compared = CheckpointResult(verdict="error", reasons=(gone,), exit_code=1, report=None)
                result = _worse(result, not_compared)
        return result

    def _check_engine(self, checkpoint: CompleteCheckpoint, report: Path, series: int) -> CheckpointResult | None:
        """Check the engine before any sample; return None if the checkpoint may be measured."""
        if not self.options.checks_engine:
            return None
        file = report.parent / ENGINE_CHECK / report.name
        run = self._run(checkpoint, None, file, series, *CHECK_OPTIONS)
        if run.report is not None and run.exit_code == 0:
            return None
        findings = () if run.report is None else tuple(failed_properties(run.report))
        why = run.reason or f"the engine was not checked; see {file.with_suffix('.log')}"
        return CheckpointResult(
            verdict="fail" if findings else "error",
            reasons=findings or (f"invariance: {why}",),
            exit_code=run.exit_code,
            report=None,
            file=file,
        )

    def _compare(
        self, checkpoint: CompleteCheckpoint, baseline: ComparedCheckpoint | None, report: Path, series: int
    ) -> CheckpointResult:
        """Compare a checkpoint, on twice as many samples as long as a loss is suspected.

        A baseline that was chosen by its answers may owe them to chance, and looks like a loss of what comes after it.
        So its comparison gets the probability of error that it would have if those with all candidates were made.
        """
        series *= 1 if baseline is None else baseline.candidates
        share = series if baseline is None or not self.doublings else 2 * series
        result = _result(self._run(checkpoint, baseline, report, share), baseline)
        for _ in range(self.doublings):
            samples = None if result.report is None else self._more_samples(result.report, baseline)
            if samples is None:
                break
            file = report.parent / MORE_SAMPLES.format(samples) / report.name
            share = 2 * self.doublings * series
            more = _result(self._run(checkpoint, baseline, file, share, "--samples", str(samples)), baseline)
            if more.verdict == "error":
                # A baseline that is gone by now, say, takes nothing back.
                why = f"not measured on {samples} samples of each case: {more.reasons[0]}"
                return replace(result, reasons=(*result.reasons, why))
            why = f"measured on up to {samples} samples of each case, because a loss was suspected"
            result = replace(more, reasons=(*more.reasons, why), file=file, most_samples=samples)
        return result

    def _more_samples(self, report: JsonReport, baseline: ComparedCheckpoint | None) -> int | None:
        """Return twice the samples of a comparison that suspects a loss; None if it suspects none that is news.

        Also None if the baseline cannot answer any more, or there are no more samples.
        """
        if baseline is None or not baseline.can_answer:
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
        words += ["-n", str(len(self.gpus))] if len(self.gpus) > 1 else []
        words += ["--model", str(checkpoint.step.path)]
        if baseline is not None and baseline.argument:
            words += ["--baseline", baseline.argument]
        words += [*more, "--junitxml", str(report.with_suffix(".xml"))]
        words += ["--report-html", str(report.with_suffix(".html"))]
        return self.run(
            words,
            report=report,
            log=report.with_suffix(".log"),
            fingerprints=[checkpoint.fingerprint],
            executor=self.executor,
            again=True,
            environment={"CUDA_VISIBLE_DEVICES": ",".join(self.gpus)} if self.gpus else None,
        )


def verdict_of(run: SuiteRun) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict of a finished run, and one line for every reason why it is not a pass."""
    if run.report is None:
        return "error", (run.reason,)
    gates, decided = run.report.gates, run.report.verdict or run_verdict(run.report, run.exit_code)
    undecided = [gate for gate in gates if gate.blocking and gate.verdict == "undecided" and not gate.fails]
    open_gates = tuple(map(gate_text, undecided))
    if run.exit_code == 0:
        # A checkpoint with an undecided comparison must not become the last good step.
        is_compared = all(gate.kind not in ("regression", "change") for gate in undecided)
        return "pass" if is_compared else "undecided", open_gates
    if decided.word != "fail":
        return "error", (f"the verdict is {decided.word}, but pytest ended with code {run.exit_code}; see its log",)
    failed = [gate for gate in gates if gate.fails]
    words = {gate.verdict for gate in failed} | {case.verdict for case in run.report.cases if case.fails}
    # A comparison whose baseline has too few answers can be made once its checkpoint is there.
    is_short = words == {"undecided"} and any(gate.because == "short baseline" for gate in failed)
    return "error" if is_short or "error" in words else "fail", (*decided.reasons, *open_gates)


def _result(run: SuiteRun, baseline: ComparedCheckpoint | None) -> CheckpointResult:
    verdict, reasons = verdict_of(run)
    against = f"against {baseline.role} ({baseline.name}): " if baseline else ""
    return CheckpointResult(
        verdict=verdict,
        reasons=tuple(f"{against if reason.startswith('regression') else ''}{reason}" for reason in reasons),
        exit_code=run.exit_code,
        report=run.report,
        cases={} if run.report is None else case_outcomes(run.report),
        compared_with=None if baseline is None else str(baseline.checkpoint or baseline.argument),
        is_suspected=verdict == "undecided"
        and run.report is not None
        and any(gate.suspected for gate in run.report.gates),
    )


def _worse(first: CheckpointResult, second: CheckpointResult) -> CheckpointResult:
    """Return the verdict on both comparisons, with the first one's report."""
    worst = min(first, second, key=lambda result: SEVERITY.index(result.verdict))
    # Only a loss that the second comparison shows is described by it.
    compared = second if second.verdict == "fail" and second.cases else first
    is_suspected = worst.verdict == "undecided" and (first.is_suspected or second.is_suspected)
    return CheckpointResult(
        verdict=worst.verdict,
        reasons=(*first.reasons, *second.reasons),
        exit_code=max(first.exit_code, second.exit_code),
        report=first.report,
        cases={name: _with_worse_state(case, first, second, name) for name, case in compared.cases.items()},
        compared_with=compared.compared_with,
        file=first.file,
        most_samples=compared.most_samples,
        is_suspected=is_suspected,
    )


def _with_worse_state(case: CaseOutcome, first: CheckpointResult, second: CheckpointResult, name: str) -> CaseOutcome:
    """Return a case with the worse of its states in two comparisons."""
    states = [result.cases[name].state for result in (first, second) if name in result.cases]
    return structs.replace(case, state=max(states, key=STATES.index))
