"""The comparison with a baseline: one verdict per panel on paired samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fixtures.lengths import format_length
from fixtures.records import CaseResult, Verdict, VerdictWord
from plugins.gates.clusters import ClusteredQueue, SampleRef
from plugins.gates.diagnoses import flips
from plugins.gates.evaluate import GateEvaluator, interval_alpha
from plugins.gates.haystacks import Correlation, correlation, correlation_pair, model_paired_interval
from plugins.gates.hypotheses import RULER
from plugins.gates.panels import Panel
from plugins.gates.points import to_points
from plugins.gates.power import detectable_panel_loss
from plugins.gates.sequential import InterimAnalysis
from plugins.gates.statistics import paired_interval
from plugins.gates.thresholds import RegressionSettings

KIND = "regression"
# Points by which the sum of differences may be off.
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The measured change against the baseline on one panel, in points."""

    difference: float

    interval: tuple[float, float]
    """The confidence interval of the difference on the planned samples."""

    model_interval: tuple[float, float]
    """The confidence interval of the difference of the models."""

    correlation: Correlation | None
    """The correlation between differences on the same haystack."""

    haystacks: int

    worse: int

    better: int


def comparison_name(family: str, length: int) -> str:
    """Return the name of the verdict on the comparison of a family at one length."""
    return f"regression{'' if family == RULER else f' of {family}'} at {format_length(length)}"


def regression_verdicts(evaluator: GateEvaluator) -> tuple[Verdict, ...]:
    """Return one verdict per panel; none without a baseline."""
    if not evaluator.measured.scope.has_baseline:
        return ()
    baseline = baseline_scores(evaluator.measured.results)
    return tuple(_verdict(evaluator, panel, scores_of_panel(panel, baseline)) for panel in compared_panels(evaluator))


def compared_panels(evaluator: GateEvaluator) -> tuple[Panel, ...]:
    """Return the panels that are compared with the baseline."""
    return tuple(panel for panel in evaluator.panels.values() if panel.non_inferiority is not None)


def baseline_scores(results: Mapping[str, CaseResult]) -> dict[SampleRef, float]:
    """Return the baseline's score of every sample that was compared."""
    return {
        SampleRef(result.case.id, outcome.index): score
        for result in results.values()
        for outcome, score in zip(result.outcomes, result.baseline, strict=False)
    }


def scores_of_panel(panel: Panel, scores: Mapping[SampleRef, float]) -> dict[SampleRef, float]:
    """Return the scores of a panel's samples, so that the work per panel does not grow with the size of the run."""
    return {ref: scores[ref] for ref in panel.order if ref in scores}


def _verdict(evaluator: GateEvaluator, panel: Panel, baseline: Mapping[SampleRef, float]) -> Verdict:
    assert panel.non_inferiority is not None
    scores = scores_of_panel(panel, evaluator.scores)
    analysis = panel.analyze_pairs(scores, baseline)
    alpha = interval_alpha(1 - evaluator.thresholds.verdict.confidence, panel.non_inferiority.alpha)
    word, reason = _obstacle(evaluator, panel, analysis)
    comparison = None
    if word is None:
        comparison = _comparison(panel, scores, baseline, analysis, alpha)
        word = analysis.decision.verdict if analysis.decision else _open_verdict(evaluator, panel, analysis)
        reason = _reason(evaluator, comparison, word, pairs=analysis.clusters)
    detectable = detectable_panel_loss(panel.non_inferiority, panel.queue(panel.cases), analysis.clusters)
    settings = evaluator.thresholds.regression
    return Verdict(
        name=comparison_name(panel.family, panel.length),
        kind=KIND,
        length=panel.length,
        measured=comparison.difference if comparison else None,
        interval=comparison.interval if comparison else None,
        model_interval=comparison.model_interval if comparison else None,
        haystacks=comparison.haystacks if comparison else 0,
        haystack_correlation=correlation_pair(comparison.correlation if comparison else None),
        confidence=1 - alpha if comparison else None,
        required=-settings.drop,
        samples=analysis.samples,
        of=analysis.planned_samples,
        verdict=word,
        blocking=settings.blocking,
        reason=reason,
        detectable=None if detectable is None else to_points(detectable),
    )


def _open_verdict(evaluator: GateEvaluator, panel: Panel, analysis: InterimAnalysis) -> VerdictWord:
    """Return "underpowered" if the results of a finished baseline end before those that are planned."""
    known = evaluator.measured.control_variate
    if known is None:
        return "inconclusive"
    queue = panel.queue(panel.cases)
    pairs = len(queue.weighted_means(known))
    return "underpowered" if pairs < len(queue.clusters) and analysis.clusters == pairs else "inconclusive"


