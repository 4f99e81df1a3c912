"""The diagnosis of every case of a run: its test against its floor, and its test against the baseline.

A case is tested against its floor on its planned samples, which is exact however alike they are. Against the baseline
the claim is about the model. All differences on a haystack are added up, and the sums are tested by the exact sign-flip
test and by a t-test that allows for skewness, or a bound where there are few; the larger p-value counts. So a small
loss on most haystacks that a large gain on the others outweighs is none. Benjamini and Hochberg's procedure (1995)
holds the false discovery rate over all cases.

A case on whose samples both models score the same is no test, often because both are at 0 or both at 100. That leaves
the others' tests valid: where the models differ does not depend on which of them is better.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from longctx.fixtures.records import CaseResult
from longctx.fixtures.records.report import CaseComparison, ReportEndings
from longctx.fixtures.records.report_parts import Interval
from longctx.plugins.evidence.e_process import Floats, LevelBets, Strata
from longctx.plugins.evidence.haystacks import (
    HaystackCorrelation,
    Ints,
    correlation,
    difference_interval,
    level_interval,
)
from longctx.plugins.evidence.points import from_points, to_points
from longctx.plugins.evidence.sign_flips import loss_p_value
from longctx.plugins.evidence.statistics import benjamini_hochberg
from longctx.plugins.thresholds.records import Thresholds
from longctx.plugins.verdicts.evaluate import GateEvaluator
from longctx.plugins.verdicts.hypotheses import shared_error


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The tests of one case against its floor and against the baseline. Scores and differences are in points."""

    score: float | None
    interval: Interval | None
    """The confidence interval around the score of the model, not only of the planned samples."""
    haystacks: int
    """The number of haystacks on which samples were measured."""
    correlation: HaystackCorrelation | None
    """The correlation between scores on the same haystack; None if there are too few of them."""
    floor: float | None
    """The lowest acceptable score; None if the thresholds file sets none for the task."""
    below: bool
    """True if the case is shown to be below its floor, at the false discovery rate that holds over all cases."""
    comparison: CaseComparison
    """The test against the baseline; without pairs where there is none."""

    @property
    def bad(self) -> bool:
        return self.below or self.comparison.dropped


def compare_endings(evaluator: GateEvaluator) -> ReportEndings | None:
    """Return the comparison over all cases, tested as scores are; None if no pair of answers is known."""
    thresholds = evaluator.thresholds
    error, blocks = 1 - thresholds.verdict.confidence, thresholds.regression.endings == "fail"
    if blocks:
        error = shared_error(thresholds, evaluator.measured.scope)
    lost: dict[tuple[str, int], list[int]] = {}
    pairs = []
    for result in evaluator.measured.results.values():
        case = result.case
        for outcome, other in zip(result.outcomes, result.baseline_endings, strict=False):
            own = outcome.generation.has_ended
            if own is not None and other is not None:
                pairs.append((own, other))
                unit = "" if case.texts else case.task, case.haystack(outcome.index)
                lost.setdefault(unit, []).append(own - other)
    if not pairs:
        return None
    sums = np.array(list(map(sum, lost.values())), dtype=np.float64)
    p_value = loss_p_value(sums, np.array(list(map(len, lost.values())), dtype=np.float64))
    return ReportEndings(
        pairs=len(pairs),
        model=sum(own for own, _ in pairs),
        baseline=sum(other for _, other in pairs),
        p_value=p_value,
        lost=p_value <= error,
        fails=blocks and p_value <= error,
    )


def case_blocks(diagnosis: Diagnosis, thresholds: Thresholds) -> bool:
    """Return True if the case fails the run: a floor always does, a loss against the baseline if `cases` says so."""
    return diagnosis.below or (diagnosis.comparison.dropped and thresholds.regression.cases == "fail")


def diagnoses(evaluator: GateEvaluator) -> dict[str, Diagnosis]:
    """Return the diagnosis of every case that has a score, keyed by case id."""
    thresholds = evaluator.thresholds
    rate, alpha = thresholds.regression.false_discoveries, 1 - thresholds.verdict.confidence
    scored = {case_id: result for case_id, result in evaluator.measured.results.items() if result.score is not None}
    below, dropped = {}, {}
    for case_id, result in scored.items():
        floor, differences = thresholds.floors.get(result.case.task), np.array(result.differences)
        if floor is not None:
            below[case_id] = _p_value_below(result, floor)
        if differences.any():
            dropped[case_id] = loss_p_value(*_sums(differences, _haystacks(result)))
    all_below, all_dropped = _discoveries(below, rate), _discoveries(dropped, rate)
    by_case = {}
    for case_id, result in scored.items():
        floor = thresholds.floors.get(result.case.task)
        is_below, has_dropped = case_id in all_below, case_id in all_dropped
        by_case[case_id] = _diagnosis(result, floor, alpha=alpha, below=is_below, dropped=has_dropped)
    return by_case


def _p_value_below(result: CaseResult, floor: float) -> float:
    """Return 1 / evidence that a case is below its floor."""
    case, scores = result.case, np.array(result.evidence)
    if not scores.size:
        return 1.0
    bets = LevelBets(scores, Strata.single(case.samples // case.group))
    _, against_above = bets.log_evidence(0.0, from_points(floor))
    return math.exp(-against_above[-1])


def flips(differences: Floats) -> tuple[int, int]:
    return int((differences < 0).sum()), int((differences > 0).sum())


def _discoveries(p_values: Mapping[str, float], false_discoveries: float) -> set[str]:
    rejected = benjamini_hochberg(list(p_values.values()), false_discoveries)
    return {case_id for case_id, is_rejected in zip(p_values, rejected, strict=True) if is_rejected}


def _haystacks(result: CaseResult) -> Ints:
    case = result.case
    return np.array([case.haystack(outcome.index) for outcome in result.outcomes[:: case.group]], dtype=np.intp)


def _sums(differences: Floats, own: Ints) -> tuple[Floats, Floats]:
    """Return the sum of the differences on every haystack, and their number."""
    _, numbers = np.unique(own[: differences.size], return_inverse=True)
    sums = np.bincount(numbers, weights=differences).astype(np.float64)
    return sums, np.bincount(numbers).astype(np.float64)


def _diagnosis(result: CaseResult, floor: float | None, *, alpha: float, below: bool, dropped: bool) -> Diagnosis:
    assert result.score is not None
    evidence, differences, own = np.array(result.evidence), np.array(result.differences), _haystacks(result)
    values, pairs = (evidence, own[: evidence.size]), differences.size
    low, high = level_interval([[values]], alpha=alpha)
    bounds = difference_interval([[(differences, own[:pairs])]], alpha=alpha) if pairs else None
    worse, better = flips(differences)
    haystacks_worse, haystacks_better = flips(_sums(differences, own)[0])
    no_vote = None
    if pairs and not differences.any():
        levels = frozenset(evidence[:pairs].tolist())
        same = {frozenset({0.0}): "both at 0", frozenset({1.0}): "both at 100"}
        no_vote = same.get(levels, "same score on every sample")
    return Diagnosis(
        score=to_points(result.score),
        interval=(to_points(low), to_points(high)),
        haystacks=len(np.unique(values[1])),
        correlation=correlation([values]),
        floor=floor,
        below=below,
        comparison=CaseComparison(
            difference=to_points(math.fsum(differences) / pairs) if pairs else None,
            interval=bounds and (to_points(bounds[0]), to_points(bounds[1])),
            worse=worse,
            better=better,
            haystacks_worse=haystacks_worse,
            haystacks_better=haystacks_better,
            no_vote=no_vote,
            pairs=pairs,
            dropped=dropped,
        ),
    )
