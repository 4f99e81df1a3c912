"""Apply the gates of a thresholds file to the case results of a run.

A gate needs the cases that were selected, not those that happened to be measured. A selected case that failed or never
came back makes it an error; one that was not selected leaves it "not measured". No mean is taken over the rest.

A gate has a finding at every length. Its verdict is that finding, or one that joins those of all lengths.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from longctx.fixtures.records import Case, CaseResult, Likelihood, Reason, UndecidedEffect, Verdict, VerdictWord
from longctx.fixtures.records.report_parts import Interval
from longctx.plugins.evidence.clusters import ESTIMATE_ALPHA, SampleRef
from longctx.plugins.evidence.e_process import TIE_TOLERANCE
from longctx.plugins.evidence.effective_length import effective_length, weighted_average
from longctx.plugins.evidence.haystacks import correlation, level_interval
from longctx.plugins.evidence.points import to_points
from longctx.plugins.evidence.sequential import Hypothesis, InterimAnalysis
from longctx.plugins.evidence.statistics import stratified_interval
from longctx.plugins.thresholds.records import COMPARED_KINDS, Gate, Thresholds
from longctx.plugins.verdicts.hypotheses import (
    PanelKey,
    Scope,
    build_panels,
    fails_only_below,
    gate_family,
    hypothesis_of,
)
from longctx.plugins.verdicts.panels import Panel

# Verdicts become scores of 0 and 100, so that a length passes if its score is above this one.
HALF = 50.0
# The reasons of a comparison that lacks results which no run adds.
SHORT = ("short baseline", "short candidate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The selected cases of a run and their results."""

    scope: Scope
    results: Mapping[str, CaseResult]
    """The results by case id; a case without one never came back."""
    final_baseline: Mapping[SampleRef, float] | None = None
    """The scores, 0 to 1, of a baseline that is not run again; None without one."""
    likelihoods: Mapping[SampleRef, Likelihood] = field(default_factory=dict)
    """The likelihoods of gold answers that were measured."""
    baseline_likelihoods: Mapping[SampleRef, Likelihood] = field(default_factory=dict)
    unfinished: frozenset[str] = frozenset()
    """The ids of the cases whose tests an interruption ended; their results are those so far."""
    journal_damage: tuple[str, ...] = ()
    """One line for every file of the journals with unreadable lines."""

    @property
    def failed(self) -> frozenset[str]:
        """The ids of the cases that ended with an error."""
        return frozenset(case_id for case_id, result in self.results.items() if result.error is not None)

    @property
    def baseline_scores(self) -> dict[SampleRef, float]:
        """The baseline's score of every sample that was compared."""
        scores = {}
        for case_id, result in self.results.items():
            for outcome, score in zip(result.outcomes, result.baseline, strict=False):
                scores[SampleRef(case_id, outcome.index)] = score
        return scores