def _obstacle(evaluator: GateEvaluator, panel: Panel, analysis: InterimAnalysis) -> tuple[VerdictWord | None, str]:
    """Return the verdict and the reason if nothing can be compared; None if something can.

    A case whose samples cannot be built is in no queue, but a mean without it would not be the panel's.
    """
    scope = evaluator.measured.scope
    cases = [case for case in scope.cases_at(panel.length).values() if case.family == panel.family]
    results = [evaluator.measured.results.get(case.id) for case in cases]
    for result in results:
        if result is not None and result.error is not None:
            return "error", f"{result.case.id}: {result.error}"
    if None in results:
        return "error", "a case came back without a result"
    if analysis.samples:
        return None, ""
    if scope.baseline_is_final:
        return "not measured", "too few samples to compare: the baseline's journal has none of these samples"
    return "inconclusive", "too few samples to compare: none has an answer of both models"


def _comparison(
    panel: Panel,
    scores: Mapping[SampleRef, float],
    baseline: Mapping[SampleRef, float],
    analysis: InterimAnalysis,
    alpha: float,
) -> Comparison:
    assert panel.non_inferiority is not None
    queue = panel.queue(panel.cases)
    paired = {ref: scores[ref] - baseline[ref] for ref in scores.keys() & baseline}
    differences = queue.weighted_means(paired, analysis.clusters)
    worse, better = flips(differences)
    return Comparison(
        difference=to_points(queue.scale * math.fsum(differences) / len(differences)),
        interval=_in_points(queue, paired_interval(differences, alpha=alpha, population=len(queue.clusters))),
        model_interval=_in_points(queue, model_paired_interval(differences, queue.haystacks, alpha=alpha)),
        correlation=correlation(queue.values_by_case(differences)),
        haystacks=queue.haystacks.count(len(differences)),
        worse=worse,
        better=better,
    )


def _in_points(queue: ClusteredQueue, bounds: tuple[float, float]) -> tuple[float, float]:
    low, high = (to_points(max(-1.0, min(1.0, queue.scale * bound))) for bound in bounds)
    return low, high


def _reason(evaluator: GateEvaluator, comparison: Comparison, word: VerdictWord, *, pairs: int) -> str:
    settings = evaluator.thresholds.regression
    too_few = "the baseline has too few samples to compare: " if word == "underpowered" else ""
    undecided = "undecided, " if word == "inconclusive" else ""
    change = f"{_change(settings, comparison, word)}; {_allowed(settings, comparison, word)}"
    flips = f"{comparison.worse} worse, {comparison.better} better of {pairs} pairs"
    return f"{too_few}{undecided}{change} ({flips})"


def _change(settings: RegressionSettings, comparison: Comparison, word: VerdictWord) -> str:
    """Return the loss or the gain, with the bound that the verdict rests on."""
    low, high = comparison.interval if settings.population else comparison.model_interval
    points = round(comparison.difference, 1)
    change = f"gained {points:.1f} points" if points > 0 else f"lost {_loss(points):.1f} points"
    if word == "fail":
        return f"{change} (at least {_loss(high):.1f})"
    if word == "pass" and points > 0:
        return f"{change} ({f'at least {low:.1f}' if low >= 0 else f'lost at most {-low:.1f}'})"
    if word == "pass":
        return f"{change} (at most {_loss(low):.1f})"
    return f"{change} ({'lost ' if points > 0 else ''}between {_loss(high):.1f} and {_loss(low):.1f})"


def _allowed(settings: RegressionSettings, comparison: Comparison, word: VerdictWord) -> str:
    """Return the loss that is allowed, with the limit that failed the gate if the loss does not exceed `drop`."""
    low, high = comparison.interval
    if word != "fail" or _loss(comparison.difference) > settings.drop:
        return f"{settings.drop:g} allowed"
    limit = (settings.drop + settings.clear_points) / 2
    if settings.population and low == high and _loss(comparison.difference) >= limit - ROUNDING:
        return f"less than {limit:g} allowed where all pairs are known"
    return f"{settings.drop:g} allowed, and a failure shows more than {settings.clear_points:g}"


def _loss(difference: float) -> float:
    """Return the loss of a difference in points, without a negative zero."""
    return -difference + 0.0
