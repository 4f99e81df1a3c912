"""Apply the gates of a thresholds file to the case results of a run.

A gate needs the cases that were selected, not those that happened to be measured. A selected case that failed or never
came back makes it an error; one that was not selected leaves it "not measured". No mean is taken over the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fixtures.lengths import format_length
from fixtures.records import Case, CaseResult, Likelihood, Verdict, VerdictWord
from plugins.gates.clusters import ESTIMATE_ALPHA, ClusteredQueue, SampleRef
from plugins.gates.e_process import TIE_TOLERANCE
from plugins.gates.effective_length import effective_length, weighted_average
from plugins.gates.findings import (
    HALF,
    Finding,
    comparison,
    effective_length_finding,
    extent,
    first_unmeasured,
    settled_scores,
    with_counts,
)
from plugins.gates.haystacks import correlation, correlation_pair, model_interval
from plugins.gates.hypotheses import (
    PanelKey,
    Scope,
    build_panels,
    gate_family,
    hypothesis_of,
    is_estimate,
    lengths_of,
    required_length,
    tasks_of,
    threshold_of,
    verdict_name,
)
from plugins.gates.panels import Panel
from plugins.gates.points import to_points
from plugins.gates.sequential import Hypothesis, InterimAnalysis
from plugins.gates.statistics import stratified_interval
from plugins.gates.thresholds import Gate, Thresholds


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The selected cases of a run and their results."""

    scope: Scope

    results: Mapping[str, CaseResult]
    """The results by case id; a case without one never came back."""

    control_variate: Mapping[SampleRef, float] | None = None
    """The scores, 0 to 1, of a baseline that is not run again; None without one."""

    likelihoods: Mapping[SampleRef, Likelihood] = field(default_factory=dict)
    """The likelihoods of gold answers that were measured."""

    baseline_likelihoods: Mapping[SampleRef, Likelihood] = field(default_factory=dict)

    unfinished: frozenset[str] = frozenset()
    """The ids of the cases whose tests an interruption ended; their results are those so far."""

    @property
    def failed(self) -> frozenset[str]:
        """The ids of the cases that ended with an error."""
        return frozenset(case_id for case_id, result in self.results.items() if result.error is not None)