class GateEvaluator:
    """The gates of one run, applied to its case results."""

    def __init__(self, thresholds: Thresholds, measured: Measured):
        self.thresholds = thresholds
        self.measured = measured
        self.panels = build_panels(thresholds, measured.scope)
        # The scores, 0 to 1, of all samples of the panels.
        self.scores: dict[SampleRef, float] = {}
        for case_id, result in measured.results.items():
            if (result.case.family, result.case.length) in self.panels:
                for outcome in result.outcomes:
                    self.scores[SampleRef(case_id, outcome.index)] = outcome.score.value
        # Several gates rest on the same hypothesis.
        self._analyses: dict[tuple[PanelKey, Hypothesis], InterimAnalysis] = {}

    def verdicts(self) -> tuple[Verdict, ...]:
        """Return the verdicts on scores in the order of the thresholds file, one per length for some kinds."""
        scope = self.measured.scope
        verdicts: list[Verdict] = []
        for gate in self.thresholds.gates:
            if gate.kind in ("level", "category"):
                verdicts += [self.finding(gate, length) for length in scope.verdict_lengths(gate)]
            elif gate.kind in ("effective_length", "weighted_average"):
                findings = {length: self.finding(gate, length) for length in scope.lengths}
                joined = self._joined(gate, findings)
                if joined.because is None and gate.kind == "weighted_average":
                    joined = self._average_verdict(gate, findings, joined)
                elif joined.because is None:
                    joined = effective_length_verdict(findings, joined)
                verdicts.append(joined)
        return tuple(verdicts)

    def blank(self, gate: Gate, length: int | None) -> Verdict:
        """Return the verdict of a gate, at one length or over all of them, before anything is known."""
        return Verdict(
            name=gate.name if length is None else gate.verdict_name(length), kind=gate.kind, length=length,
            measured=None, interval=None, confidence=None, required=self.measured.scope.threshold_of(gate), samples=0,
            of=0, verdict="not measured", blocking=gate.blocking, undecided=gate.undecided,
        )  # fmt: skip

    def compared_panels(self) -> Iterator[tuple[Panel, dict[SampleRef, float], dict[SampleRef, float]]]:
        """Yield every panel that is compared with the baseline, with the scores of both models on its samples."""
        baseline = self.measured.baseline_scores
        for panel in self.panels.values():
            if panel.comparisons:
                # Only those of the panel, so that the work per panel does not grow with the size of the run.
                own = {ref: self.scores[ref] for ref in panel.order if ref in self.scores}
                yield panel, own, {ref: baseline[ref] for ref in panel.order if ref in baseline}

    def interval_alpha(self, hypothesis_alpha: float) -> float:
        """Return the error probability of a two-sided interval that excludes the threshold if the verdict is final.

        A hypothesis test is one-sided and has its share of the run's error probability.
        """
        return max(1 - self.thresholds.verdict.confidence, 2 * hypothesis_alpha)

    def begin(self, gate: Gate, length: int) -> tuple[Verdict, list[Case]]:
        """Return the verdict of a gate before its results are read, and its cases.

        It has a reason if a case failed or a task was not selected.
        """
        scope = self.measured.scope
        selected, tasks = scope.cases_at(length), scope.tasks_of(gate)
        cases = [selected[task] for task in tasks if task in selected]
        missing = [task for task in tasks if task not in selected]
        of = sum(len(case.planned) for case in cases)
        verdict, problem = replace(self.blank(gate, length), of=of), self.problem(cases)
        if problem is not None:
            verdict = replace(verdict, verdict="error", because="error", detail=problem)
        elif missing or not cases:
            verdict = replace(verdict, because="missing tasks", detail=first_task(missing))
        return verdict, cases

    def finding(self, gate: Gate, length: int) -> Verdict:
        """Return the result of a gate at one length."""
        measured = self.measured
        verdict, cases = self.begin(gate, length)
        results = [measured.results[case.id] for case in cases if case.id in measured.results]
        if verdict.because != "error" and measured.scope.signal == "likelihood":
            return replace(self.blank(gate, length), because="no answers")
        if verdict.because is None:
            return self._measured_finding(gate, verdict, length, results)
        return replace(verdict, samples=sum(len(result.outcomes) for result in results))

    def analysis(self, panel: Panel, hypothesis: Hypothesis) -> InterimAnalysis:
        key = (panel.family, panel.length), hypothesis
        if key not in self._analyses:
            self._analyses[key] = panel.analyze(hypothesis, self.scores)
        return self._analyses[key]

    def problem(self, cases: Iterable[Case]) -> str | None:
        """Return why a gate on these cases is an error: one that failed, or else one that never came back."""
        lost = None
        for case in cases:
            result = self.measured.results.get(case.id)
            if result is not None and result.error is not None:
                return f"{case.id}: {result.error}"
            lost = lost or (f"{case.id}: no result came back" if result is None else None)
        return lost

    def _measured_finding(self, gate: Gate, verdict: Verdict, length: int, results: Sequence[CaseResult]) -> Verdict:
        scope = self.measured.scope
        panel = self.panels[gate_family(gate, scope.task_families), length]
        hypothesis = hypothesis_of(gate, scope, length, panel)
        analysis = self.analysis(panel, hypothesis)
        samples, of = analysis.samples, analysis.planned_samples
        verdict = replace(verdict, verdict="undecided", because="too few samples", samples=samples, of=of)
        means = [result.score for result in results if result.score is not None]
        if samples == 0 or len(means) < len(results):
            without = len(results) - len(means) or len(results)
            return replace(verdict, detail=f"{without} of {len(results)}")
        mean, alpha = math.fsum(means) / len(means), self.interval_alpha(hypothesis.alpha)
        if gate.is_estimate:
            alpha = ESTIMATE_ALPHA
        elif gate.kind == "weighted_average":
            # The interval of the average holds if those of all lengths do.
            alpha = (1 - self.thresholds.verdict.confidence) / len(scope.lengths) / scope.series
        queue = panel.queue(hypothesis.case_ids)
        values = queue.weighted_means(self.scores, analysis.clusters)
        planned = stratified_interval(values, queue.strata, alpha=alpha)
        of_model = level_interval(queue.case_strata(values), alpha=alpha)
        if analysis.decision is not None:
            verdict = replace(verdict, verdict=analysis.decision.verdict, because=None)
        elif hypothesis.confirmation is not None and analysis.of_model is not None and samples == of:
            # All planned samples are known and fail, which is not shown for the model.
            verdict = replace(verdict, because="not shown")
        return replace(
            verdict,
            measured=to_points(mean),
            interval=_in_points(planned, mean, queue.scale),
            model_interval=_in_points(of_model, mean),
            confidence=1 - alpha,
            haystacks=queue.unit_count(len(values)),
            haystack_correlation=correlation(queue.values_by_case(values)),
            of_model=analysis.of_model,
        )

    def _joined(self, gate: Gate, findings: Mapping[int, Verdict]) -> Verdict:
        """Return the verdict on all lengths, which has a reason if one of them leaves the gate without a result."""
        blank, all_findings = self.blank(gate, None), tuple(findings.values())
        samples = sum(finding.samples for finding in all_findings)
        joined = replace(blank, samples=samples, of=sum(finding.of for finding in all_findings))
        unmeasured = [finding for finding in all_findings if finding.verdict in ("error", "not measured")]
        if gate.kind == "effective_length":
            settled = settled_scores(findings)
            required = float(self.measured.scope.required_length(gate))
            joined = replace(
                joined, required=required, threshold=blank.required, by_length=all_findings,
                measured=effective_length(settled, HALF) if settled else None,
            )  # fmt: skip
        else:
            unmeasured += [finding for finding in all_findings if finding.measured is None]
        # An error comes before a length that was not measured.
        first = min(unmeasured, key=lambda finding: finding.verdict, default=joined)
        return replace(joined, verdict=first.verdict, because=first.because, detail=first.detail)

    def _average_verdict(self, gate: Gate, findings: Mapping[int, Verdict], joined: Verdict) -> Verdict:
        required, is_complete = joined.required, joined.samples == joined.of
        scores: dict[int, float] = {}
        planned, of_model = dict[int, Interval | None](), dict[int, Interval | None]()
        for length, finding in findings.items():
            planned[length], of_model[length] = finding.interval, finding.model_interval
            if finding.measured is not None:
                scores[length] = finding.measured
        value = weighted_average(scores, rising=gate.rising)
        low, high = _average_interval(planned, gate)
        model_low, model_high = _average_interval(of_model, gate)
        word: VerdictWord = "undecided"
        if is_complete:
            word = "pass" if value > required + to_points(TIE_TOLERANCE) else "fail"
        elif low > required or high <= required:
            word = "pass" if low > required else "fail"
        because: Reason | None = "too few samples" if word == "undecided" else None
        if word == "fail" and model_high > required and fails_only_below(self.thresholds, self.measured.scope):
            word, because = "undecided", "not shown"
        confidence = self.thresholds.verdict.confidence
        return replace(
            joined, verdict=word, because=because, measured=value, interval=(low, high),
            model_interval=(model_low, model_high), confidence=confidence,
        )  # fmt: skip


