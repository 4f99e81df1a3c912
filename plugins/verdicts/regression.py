"""The comparison with a baseline: one verdict per panel on paired samples.

A loss fails a run if it is shown for the model: at one of a few looks at the pairs of the panel, the last of which sees
all of them, or at a look at the pairs of all panels together. Else the comparison is undecided: the samples have lost
too much, as those of an unchanged model sometimes do. Where they seldom do, the loss is suspected, and more samples may
show it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from longctx.fixtures.lengths import format_length
from longctx.fixtures.records import Case, PairedChange, Reason, Verdict, VerdictWord
from longctx.fixtures.records.report_parts import Interval, MeanEstimate
from longctx.plugins.evidence.clusters import ClusteredQueue, SampleRef
from longctx.plugins.evidence.e_process import TIE_TOLERANCE, Floats
from longctx.plugins.evidence.haystacks import correlation, difference_interval, level_interval
from longctx.plugins.evidence.points import to_points
from longctx.plugins.evidence.sequential import (
    ErrorShares,
    Hypothesis,
    InterimAnalysis,
    NonInferiority,
    Pairs,
    Scores,
    detectable_panel_loss,
    look_clusters,
    pooled_p_value,
)
from longctx.plugins.evidence.statistics import interval, paired_interval
from longctx.plugins.thresholds.records import COMPARED_KINDS, Gate
from longctx.plugins.verdicts.diagnoses import flips
from longctx.plugins.verdicts.evaluate import GateEvaluator, first_task
from longctx.plugins.verdicts.hypotheses import RULER, gate_family
from longctx.plugins.verdicts.panels import Comparison, Panel

# A loss that is not shown is suspected if a run of an unchanged model has one as large with at most this probability,
# which the test on each panel and the test on all panels together share (Bonferroni), as they share that of failures.
SUSPECTED_P_VALUE = 0.2

ComparedPanel = tuple[Panel, Mapping[SampleRef, float], Mapping[SampleRef, float]]
"""A panel with the scores of the model and of the baseline on its samples."""


def comparison_name(family: str, length: int, kind: str = "regression") -> str:
    """Return the name of the verdict on the comparison of a family at one length."""
    place = f" at {format_length(length)}" if length else ""
    return f"{kind}{'' if family == RULER else f' of {family}'}{place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelDecision:
    """The decision on one panel of a run, given all of them."""

    analysis: InterimAnalysis
    decision: Literal["pass", "fail"] | None
    """None if it is undecided."""
    p_value: float | None
    """The probability that an unchanged model loses as much; None if the samples have not lost too much."""
    look: float | None = None
    """The look, as a share of all pairs, at which all panels together have shown the loss; None without one."""
    is_not_shown: bool = False
    """True if all samples have lost too much, and the loss is not shown for the model."""
    is_suspected: bool = False
    """True if the loss is not shown, and few runs of an unchanged model have one as large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelPairs:
    """One comparison of a panel, with the test of its pairs."""

    panel: Panel
    comparison: Comparison
    analysis: InterimAnalysis
    pairs: Pairs

    def needed(self, share: float) -> int:
        """Return the number of clusters that a look at this share of all pairs needs."""
        return look_clusters(self.pairs.queue, share)

    def first(self, share: float) -> tuple[NonInferiority, Pairs]:
        """Return the hypothesis on the loss and the pairs of such a look."""
        assert isinstance(self.comparison.hypothesis, NonInferiority)
        return self.comparison.hypothesis, self.pairs.first(self.needed(share))

    @property
    def confirmation(self) -> ErrorShares | None:
        """The error that each test of a failure may use; None if a loss on the planned samples is a failure."""
        return self.comparison.hypothesis.confirmation


def paired_panels(compared: Sequence[ComparedPanel], final_baseline: Scores | None = None) -> list[PanelPairs]:
    """Return all comparisons of a run's panels, each with the test of its pairs."""
    return [
        PanelPairs(
            panel=panel,
            comparison=comparison,
            analysis=panel.analyze_pairs(comparison, scores, baseline, final_baseline=final_baseline),
            pairs=panel.pairs(comparison, scores, baseline),
        )
        for panel, scores, baseline in compared
        for comparison in panel.comparisons
    ]


def by_gate(compared: Sequence[PanelPairs]) -> list[list[PanelPairs]]:
    """Return the comparisons of each gate, whose losses are tested together."""
    gates: dict[str, list[PanelPairs]] = {}
    for item in compared:
        gates.setdefault(item.comparison.gate, []).append(item)
    return list(gates.values())


def shared_looks(compared: Sequence[PanelPairs]) -> list[float]:
    """Return the looks, as shares of all pairs, at which a loss of one panel is tested on all of them together."""
    return sorted({share for pairs in compared for share in pairs.analysis.doubts}) if len(compared) > 1 else []