class GateEvaluator:
    """The gates of one run, applied to its case results."""

    def __init__(self, thresholds: Thresholds, measured: Measured):
        self.thresholds = thresholds
        self.measured = measured
        self.panels = build_panels(thresholds, measured.scope)
        self.scores = sample_scores(self.panels, measured.results)
        # Several gates, and their evidence curves, rest on the same hypothesis.
        self._analyses: dict[tuple[PanelKey, Hypothesis], InterimAnalysis] = {}

    def verdicts(self) -> tuple[Verdict, ...]:
        """Return the verdicts on scores in the order of the thresholds file, one per length for some kinds."""
        gates = [gate for gate in self.thresholds.gates if gate.kind not in ("likelihood", "worst_phase")]
        return tuple(verdict for gate in gates for verdict in self._verdicts(gate))

    def finding(self, gate: Gate, length: int) -> Finding:
        """Return the result of a gate at one length."""
        scope = self.measured.scope
        tasks = tasks_of(gate, scope)
        cases = {task: case for task, case in scope.cases_at(length).items() if task in tasks}
        results = [self.measured.results[case.id] for case in cases.values() if case.id in self.measured.results]
        problem = self.problem(list(cases.values()), results)
        missing = [task for task in tasks if task not in cases]
        if problem is None and scope.signal == "likelihood":
            return Finding(word="not measured", reason="--signal likelihood generates no answers")
        if problem is None and cases and not missing:
            return self._measured_finding(gate, length, results)
        return Finding(
            word="error" if problem else "not measured",
            reason=problem or f"partial: {_first_of(missing)} not run at {format_length(length).upper()}",
            samples=sum(len(result.outcomes) for result in results),
            of=sum(len(case.planned) for case in cases.values()),
        )

    def analysis(self, panel: Panel, hypothesis: Hypothesis) -> InterimAnalysis:
        """Return the test of a hypothesis on the panel's scores."""
        key = (panel.family, panel.length), hypothesis
        if key not in self._analyses:
            control_variate = self.measured.control_variate
            self._analyses[key] = panel.analyze(hypothesis, self.scores, control_variate=control_variate)
        return self._analyses[key]

    def problem(self, cases: Sequence[Case], results: Sequence[CaseResult]) -> str | None:
        """Return why the gate is an error: a case that failed or one that never came back."""
        failed = next((f"{result.case.id}: {result.error}" for result in results if result.error is not None), None)
        lost = next((f"{case.id}: no result came back" for case in cases if case.id not in self.measured.results), None)
        return failed or lost

    def _measured_finding(self, gate: Gate, length: int, results: Sequence[CaseResult]) -> Finding:
        scope = self.measured.scope
        panel = self.panels[gate_family(gate, scope.task_families), length]
        hypothesis = hypothesis_of(gate, scope, length, panel)
        analysis = self.analysis(panel, hypothesis)
        samples, of = analysis.samples, analysis.planned_samples
        means = [result.score for result in results]
        if samples == 0 or any(mean is None for mean in means):
            reason = f"cases without a sample: {sum(mean is None for mean in means) or len(means)} of {len(means)}"
            return Finding(word="inconclusive", reason=reason, samples=samples, of=of)
        mean = math.fsum(mean for mean in means if mean is not None) / len(means)
        alpha = self._alpha(gate, hypothesis)
        queue = panel.queue(hypothesis.case_ids)
        values = queue.weighted_means(self.scores, analysis.clusters)
        planned = stratified_interval(values, queue.strata, alpha=alpha)
        uniform = panel.uniform_queue(hypothesis.case_ids)
        of_model = values if uniform is queue else uniform.weighted_means(self.scores)
        word: VerdictWord = analysis.decision.verdict if analysis.decision else "inconclusive"
        score = to_points(mean)
        required = None if is_estimate(gate) else threshold_of(gate, scope)
        text = f"{score:.1f}" if required is None else comparison(score, word, required, length)
        return Finding(
            word=word,
            reason=text + extent(samples, of),
            score=score,
            interval=_in_points(queue, planned, mean),
            model_interval=_in_points(queue, model_interval(of_model, uniform.haystacks, alpha=alpha), mean),
            confidence=1 - alpha,
            haystacks=queue.haystacks.count(len(values)),
            correlation=correlation(queue.values_by_case(values)),
            samples=samples,
            of=of,
        )

    def _alpha(self, gate: Gate, hypothesis: Hypothesis) -> float:
        """Return the error probability of the gate's interval at one length."""
        alpha = 1 - self.thresholds.verdict.confidence
        if is_estimate(gate):
            return ESTIMATE_ALPHA
        if gate.kind == "weighted_average":
            # The interval of the average holds if those of all lengths do.
            return alpha / len(self.measured.scope.lengths)
        return interval_alpha(alpha, hypothesis.alpha)

    def _verdicts(self, gate: Gate) -> list[Verdict]:
        if gate.kind in ("level", "category"):
            untested = [length for length in gate.lengths if length not in self.measured.scope.lengths]
            lengths = sorted([*lengths_of(gate, self.measured.scope), *untested])
            return [self._level_verdict(gate, length) for length in lengths]
        if gate.kind == "effective_length":
            return [self._effective_length_verdict(gate)]
        return [self._average_verdict(gate)]

    def _level_verdict(self, gate: Gate, length: int) -> Verdict:
        finding, required = self.finding(gate, length), threshold_of(gate, self.measured.scope)
        name = verdict_name(gate, length)
        return gate_verdict(gate, finding, name=name, length=length, measured=finding.score, required=required)

    def _effective_length_verdict(self, gate: Gate) -> Verdict:
        scope = self.measured.scope
        findings = {length: self.finding(gate, length) for length in scope.lengths}
        words = {length: finding.word for length, finding in findings.items()}
        required = required_length(gate, scope)
        means = {length: finding.score for length, finding in findings.items()}
        reaches = effective_length_finding(words, required, threshold_of(gate, scope), means)
        settled = settled_scores(words)
        return gate_verdict(
            gate,
            with_counts(first_unmeasured(findings) or reaches, findings),
            measured=None if settled is None else effective_length(settled, HALF),
            required=float(required),
        )

    def _average_verdict(self, gate: Gate) -> Verdict:
        findings = {length: self.finding(gate, length) for length in self.measured.scope.lengths}
        required = threshold_of(gate, self.measured.scope)
        without_score = next((finding for finding in findings.values() if finding.score is None), None)
        unmeasured = first_unmeasured(findings) or without_score
        if unmeasured is not None:
            return gate_verdict(gate, with_counts(unmeasured, findings), measured=None, required=required)
        scores = {length: finding.score for length, finding in findings.items() if finding.score is not None}
        value = weighted_average(scores, rising=gate.rising)
        low, high = _average_interval({length: finding.interval for length, finding in findings.items()}, gate)
        of_model = _average_interval({length: finding.model_interval for length, finding in findings.items()}, gate)
        word: VerdictWord = "pass" if low > required else "fail" if high <= required else "inconclusive"
        if all(finding.samples == finding.of for finding in findings.values()):
            word = "pass" if value > required + to_points(TIE_TOLERANCE) else "fail"
        finding = Finding(
            word=word,
            reason=comparison(value, word, required),
            interval=(low, high),
            model_interval=of_model,
            confidence=self.thresholds.verdict.confidence,
        )
        return gate_verdict(gate, with_counts(finding, findings), measured=value, required=required)