def first_task(names: Sequence[str]) -> str:
    """Return the first task and the number of the others, as in "vt and 2 more tasks"."""
    rest = len(names) - 1
    if rest < 1:
        return names[0] if names else "all tasks"
    return f"{names[0]} and {rest} more task{'s' if rest > 1 else ''}"


def blocks(verdict: Verdict, *, narrowed: bool) -> bool:
    """Return True if the verdict fails the run.

    A run that -k or -m narrowed is expected to leave gates unmeasured. In a whole run such a gate asks for lengths that
    --lengths leaves out, and a pass would claim more than was measured. The thresholds of later runs hold for the first
    one too, which has no baseline.
    """
    if verdict.because == "no baseline":
        return False
    if verdict.verdict == "undecided":
        return verdict.blocking and (verdict.undecided or _default_of(verdict)) == "fail"
    failing = ("fail", "error") if narrowed else ("fail", "error", "not measured")
    return verdict.blocking and verdict.verdict in failing


def _default_of(verdict: Verdict) -> UndecidedEffect:
    """Return the effect of an undecided verdict whose gate says nothing about it.

    What is not shown for the model fails nothing, nor does a comparison that lacks time. A baseline that is too short
    compares nothing.
    """
    if verdict.because == "not shown":
        return "pass"
    return "pass" if verdict.kind in COMPARED_KINDS and verdict.because not in SHORT else "fail"