def decide_together(compared: Sequence[PanelPairs]) -> list[PanelDecision]:
    """Decide on all panels of one gate, given the test of each."""
    shown: dict[int, tuple[float, float]] = {}
    of_all: float | None = None
    for share in shared_looks(compared):
        if not all(len(item.pairs) >= item.needed(share) for item in compared):
            continue
        p_value = pooled_p_value(item.first(share) for item in compared)
        of_all = p_value if share == 1 else None
        for place, item in enumerate(compared):
            shares = item.confirmation
            if p_value is None or shares is None or shares.pooled is None or share not in item.analysis.doubts:
                continue
            if p_value <= shares.pooled.at(share):
                shown.setdefault(place, (share, p_value))
    return [_decision(item, shown.get(place), of_all, panels=len(compared)) for place, item in enumerate(compared)]


def _decision(
    item: PanelPairs, shown: tuple[float, float] | None, pooled: float | None, *, panels: int
) -> PanelDecision:
    """Return the decision on a panel.

    `shown` is the look at all panels together that shows its loss, with its p-value; `pooled` that of all their pairs.
    """
    analysis = item.analysis
    decision, p_value = None if analysis.decision is None else analysis.decision.verdict, analysis.p_value
    is_complete = analysis.samples == analysis.planned_samples
    if isinstance(item.comparison.hypothesis, Hypothesis):
        is_not_shown = decision is None and is_complete
        return PanelDecision(analysis=analysis, decision=decision, p_value=None, is_not_shown=is_not_shown)
    if item.confirmation is None:
        return PanelDecision(analysis=analysis, decision=decision, p_value=None)
    if shown is not None:
        look, p_value = shown
        return PanelDecision(analysis=analysis, decision="fail", p_value=p_value, look=look)
    if decision is not None:
        return PanelDecision(analysis=analysis, decision=decision, p_value=p_value if decision == "fail" else None)
    if p_value is None or not is_complete:
        return PanelDecision(analysis=analysis, decision=None, p_value=p_value)
    of_run = 2 * min(panels * p_value, 1.0 if pooled is None else pooled)
    return PanelDecision(
        analysis=analysis,
        decision=None,
        p_value=p_value,
        is_not_shown=True,
        is_suspected=of_run <= SUSPECTED_P_VALUE,
    )


def regression_verdicts(evaluator: GateEvaluator) -> tuple[Verdict, ...]:
    """Return one verdict per panel, and one per length of each gate on a regression; only these without a baseline."""
    scope, thresholds = evaluator.measured.scope, evaluator.thresholds
    decided = {}
    for group in by_gate(paired_panels(list(evaluator.compared_panels()), evaluator.measured.final_baseline)):
        for item, decision in zip(group, decide_together(group), strict=True):
            decided[item.comparison.gate, item.panel.family, item.panel.length] = item, decision, len(group)
    verdicts = []
    for gate in thresholds.own_comparisons if scope.has_baseline else ():
        for family, length in evaluator.panels:
            cases = [case for case in scope.cases_at(length).values() if case.family == family]
            name = comparison_name(family, length, gate.kind)
            verdicts.append(_verdict(evaluator, gate, name, length, cases, decided.get((gate.name, family, length))))
    for gate in thresholds.gates:
        if gate.kind in COMPARED_KINDS:
            family, tasks = gate_family(gate, scope.task_families), scope.tasks_of(gate)
            for length in scope.verdict_lengths(gate):
                selected = scope.cases_at(length)
                cases = [selected[task] for task in tasks if task in selected]
                known = decided.get((gate.name, family, length))
                verdict = _verdict(evaluator, gate, gate.verdict_name(length), length, cases, known)
                if missing := [task for task in tasks if task not in selected]:
                    detail = first_task(missing)
                    verdict = replace(verdict, verdict="not measured", because="missing tasks", detail=detail)
                verdicts.append(verdict)
    return tuple(verdicts)


def _verdict(
    evaluator: GateEvaluator,
    gate: Gate,
    name: str,
    length: int,
    cases: Sequence[Case],
    decided: tuple[PanelPairs, PanelDecision, int] | None,
) -> Verdict:
    """Return the verdict of a gate at one length, given its decision and the number of panels that share its error."""
    word, because, detail = _obstacle(evaluator, cases, decided)
    verdict = replace(
        evaluator.blank(gate, length),
        name=name,
        required=-(gate.drop or 0.0) if gate.changed is None else gate.changed,
        of=sum(len(case.planned) for case in cases if case.id not in evaluator.measured.scope.misfits),
        verdict=word or "undecided",
        because=because,
        detail=detail,
    )
    return verdict if decided is None else _compared(evaluator, verdict, decided, is_open=word is None)


