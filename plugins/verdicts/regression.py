"""The comparison with a baseline: one verdict per panel on paired samples.

A loss fails a run if it is shown for the model: at one of a few looks at the pairs of the panel, the last of which sees
all of them, or at a look at the pairs of all panels together. Else the comparison is undecided: the samples have lost
too much, as those of an unchanged model sometimes do. Where they seldom do, the loss is suspected, and more samples may
show it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from msgspec import structs

from longctx.fixtures.lengths import format_length
from longctx.fixtures.records import Case, PairedChange, Reason, Verdict
from longctx.fixtures.records.report_parts import MeanEstimate
from longctx.plugins.evidence.clusters import SampleRef
from longctx.plugins.evidence.e_process import TIE_TOLERANCE
from longctx.plugins.evidence.haystacks import correlation, difference_interval, level_interval
from longctx.plugins.evidence.points import to_points
from longctx.plugins.evidence.sequential import (
    Hypothesis,
    InterimAnalysis,
    NonInferiority,
    Pairs,
    Scores,
    detectable_panel_loss,
    look_clusters,
    pooled_p_value,
)
from longctx.plugins.evidence.statistics import paired_interval, stratified_interval
from longctx.plugins.thresholds.records import COMPARED_KINDS, Gate
from longctx.plugins.verdicts.diagnoses import flips
from longctx.plugins.verdicts.evaluate import GateEvaluator, first_task
from longctx.plugins.verdicts.hypotheses import RULER, PanelKey, gate_family
from longctx.plugins.verdicts.panels import Comparison, Panel

# A loss that is not shown is suspected if a run of an unchanged model has one as large with at most this probability,
# which the test on each panel and the test on all panels together share (Bonferroni), as they share that of failures.
SUSPECTED_P_VALUE = 0.2

ComparedPanel = tuple[Panel, Mapping[SampleRef, float], Mapping[SampleRef, float]]
"""A panel with the scores of the model and of the baseline on its samples."""


def comparison_name(family: str, length: int, kind: str = "regression") -> str:
    place = f" at {format_length(length)}" if length else ""
    return f"{kind}{'' if family == RULER else f' of {family}'}{place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelDecision:
    """The decision on one panel of a run, given all of them."""

    analysis: InterimAnalysis
    decision: Literal["pass", "fail"] | None
    """None if it is undecided."""
    panels: int
    """The number of panels that share its error."""
    p_value: float | None = None
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

    def pooled_error(self, share: float) -> float:
        """Return the probability of error of such a look at all panels together; 0 where there is none."""
        confirmation = self.comparison.hypothesis.confirmation
        return 0.0 if confirmation is None or confirmation.pooled is None else confirmation.pooled.at(share)

    def first(self, share: float) -> tuple[NonInferiority, Pairs]:
        """Return the hypothesis on the loss and the pairs of such a look."""
        assert isinstance(self.comparison.hypothesis, NonInferiority)
        return self.comparison.hypothesis, self.pairs.first(self.needed(share))


Decided = tuple[PanelPairs, PanelDecision]


def paired_panels(compared: Sequence[ComparedPanel], final_baseline: Scores | None = None) -> list[PanelPairs]:
    paired = []
    for panel, scores, baseline in compared:
        for comparison in panel.comparisons:
            pairs = Pairs.of(panel.paired_queue(comparison), scores, baseline)
            analysis = panel.analyze_pairs(comparison, scores, baseline, final_baseline=final_baseline)
            paired.append(PanelPairs(panel=panel, comparison=comparison, analysis=analysis, pairs=pairs))
    return paired


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
            if p_value is not None and share in item.analysis.doubts and p_value <= item.pooled_error(share):
                shown.setdefault(place, (share, p_value))
    return [_decision(item, shown.get(place), of_all, panels=len(compared)) for place, item in enumerate(compared)]


def _decision(
    item: PanelPairs, shown: tuple[float, float] | None, pooled: float | None, *, panels: int
) -> PanelDecision:
    """Return the decision on a panel.

    `shown` is the look at all panels together that shows its loss, with its p-value; `pooled` that of all their pairs.
    """
    analysis, p_value = item.analysis, item.analysis.p_value
    word = None if analysis.decision is None else analysis.decision.verdict
    decision = PanelDecision(analysis=analysis, decision=word, panels=panels)
    is_complete = analysis.samples == analysis.planned_samples
    if isinstance(item.comparison.hypothesis, Hypothesis):
        return replace(decision, is_not_shown=word is None and is_complete)
    if shown is not None:
        return replace(decision, decision="fail", look=shown[0], p_value=shown[1])
    if word == "pass":
        return decision
    if word == "fail" or p_value is None or not is_complete:
        return replace(decision, p_value=p_value)
    of_run = 2 * min(panels * p_value, 1.0 if pooled is None else pooled)
    return replace(decision, p_value=p_value, is_not_shown=True, is_suspected=of_run <= SUSPECTED_P_VALUE)


def regression_verdicts(evaluator: GateEvaluator) -> tuple[Verdict, ...]:
    """Return one verdict per panel, and one per length of each gate on a regression; only these without a baseline."""
    scope, thresholds = evaluator.measured.scope, evaluator.thresholds
    decided: dict[tuple[str, PanelKey], Decided] = {}
    compared = paired_panels(list(evaluator.compared_panels()), evaluator.measured.final_baseline)
    for group in by_gate(compared):
        for item, decision in zip(group, decide_together(group), strict=True):
            panel = item.panel
            decided[item.comparison.gate, (panel.family, panel.length)] = item, decision
    verdicts = []
    for gate in thresholds.own_comparisons if scope.has_baseline else ():
        for family, length in evaluator.panels:
            cases = [case for case in scope.cases_at(length).values() if case.family == family]
            verdict = _verdict(evaluator, gate, length, cases, decided.get((gate.name, (family, length))))
            verdicts.append(structs.replace(verdict, name=comparison_name(family, length, gate.kind)))
    for gate in thresholds.gates:
        for length in scope.verdict_lengths(gate) if gate.kind in COMPARED_KINDS else ():
            selected, tasks = scope.cases_at(length), scope.tasks_of(gate)
            cases = [selected[task] for task in tasks if task in selected]
            key = gate.name, (gate_family(gate, scope.task_families), length)
            verdict = _verdict(evaluator, gate, length, cases, decided.get(key))
            if missing := [task for task in tasks if task not in selected]:
                detail = first_task(missing)
                verdict = structs.replace(verdict, verdict="not measured", because="missing tasks", detail=detail)
            verdicts.append(verdict)
    return tuple(verdicts)


def _verdict(
    evaluator: GateEvaluator, gate: Gate, length: int, cases: Sequence[Case], decided: Decided | None
) -> Verdict:
    """Return the verdict of a gate at one length, given its decision."""
    scope = evaluator.measured.scope
    verdict = structs.replace(
        evaluator.blank(gate, length),
        required=-(gate.drop or 0.0) if gate.changed is None else gate.changed,
        of=sum(len(case.planned) for case in cases if case.id not in scope.misfits),
    )
    if decided is not None:
        verdict = _counted(verdict, decided[0])
    # A case whose samples cannot be built is in no queue, but a mean without it would not be the gate's.
    problem = evaluator.problem(cases)
    if not scope.has_baseline:
        return structs.replace(verdict, because="no baseline")
    if scope.is_same_checkpoint:
        return structs.replace(verdict, verdict="pass", because="same checkpoint")
    if problem is not None:
        return structs.replace(verdict, verdict="error", because="error", detail=problem)
    if decided is not None and verdict.samples:
        return _compared(evaluator, verdict, *decided)
    if scope.baseline_is_final:
        return structs.replace(verdict, because="no common samples")
    return structs.replace(verdict, verdict="undecided", because="too few samples")


def _counted(verdict: Verdict, item: PanelPairs) -> Verdict:
    """Return the verdict with its samples, the loss that the gate allows, and the one that so many pairs detect."""
    test, analysis = item.comparison.hypothesis, item.analysis
    verdict = structs.replace(verdict, samples=analysis.samples, of=analysis.planned_samples)
    if isinstance(test, Hypothesis):
        return verdict
    detectable = detectable_panel_loss(test, item.pairs.queue, analysis.clusters)
    return structs.replace(
        verdict,
        required=-to_points(test.allowed(item.pairs.first(analysis.clusters).baseline_mean)),
        detectable=None if detectable is None else to_points(detectable),
    )


def _compared(evaluator: GateEvaluator, verdict: Verdict, item: PanelPairs, decision: PanelDecision) -> Verdict:
    """Return the verdict with what its pairs show."""
    test, pairs = item.comparison.hypothesis, item.pairs.first(item.analysis.clusters)
    pass_alpha, limit = test.alpha, 0.0
    if isinstance(test, NonInferiority):
        pass_alpha, limit = test.pass_alpha or test.alpha, to_points(test.limit(pairs.baseline_mean))
    because = _why_undecided(evaluator, item, decision) if decision.decision is None else None
    # The interval excludes the loss that a pass rules out, or that a failure shows.
    alpha = evaluator.interval_alpha(pass_alpha if decision.decision == "pass" else test.alpha)
    estimate, queue = _estimate(test, pairs, alpha), pairs.queue
    worse, better = flips(pairs.differences)
    has_changed = np.abs(pairs.differences) > TIE_TOLERANCE
    changed = np.where(has_changed, queue.strata.largest_values[: len(pairs)], 0.0)
    share_low, share_high = level_interval(queue.case_strata(changed), alpha=alpha)
    return structs.replace(
        verdict,
        measured=estimate.mean,
        interval=estimate.interval,
        model_interval=estimate.model_interval,
        haystacks=queue.unit_count(len(pairs)),
        haystack_correlation=correlation(queue.values_by_case(pairs.differences)),
        confidence=1 - alpha,
        verdict=decision.decision or "undecided",
        because=because,
        change=PairedChange(
            worse=worse,
            better=better,
            pairs=item.analysis.clusters,
            limit=limit,
            comparisons=decision.panels,
            share=to_points(queue.mean_difference(changed)),
            share_interval=(to_points(share_low), to_points(share_high)),
        ),
        p_value=decision.p_value,
        suspected=decision.is_suspected and because == "not shown",
    )


def _why_undecided(evaluator: GateEvaluator, item: PanelPairs, decision: PanelDecision) -> Reason:
    known, analysis = evaluator.measured.final_baseline, decision.analysis
    if known is not None:
        queue = item.pairs.queue
        pairs = len(queue.weighted_means(known))
        if pairs < len(queue.clusters) and analysis.clusters == pairs:
            return "short baseline"
    return "not shown" if decision.is_not_shown else "too few samples"


def _estimate(test: NonInferiority | Hypothesis, pairs: Pairs, alpha: float) -> MeanEstimate:
    """Return the mean difference, model - baseline, in points; for a limit on changes the mean change either way."""
    queue = pairs.queue
    if isinstance(test, NonInferiority):
        values = pairs.differences
        planned = paired_interval(values, queue.drawn_strata, alpha=alpha)
        of_model = difference_interval(queue.case_strata(values), alpha=alpha)
    else:
        values = pairs.changes
        planned = stratified_interval(values, queue.strata, alpha=alpha)
        of_model = level_interval(queue.case_strata(values), alpha=alpha)
    low, high = (to_points(max(-1.0, min(1.0, queue.scale * bound))) for bound in planned)
    model_low, model_high = map(to_points, of_model)
    mean = to_points(queue.mean_difference(values))
    return MeanEstimate(mean=mean, interval=(low, high), model_interval=(model_low, model_high))
