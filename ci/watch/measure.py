"""Measure one checkpoint: run the gates, compare it with its baselines, and confirm what fails.

A run of the gates has its own probability of error, and a watch makes many runs. So a failure of a run is confirmed at
a confidence that holds over a whole number of checkpoints: the same run continues with that confidence, until its
verdicts are as certain as that. A regression must also be shown for the model, not only on the planned samples, whose
scores move by chance from checkpoint to checkpoint. Checkpoints that pass, which are most, cost nothing more. With
--screen, those that seem to have lost nothing against the anchor end with a few samples instead. With --invariance, a
run of its own checks the engine first, and a checkpoint whose engine fails is not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ci.suite_process import Executor, LocalProcesses, SuiteRun, run_suite
from ci.watch.baselines import ANCHOR, Baseline
from ci.watch.checkpoint_watcher import CompleteCheckpoint
from ci.watch.history import Screening, Verdict
from ci.watch.screen import SCREEN, computed_tokens, read_screening, screen_options
from ci.watch.shown_for_model import is_shown_for_model
from ci.watch.suite_options import INVARIANCE, SuiteOptions
from fixtures.installation import CASES_DIRECTORY
from plugins.report.properties import failed_properties

Gate = Mapping[str, Any]
# The comparisons of a checkpoint share its probability of error.
BASELINES = 2
LAST_GOOD = "last-good"
ENGINE_CHECK = "invariance"
# The check alone, whatever cases the user's options select.
CHECK_OPTIONS = (INVARIANCE, f"{CASES_DIRECTORY}/test_invariance.py", "-k", "test_invariance")
SEVERITY: Sequence[Verdict] = ("error", "fail", "underpowered", "inconclusive", "screened", "pass")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointResult:
    """The verdict on a checkpoint."""

    verdict: Verdict
    reasons: tuple[str, ...]
    """One line for every reason why it is not a pass."""
    exit_code: int
    """pytest's exit code."""
    report: Mapping[str, Any] | None
    """The report of the first comparison; None if it was not completed."""
    engine_check: Path | None = None
    """The report of a check that failed or could not be made, where it is written; None if there was a comparison."""
    screen: Screening | None = None
    """None for a checkpoint that was not screened."""

    @property
    def tokens(self) -> int | None:
        """The tokens that the checkpoint computed for the first comparison; None without one."""
        return None if self.report is None else computed_tokens(self.report)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRunner:
    """Run the suite on the checkpoints of a watch."""

    options: SuiteOptions
    gpus: tuple[str, ...]
    """Numbers as in CUDA_VISIBLE_DEVICES; empty for all GPUs."""
    horizon: int
    """The number of checkpoints that share the probability of a wrong failure."""
    screen_samples: int | None = None
    """The number of samples of every case that screen a checkpoint; None to measure all checkpoints at length."""
    run: Callable[..., SuiteRun] = field(default_factory=lambda: run_suite)
    """Runs pytest; a simulation has one that runs no model."""
    executor: Executor = field(default_factory=LocalProcesses)

    def measure(self, checkpoint: CompleteCheckpoint, baselines: Sequence[Baseline], report: Path) -> CheckpointResult:
        """Measure a checkpoint against its baselines, the second one only if it does not fail against the first.

        Both runs share the checkpoint's answers, so the second one computes only what its comparison lacks. A
        checkpoint whose screen sees no loss is not compared any further, and one whose engine fails not at all.
        """
        failed = self._check_engine(checkpoint, report)
        if failed is not None:
            return failed
        usable = [baseline for baseline in baselines if baseline.argument is not None]
        screening = self._screen(checkpoint, usable, report)
        if screening is not None and screening.verdict == "no loss":
            return CheckpointResult(verdict="screened", reasons=(), exit_code=0, report=None, screen=screening)
        result = self._compare(checkpoint, usable[0] if usable else None, report)
        for baseline in usable[1:]:
            if result.verdict in ("pass", "inconclusive"):
                second = self._compare(checkpoint, baseline, report.parent / LAST_GOOD / report.name)
                result = _worse(result, second)
        for baseline in baselines:
            if baseline.argument is None:
                result = _worse(result, _not_compared(baseline))
        return replace(result, screen=screening)

    def _check_engine(self, checkpoint: CompleteCheckpoint, report: Path) -> CheckpointResult | None:
        """Check the engine before any sample; return None if the checkpoint may be measured."""
        if not self.options.checks_engine:
            return None
        file = report.parent / ENGINE_CHECK / report.name
        run = self._run(checkpoint, None, file, *CHECK_OPTIONS)
        if run.report is not None and run.exit_code == 0:
            return None
        findings = () if run.report is None else tuple(failed_properties(run.report))
        why = run.reason or f"the engine was not checked; see {file.with_suffix('.log')}"
        return CheckpointResult(
            verdict="fail" if findings else "error",
            reasons=findings or (f"invariance: {why}",),
            exit_code=run.exit_code,
            report=None,
            engine_check=file,
        )

    def _screen(self, checkpoint: CompleteCheckpoint, baselines: Sequence[Baseline], report: Path) -> Screening | None:
        """Screen a checkpoint against the anchor; None without --screen or an anchor to compare with."""
        if self.screen_samples is None or not baselines or baselines[0].role != ANCHOR:
            return None
        options = screen_options(self.screen_samples)
        return read_screening(self._run(checkpoint, baselines[0], report.parent / SCREEN / report.name, *options))

    def _compare(self, checkpoint: CompleteCheckpoint, baseline: Baseline | None, report: Path) -> CheckpointResult:
        run = self._run(checkpoint, baseline, report)
        if verdict_of(run)[0] != "fail" or run.report is None:
            return _result(run, baseline, None)
        alpha = self._confirming_alpha(run.report)
        for more in ([], ["--full"]):
            run = self._run(checkpoint, baseline, report, "--confidence", repr(1 - alpha), *more)
            if run.report is None or not _unshown(run.report, alpha):
                break
        return _result(run, baseline, alpha)

    def _confirming_alpha(self, report: Mapping[str, Any]) -> float:
        """Return the error probability at which all comparisons of `horizon` checkpoints share that of one run."""
        comparisons = len([gate for gate in report["gates"] if gate["kind"] == "regression"])
        return (1 - self.options.confidence) / (self.horizon * BASELINES * max(1, comparisons))

    def _run(self, checkpoint: CompleteCheckpoint, baseline: Baseline | None, report: Path, *more: str) -> SuiteRun:
        argument = None if baseline is None else baseline.argument
        return self.run(
            [
                *self.options.for_step(checkpoint.step.number),
                *(["-n", str(len(self.gpus))] if len(self.gpus) > 1 else []),
                "--model", str(checkpoint.step.path), *(["--baseline", argument] if argument else []), *more,
                "--junitxml", str(report.with_suffix(".xml")), "--report-html", str(report.with_suffix(".html")),
            ],
            report=report,
            log=report.with_suffix(".log"),
            fingerprints=[checkpoint.fingerprint],
            executor=self.executor,
            again=True,
            environment={"CUDA_VISIBLE_DEVICES": ",".join(self.gpus)} if self.gpus else None,
        )  # fmt: skip


