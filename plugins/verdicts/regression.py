"""The comparison with a baseline: one verdict per panel on paired samples.

A loss fails a run if it is shown for the model: at one of a few looks at the pairs of the panel, the last of which sees
all of them, or at a look at the pairs of all panels together. Else the comparison is undecided: the samples have lost
too much, as those of an unchanged model sometimes do. Where they seldom do, the loss is suspected, and more samples may
show it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from longctx.fixtures.lengths import format_length
from longctx.fixtures.records import PairedChange, Reason, Verdict, VerdictWord
from longctx.plugins.evidence.clusters import ClusteredQueue, SampleRef
from longctx.plugins.evidence.e_process import Floats
from longctx.plugins.evidence.haystacks import HaystackCorrelation, correlation, difference_interval
from longctx.plugins.evidence.points import to_points
from longctx.plugins.evidence.power import detectable_panel_loss
from longctx.plugins.evidence.sequential import (
    ErrorShares,
    InterimAnalysis,
    NonInferiority,
    Scores,
    look_clusters,
    look_error,
    pooled_p_value,
)
from longctx.plugins.evidence.statistics import paired_interval
from longctx.plugins.verdicts.diagnoses import flips
from longctx.plugins.verdicts.evaluate import GateEvaluator
from longctx.plugins.verdicts.hypotheses import RULER
from longctx.plugins.verdicts.panels import Panel

# A loss that is not shown is suspected if a run of an unchanged model has one as large with at most this probability,
# which the test on each panel and the test on all panels together share (Bonferroni), as they share that of failures.
SUSPECTED_P_VALUE = 0.2

ComparedPanel = tuple[Panel, Mapping[SampleRef, float], Mapping[SampleRef, float]]
"""A panel with the scores of the model and of the baseline on its samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """The measured change against the baseline on one panel, in points."""

    difference: float

    interval: tuple[float, float]
    """The confidence interval of the difference on the planned samples."""

    model_interval: tuple[float, float]
    """The confidence interval of the difference of the models."""

    correlation: HaystackCorrelation | None
    """The correlation between differences on the same haystack."""

    haystacks: int

    worse: int

    better: int


def comparison_name(family: str, length: int) -> str:
    """Return the name of the verdict on the comparison of a family at one length."""
    return f"regression{'' if family == RULER else f' of {family}'} at {format_length(length)}"


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
    """A panel with the test of its pairs."""

    panel: Panel
    analysis: InterimAnalysis
    queue: ClusteredQueue
    differences: Floats
    """Of the first clusters of the queue, up to one that lacks a score."""

    def needed(self, share: float) -> int:
        """Return the number of clusters that a look at this share of all pairs needs."""
        return look_clusters(self.queue, share)

    def first(self, share: float) -> tuple[NonInferiority, ClusteredQueue, Floats]:
        """Return the hypothesis, the queue and the differences for such a look."""
        assert self.panel.non_inferiority is not None
        return self.panel.non_inferiority, self.queue, self.differences[: self.needed(share)]


def compare_panels(compared: Sequence[ComparedPanel], final_baseline: Scores | None = None) -> list[PanelDecision]:
    """Decide on all panels of a run. A loss that one panel leaves in doubt is tested on all of them together."""
    pairs = []
    for panel, scores, baseline in compared:
        analysis = panel.analyze_pairs(scores, baseline, final_baseline=final_baseline)
        queue, differences = panel.differences(scores, baseline)
        pairs.append(PanelPairs(panel=panel, analysis=analysis, queue=queue, differences=differences))
    return decide_together(pairs)


def shared_looks(compared: Sequence[PanelPairs]) -> list[float]:
    """Return the looks, as shares of all pairs, at which a loss of one panel is tested on all of them together."""
    return sorted({share for pairs in compared for share in pairs.analysis.doubts}) if len(compared) > 1 else []


def decide_together(compared: Sequence[PanelPairs]) -> list[PanelDecision]:
    """Decide on all panels of a run, given the test of each."""
    shown: dict[int, tuple[float, float]] = {}
    of_all: float | None = None
    for share in shared_looks(compared):
        if not all(len(pairs.differences) >= pairs.needed(share) for pairs in compared):
            continue
        p_value = pooled_p_value(pairs.first(share) for pairs in compared)
        of_all = p_value if share == 1 else None
        for place, pairs in enumerate(compared):
            shares = _confirmation(pairs.panel)
            if p_value is None or shares is None or share not in pairs.analysis.doubts:
                continue
            if p_value <= look_error(shares.pooled or 0.0, share):
                shown.setdefault(place, (share, p_value))
    return [
        _comparison(pairs.panel, pairs.analysis, shown.get(place), of_all, panels=len(compared))
        for place, pairs in enumerate(compared)
    ]


def _confirmation(panel: Panel) -> ErrorShares | None:
    return None if panel.non_inferiority is None else panel.non_inferiority.confirmation


def _comparison(
    panel: Panel, analysis: InterimAnalysis, shown: tuple[float, float] | None, pooled: float | None, *, panels: int
) -> PanelDecision:
    """Return the decision on a panel.

    `shown` is the look at all panels together that shows its loss, with its p-value; `pooled` that of all their pairs.
    """
    decision, p_value = None if analysis.decision is None else analysis.decision.verdict, analysis.p_value
    if _confirmation(panel) is None:
        return PanelDecision(analysis=analysis, decision=decision, p_value=None)
    if shown is not None:
        look, p_value = shown
        return PanelDecision(analysis=analysis, decision="fail", p_value=p_value, look=look)
    if decision is not None:
        return PanelDecision(analysis=analysis, decision=decision, p_value=p_value if decision == "fail" else None)
    if p_value is None or analysis.samples < analysis.planned_samples:
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
    """Return one verdict per panel; none without a baseline."""
    scope = evaluator.measured.scope
    if not scope.has_baseline:
        return ()
    if scope.is_same_checkpoint:
        return tuple(_same_checkpoint(evaluator, *key) for key in evaluator.panels)
    compared = list(evaluator.compared_panels())
    comparisons = compare_panels(compared, evaluator.measured.final_baseline)
    return tuple(
        _verdict(evaluator, *scored, decision, len(compared))
        for scored, decision in zip(compared, comparisons, strict=True)
    )