def _in_points(bounds: Interval, mean: float, scale: float = 1.0) -> Interval:
    """Return the bounds of a panel's mean, in points, from those of its weighted clusters times their scale.

    They contain the mean of the cases' means, which is not quite that of the weighted clusters.
    """
    low, high = bounds
    lowest, highest = min(1.0, scale * low, mean), max(min(1.0, scale * high), mean)
    return to_points(lowest), to_points(highest)


def _average_interval(intervals: Mapping[int, Interval | None], gate: Gate) -> Interval:
    """Return the interval of a weighted average over lengths, from one interval for each."""
    lows: dict[int, float] = {}
    highs: dict[int, float] = {}
    for length, bounds in intervals.items():
        if bounds is not None:
            lows[length], highs[length] = bounds
    return weighted_average(lows, rising=gate.rising), weighted_average(highs, rising=gate.rising)


def effective_length_verdict(findings: Mapping[int, Verdict], joined: Verdict) -> Verdict:
    """Compare the effective length with the required one, given the verdicts at each length.

    The verdict is final as soon as those of the required and longer lengths are. A length does not count as reached
    behind a shorter one at which the model is shown to be below the threshold.
    """
    long_enough = {length: finding for length, finding in findings.items() if length >= joined.required}
    if not long_enough:
        return replace(joined, verdict="not measured", because="missing length")
    reached = [length for length, finding in long_enough.items() if finding.verdict == "pass"]
    if reached:
        shorter = [finding for length, finding in findings.items() if length < min(reached)]
        is_below = any(finding.is_below for finding in shorter)
        return replace(joined, verdict="fail" if is_below else "pass")
    if all(finding.verdict == "fail" for finding in long_enough.values()):
        return replace(joined, verdict="fail")
    is_settled = all(finding.is_settled for finding in long_enough.values())
    return replace(joined, verdict="undecided", because="not shown" if is_settled else "too few samples")


def settled_scores(findings: Mapping[int, Verdict]) -> dict[int, float] | None:
    """Return 100 points for each length that passes and 0 for each that does not; None if any verdict is open.

    A mean that is too low counts as no pass, whether that is shown for the model or not.
    """
    if not findings or not all(finding.is_settled for finding in findings.values()):
        return None
    return {length: 100.0 if finding.verdict == "pass" else 0.0 for length, finding in findings.items()}