def verdict_of(run: SuiteRun) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict of a finished run, and one line for every reason why it is not a pass."""
    if run.report is None:
        return "error", (run.reason,)
    gates = [gate for gate in run.report["gates"] if gate["blocking"]]
    if run.exit_code == 0:
        return _accepted(gates)
    cases = [case for case in run.report["cases"] if case["verdict"] in ("fail", "error")]
    words = {result["verdict"] for result in _failed(run.report)}
    reasons = (
        *(f"{gate['name']}: {gate['reason']}" for gate in gates if gate["fails"]),
        *(f"{case['id']}: {case['error'] or case['decided_by']}" for case in cases),
    )
    verdict: Verdict = "error" if "error" in words else "underpowered" if words == {"underpowered"} else "fail"
    return verdict, reasons or (f"pytest ended with code {run.exit_code}",)


def _accepted(gates: Sequence[Gate]) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict of a run that did not fail: an open comparison must not become the last good step."""
    undecided = [gate for gate in gates if gate["kind"] == "regression" and gate["verdict"] == "inconclusive"]
    return ("inconclusive" if undecided else "pass"), tuple(f"{gate['name']}: {gate['reason']}" for gate in undecided)


def _unshown(report: Mapping[str, Any], alpha: float) -> list[Gate]:
    """Return the failed comparisons whose loss is shown on the planned samples only, not for the model."""
    failed = [gate for gate in report["gates"] if gate["kind"] == "regression" and gate["verdict"] == "fail"]
    return [gate for gate in failed if gate["blocking"] and not is_shown_for_model(report, gate, alpha)]


def _result(run: SuiteRun, baseline: Baseline | None, alpha: float | None) -> CheckpointResult:
    """Return the verdict of a run, which was confirmed at `alpha` or did not fail (None).

    A loss that is not shown for the model is no failure, and no pass either.
    """
    verdict, reasons = verdict_of(run)
    unshown = [] if run.report is None or alpha is None else _unshown(run.report, alpha)
    if verdict == "fail" and run.report is not None and 0 < len(unshown) == len(_failed(run.report)):
        verdict = "inconclusive"
        reasons = tuple(f"{gate['name']}: {gate['reason']}; not shown for the model" for gate in unshown)
    against = f"against {baseline.role} ({baseline.name}): " if baseline else ""
    return CheckpointResult(
        verdict=verdict,
        reasons=tuple(f"{against if reason.startswith('regression') else ''}{reason}" for reason in reasons),
        exit_code=run.exit_code,
        report=run.report,
    )


def _failed(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the gates and cases that failed a run."""
    return [entry for entry in (*report["gates"], *report["cases"]) if entry["fails"]]


def _not_compared(baseline: Baseline) -> CheckpointResult:
    """Return the verdict on a comparison with a checkpoint of which nothing is left."""
    gone = f"{baseline.role}, {baseline.name}, is gone: keep its checkpoint, or name another with --anchor"
    return CheckpointResult(verdict="underpowered", reasons=(gone,), exit_code=1, report=None)


def _worse(first: CheckpointResult, second: CheckpointResult) -> CheckpointResult:
    """Return the verdict on both comparisons, with the first one's report."""
    worst = min(first, second, key=lambda result: SEVERITY.index(result.verdict))
    return CheckpointResult(
        verdict=worst.verdict,
        reasons=(*first.reasons, *second.reasons),
        exit_code=max(first.exit_code, second.exit_code),
        report=first.report,
    )