def _same_checkpoint(evaluator: GateEvaluator, family: str, length: int) -> Verdict:
    """Return the verdict on a checkpoint that is its own baseline, of which nothing is measured for it."""
    settings = evaluator.thresholds.regression
    return Verdict(
        name=comparison_name(family, length),
        kind="regression",
        length=length,
        measured=None,
        interval=None,
        confidence=None,
        required=-settings.drop,
        samples=0,
        of=sum(len(case.planned) for case in evaluator.panels[family, length].cases.values()),
        verdict="pass",
        blocking=settings.blocking,
        because="same checkpoint",
    )


def _verdict(
    evaluator: GateEvaluator,
    panel: Panel,
    scores: Mapping[SampleRef, float],
    baseline: Mapping[SampleRef, float],
    decision: PanelDecision,
    panels: int,
) -> Verdict:
    test, analysis = panel.non_inferiority, decision.analysis
    assert test is not None
    # The interval excludes the loss that a pass rules out, or that a failure shows.
    alpha = evaluator.interval_alpha((test.pass_alpha or test.alpha) if decision.decision == "pass" else test.alpha)
    word, because, detail = _obstacle(evaluator, panel, analysis)
    settings = evaluator.thresholds.regression
    change = None
    if word is None:
        change = _measured_change(panel, scores, baseline, analysis, alpha)
        word = decision.decision or "undecided"
        if word == "undecided":
            because = _why_undecided(evaluator, panel, decision)
    detectable = detectable_panel_loss(test, panel.queue(panel.cases), analysis.clusters)
    return Verdict(
        name=comparison_name(panel.family, panel.length),
        kind="regression",
        length=panel.length,
        measured=change.difference if change else None,
        interval=change.interval if change else None,
        model_interval=change.model_interval if change else None,
        haystacks=change.haystacks if change else 0,
        haystack_correlation=change.correlation if change else None,
        confidence=1 - alpha if change else None,
        required=-settings.drop,
        samples=analysis.samples,
        of=analysis.planned_samples,
        verdict=word,
        blocking=settings.blocking,
        undecided=settings.undecided,
        because=because,
        detail=detail,
        change=None
        if change is None
        else PairedChange(
            worse=change.worse,
            better=change.better,
            pairs=analysis.clusters,
            limit=to_points(test.limit),
            comparisons=panels,
        ),
        detectable=None if detectable is None else to_points(detectable),
        p_value=decision.p_value if change else None,
        suspected=decision.is_suspected and because == "not shown",
    )


def _why_undecided(evaluator: GateEvaluator, panel: Panel, decision: PanelDecision) -> Reason:
    """Return the reason of an undecided comparison: the results of a finished baseline may end before the queue."""
    known, analysis = evaluator.measured.final_baseline, decision.analysis
    if known is not None:
        queue = panel.queue(panel.cases)
        pairs = len(queue.weighted_means(known))
        if pairs < len(queue.clusters) and analysis.clusters == pairs:
            return "short baseline"
    return "not shown" if decision.is_not_shown else "too few samples"


def _obstacle(
    evaluator: GateEvaluator, panel: Panel, analysis: InterimAnalysis
) -> tuple[VerdictWord | None, Reason | None, str]:
    """Return the verdict, its reason and the error if nothing can be compared; three empty values if something can.

    A case whose samples cannot be built is in no queue, but a mean without it would not be the panel's.
    """
    scope = evaluator.measured.scope
    cases = [case for case in scope.cases_at(panel.length).values() if case.family == panel.family]
    results = [evaluator.measured.results.get(case.id) for case in cases]
    for result in results:
        if result is not None and result.error is not None:
            return "error", "error", f"{result.case.id}: {result.error}"
    if None in results:
        return "error", "error", "a case came back without a result"
    if analysis.samples:
        return None, None, ""
    if scope.baseline_is_final:
        return "not measured", "no common samples", ""
    return "undecided", "too few samples", ""


def _measured_change(
    panel: Panel,
    scores: Mapping[SampleRef, float],
    baseline: Mapping[SampleRef, float],
    analysis: InterimAnalysis,
    alpha: float,
) -> _Change:
    assert panel.non_inferiority is not None
    queue = panel.queue(panel.cases)
    paired = {ref: scores[ref] - baseline[ref] for ref in scores.keys() & baseline}
    differences = queue.weighted_means(paired, analysis.clusters)
    worse, better = flips(differences)
    planned = paired_interval(differences, alpha=alpha, population=len(queue.clusters), strata=queue.drawn_strata)
    low, high = difference_interval(queue.case_strata(differences), alpha=alpha)
    return _Change(
        difference=to_points(queue.mean_difference(differences)),
        interval=_in_points(queue, planned),
        model_interval=(to_points(low), to_points(high)),
        correlation=correlation(queue.values_by_case(differences)),
        haystacks=queue.haystacks.count(len(differences)),
        worse=worse,
        better=better,
    )


def _in_points(queue: ClusteredQueue, bounds: tuple[float, float]) -> tuple[float, float]:
    low, high = (to_points(max(-1.0, min(1.0, queue.scale * bound))) for bound in bounds)
    return low, high