def blocks(verdict: Verdict, thresholds: Thresholds, *, narrowed: bool) -> bool:
    """Return True if the verdict fails the run.

    A run that -k or -m narrowed is expected to leave gates unmeasured. In a whole run such a gate asks for lengths that
    --lengths leaves out, and a pass would claim more than was measured.
    """
    if verdict.verdict == "underpowered":
        return verdict.blocking and thresholds.regression.underpowered != "report"
    if verdict.verdict == "inconclusive":
        rules = thresholds.regression if verdict.kind == "regression" else thresholds.verdict
        return verdict.blocking and rules.inconclusive == "fail"
    failing = ("fail", "error") if narrowed else ("fail", "error", "not measured")
    return verdict.blocking and verdict.verdict in failing


def interval_alpha(alpha: float, hypothesis_alpha: float) -> float:
    """Return the error probability of a two-sided interval that excludes the threshold if the verdict is final.

    A hypothesis test is one-sided and has its share of the run's error probability.
    """
    return max(alpha, 2 * hypothesis_alpha)


def sample_scores(panels: Mapping[PanelKey, Panel], results: Mapping[str, CaseResult]) -> dict[SampleRef, float]:
    """Return the scores, 0 to 1, of all samples in the results of the panels' cases."""
    return {
        SampleRef(result.case.id, outcome.index): outcome.score.value
        for result in results.values()
        if (result.case.family, result.case.length) in panels
        for outcome in result.outcomes
    }


def _in_points(queue: ClusteredQueue, bounds: tuple[float, float], mean: float) -> tuple[float, float]:
    """Return the bounds of a panel's mean, in points, from those of its weighted clusters.

    They contain the mean of the cases' means, which is not quite that of the weighted clusters.
    """
    low, high = (min(1.0, queue.scale * bound) for bound in bounds)
    return to_points(min(low, mean)), to_points(max(high, mean))


def gate_verdict(
    gate: Gate, finding: Finding, *, measured: float | None, required: float, name: str = "", length: int | None = None
) -> Verdict:
    """Return the verdict of a gate with this finding."""
    return Verdict(
        name=name or gate.name,
        kind=gate.kind,
        length=length,
        measured=measured,
        interval=finding.interval,
        model_interval=finding.model_interval,
        haystacks=finding.haystacks,
        haystack_correlation=correlation_pair(finding.correlation),
        confidence=finding.confidence if finding.interval else None,
        required=required,
        samples=finding.samples,
        of=finding.of,
        verdict=finding.word,
        blocking=gate.blocking,
        reason=finding.reason,
    )


def _average_interval(intervals: Mapping[int, tuple[float, float] | None], gate: Gate) -> tuple[float, float]:
    """Return the interval of a weighted average over lengths, from one interval for each."""
    ends = [{length: ends[end] for length, ends in intervals.items() if ends} for end in (0, 1)]
    low, high = (weighted_average(end, rising=gate.rising) for end in ends)
    return low, high


def _first_of(tasks: Sequence[str]) -> str:
    more = f" and {len(tasks) - 1} more task{'s' if len(tasks) > 2 else ''}" if len(tasks) > 1 else ""
    return f"{tasks[0]}{more}"