def _compared(
    evaluator: GateEvaluator, verdict: Verdict, decided: tuple[PanelPairs, PanelDecision, int], *, is_open: bool
) -> Verdict:
    """Return the verdict with what its pairs show; one that is not open keeps its word."""
    item, decision, panels = decided
    test, analysis = item.comparison.hypothesis, item.analysis
    pairs = item.pairs.first(analysis.clusters)
    verdict = replace(verdict, samples=analysis.samples, of=analysis.planned_samples)
    pass_alpha, limit = test.alpha, 0.0
    if isinstance(test, NonInferiority):
        pass_alpha, limit = test.pass_alpha or test.alpha, to_points(test.limit(pairs.baseline_mean))
        detectable = detectable_panel_loss(test, pairs.queue, analysis.clusters)
        verdict = replace(
            verdict,
            required=-to_points(test.allowed(pairs.baseline_mean)),
            detectable=None if detectable is None else to_points(detectable),
        )
    if not is_open:
        return verdict
    because = _why_undecided(evaluator, item, decision) if decision.decision is None else None
    # The interval excludes the loss that a pass rules out, or that a failure shows.
    alpha = evaluator.interval_alpha(pass_alpha if decision.decision == "pass" else test.alpha)
    estimate = _mean_loss(pairs, alpha) if isinstance(test, NonInferiority) else _mean_change(pairs, alpha)
    worse, better = flips(pairs.differences)
    share = _changed_share(pairs, alpha)
    return replace(
        verdict,
        measured=estimate.mean,
        interval=estimate.interval,
        model_interval=estimate.model_interval,
        haystacks=pairs.queue.haystack_count(len(pairs)),
        haystack_correlation=correlation(pairs.queue.values_by_case(pairs.differences)),
        confidence=1 - alpha,
        verdict=decision.decision or "undecided",
        because=because,
        change=PairedChange(
            worse=worse,
            better=better,
            pairs=analysis.clusters,
            limit=limit,
            comparisons=panels,
            share=share.mean,
            share_interval=share.model_interval,
        ),
        p_value=decision.p_value,
        suspected=decision.is_suspected and because == "not shown",
    )


def _why_undecided(evaluator: GateEvaluator, item: PanelPairs, decision: PanelDecision) -> Reason:
    """Return the reason of an undecided comparison: the results of a finished baseline may end before the queue."""
    known, analysis = evaluator.measured.final_baseline, decision.analysis
    if known is not None:
        queue = item.pairs.queue
        pairs = len(queue.weighted_means(known))
        if pairs < len(queue.clusters) and analysis.clusters == pairs:
            return "short baseline"
    return "not shown" if decision.is_not_shown else "too few samples"


def _obstacle(
    evaluator: GateEvaluator, cases: Sequence[Case], decided: tuple[PanelPairs, PanelDecision, int] | None
) -> tuple[VerdictWord | None, Reason | None, str]:
    """Return the verdict, its reason and the error if nothing is compared; three empty values if something is.

    A case whose samples cannot be built is in no queue, but a mean without it would not be the gate's.
    """
    scope = evaluator.measured.scope
    if not scope.has_baseline:
        return "not measured", "no baseline", ""
    if scope.is_same_checkpoint:
        return "pass", "same checkpoint", ""
    if (problem := evaluator.problem(cases)) is not None:
        return "error", "error", problem
    if decided is not None and decided[0].analysis.samples:
        return None, None, ""
    if scope.baseline_is_final:
        return "not measured", "no common samples", ""
    return "undecided", "too few samples", ""


def _mean_loss(pairs: Pairs, alpha: float) -> MeanEstimate:
    """Return the mean difference, model - baseline."""
    queue, differences = pairs.queue, pairs.differences
    planned = paired_interval(differences, queue.drawn_strata, alpha=alpha)
    return _estimate(queue, differences, planned, difference_interval(queue.case_strata(differences), alpha=alpha))


def _mean_change(pairs: Pairs, alpha: float) -> MeanEstimate:
    """Return the mean change of a score, for the better or worse."""
    queue, changes = pairs.queue, pairs.changes
    planned = interval(changes, queue.strata, alpha=alpha)
    return _estimate(queue, changes, planned, level_interval(queue.case_strata(changes), alpha=alpha))


def _changed_share(pairs: Pairs, alpha: float) -> MeanEstimate:
    """Return the share of pairs whose scores differ, as the mean over the cases."""
    weights = pairs.queue.strata.weights[pairs.queue.strata.stratum[: len(pairs)]]
    differ = np.where(np.abs(pairs.differences) > TIE_TOLERANCE, weights, 0.0)
    return _mean_change(replace(pairs, changes=differ), alpha)


def _estimate(queue: ClusteredQueue, values: Floats, planned: Interval, of_model: Interval) -> MeanEstimate:
    """Return the mean of weighted values in points; `planned` is the interval about the mean of the weighted values."""
    low, high = (to_points(max(-1.0, min(1.0, queue.scale * bound))) for bound in planned)
    model_low, model_high = map(to_points, of_model)
    mean = to_points(queue.mean_difference(values))
    return MeanEstimate(mean=mean, interval=(low, high), model_interval=(model_low, model_high))
