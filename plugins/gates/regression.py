"""The comparison with a baseline: one verdict per panel on paired samples, and a diagnosis of every case."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fixtures.lengths import format_length
from fixtures.records import CaseResult, Verdict, VerdictWord
from plugins.gates.clusters import SampleRef
from plugins.gates.e_process import Floats
from plugins.gates.evaluate import GateEvaluator, interval_alpha
from plugins.gates.hypotheses import RULER
from plugins.gates.panels import Panel
from plugins.gates.points import from_points, to_points
from plugins.gates.power import detectable_case_loss, detectable_panel_loss
from plugins.gates.sequential import InterimAnalysis
from plugins.gates.statistics import e_bh, interval, log_evidence_below, log_evidence_of_drop, paired_interval
from plugins.gates.thresholds import Thresholds

KIND = "regression"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The tests of one case against its floor and against the baseline. Scores and differences are in points."""

    score: float | None

    interval: tuple[float, float] | None
    """The confidence interval around the score of the model, not only of the planned samples."""

    floor: float | None
    """The lowest acceptable score; None if the thresholds file sets none for the task."""

    below: bool
    """True if the case is shown to be below its floor, at the false discovery rate that holds over all cases."""

    difference: float | None
    """The mean of model - baseline over all pairs; None without pairs."""

    difference_interval: tuple[float, float] | None

    flips: tuple[int, int]
    """The number of clusters that became worse and the number that became better."""

    pairs: int
    """The number of clusters that were compared."""

    dropped: bool
    """True if the case is shown to be worse than the baseline, at the same false discovery rate."""

    detectable: float | None = None
    """The smallest one-way loss of this case alone that its pairs detect; None if they show no loss."""

    @property
    def bad(self) -> bool:
        return self.below or self.dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The measured change against the baseline on one panel, in points."""

    difference: float
    interval: tuple[float, float]
    worse: int
    better: int


def case_blocks(diagnosis: Diagnosis, thresholds: Thresholds) -> bool:
    """Return True if the case fails the run: a floor always does, a loss against the baseline if `cases` says so."""
    return diagnosis.below or (diagnosis.dropped and thresholds.regression.cases == "fail")


def comparison_name(family: str, length: int) -> str:
    """Return the name of the verdict on the comparison of a family at one length."""
    return f"regression{'' if family == RULER else f' of {family}'} at {format_length(length)}"


def regression_verdicts(evaluator: GateEvaluator) -> tuple[Verdict, ...]:
    """Return one verdict per panel; none without a baseline."""
    if not evaluator.measured.scope.has_baseline:
        return ()
    baseline = baseline_scores(evaluator.measured.results)
    return tuple(_verdict(evaluator, panel, scores_of_panel(panel, baseline)) for panel in evaluator.panels.values())


def diagnoses(evaluator: GateEvaluator) -> dict[str, Diagnosis]:
    """Return the diagnosis of every case that has a score, keyed by case id."""
    floors, results = evaluator.thresholds.floors, evaluator.measured.results
    scored = {case_id: result for case_id, result in results.items() if result.score is not None}
    below = _discoveries(scored, evaluator, lambda result: _log_evidence_below(result, floors.get(result.case.task)))
    dropped = _discoveries(scored, evaluator, _log_evidence_of_drop)
    alpha = 1 - evaluator.thresholds.verdict.confidence
    compared = sum(bool(result.differences) for result in scored.values())
    return {
        case_id: _diagnosis(
            result,
            floors.get(result.case.task),
            alpha=alpha,
            below=case_id in below,
            dropped=case_id in dropped,
            detectable=_detectable(result, compared, evaluator.thresholds.regression.false_discoveries),
        )
        for case_id, result in scored.items()
    }


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
        return "not measured", "the baseline's journal has no result on these samples"
    return "inconclusive", "no sample has a result of both"


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
    population = len(queue.clusters) if panel.non_inferiority.finite_population else None
    bounds = paired_interval(differences, alpha=alpha, population=population)
    low, high = (to_points(max(-1.0, min(1.0, queue.scale * bound))) for bound in bounds)
    worse, better = _flips(differences)
    return Comparison(
        difference=to_points(queue.scale * math.fsum(differences) / len(differences)),
        interval=(low, high),
        worse=worse,
        better=better,
    )


def _flips(differences: Floats) -> tuple[int, int]:
    """Return how many differences are below zero and how many above."""
    return int((differences < 0).sum()), int((differences > 0).sum())


def _reason(evaluator: GateEvaluator, comparison: Comparison, word: VerdictWord, *, pairs: int) -> str:
    low, high = comparison.interval
    settings = evaluator.thresholds.regression
    if word == "pass":
        conclusion = f"no loss of {settings.drop:g}"
    elif word == "fail":
        limit = f"half of {settings.drop:g}" if settings.clear is None else f"{settings.clear:g}"
        conclusion = f"a loss of more than {limit}"
    elif word == "underpowered":
        conclusion = f"the baseline has too few results to show or rule out a loss of {settings.drop:g}"
    else:
        conclusion = f"neither shown nor ruled out: {settings.drop:g}"
    flips = f"{comparison.worse} worse, {comparison.better} better of {pairs} pairs"
    return f"{comparison.difference:+.1f} [{low:+.1f}, {high:+.1f}]: {conclusion} points ({flips})"


def _discoveries(
    results: Mapping[str, CaseResult],
    evaluator: GateEvaluator,
    log_evidence: Callable[[CaseResult], float | None],
) -> set[str]:
    """Return the cases whose null hypothesis is rejected at the false discovery rate of the thresholds file.

    Cases without evidence (None) do not count among the tests.
    """
    tested = {case_id: value for case_id, result in results.items() if (value := log_evidence(result)) is not None}
    rejected = e_bh(list(tested.values()), evaluator.thresholds.regression.false_discoveries)
    return {case_id for case_id, is_rejected in zip(tested, rejected, strict=True) if is_rejected}


def _log_evidence_below(result: CaseResult, floor: float | None) -> float | None:
    if floor is None:
        return None
    clusters = result.case.samples // result.case.group
    return log_evidence_below(np.array(result.evidence), from_points(floor), population=clusters)


def _log_evidence_of_drop(result: CaseResult) -> float | None:
    return log_evidence_of_drop(np.array(result.differences)) if result.differences else None


def _detectable(result: CaseResult, compared: int, false_discoveries: float) -> float | None:
    """Return the smallest loss of a case, in points, that its pairs detect; None without pairs."""
    pairs = len(result.differences)
    loss = detectable_case_loss(pairs, cases=compared, false_discoveries=false_discoveries) if pairs else None
    return None if loss is None else to_points(loss)


def _diagnosis(
    result: CaseResult,
    floor: float | None,
    *,
    alpha: float,
    below: bool,
    dropped: bool,
    detectable: float | None,
) -> Diagnosis:
    assert result.score is not None
    low, high = interval(np.array(result.evidence), alpha=alpha)
    differences = np.array(result.differences)
    pairs = len(differences)
    bounds = paired_interval(differences, alpha=alpha) if pairs else None
    return Diagnosis(
        score=to_points(result.score),
        interval=(to_points(low), to_points(high)),
        floor=floor,
        below=below,
        difference=to_points(math.fsum(differences) / pairs) if pairs else None,
        difference_interval=bounds and (to_points(bounds[0]), to_points(bounds[1])),
        flips=_flips(differences),
        pairs=pairs,
        dropped=dropped,
        detectable=detectable,
    )
