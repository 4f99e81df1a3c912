"""The diagnosis of every case of a run: its test against its floor, and its test against the baseline.

A case is tested against its floor on its planned samples, which is exact however alike they are. Against the baseline
the claim is about the model, so a haystack has one vote: is the model worse or better on it? A case is worse if more
haystacks are worse than better. The false discovery rate is held over all cases with e-BH.

A case on whose samples both models score the same has no vote, often because both are at 0 or both at 100. Its e-value
is 1 for certain, so it cannot be reported, and it does not count among the tests. That leaves the others' tests valid:
where the models differ does not depend on which of them is better. A model that falls from 100 differs, so its case
has votes and counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fixtures.records import CaseResult
from plugins.gates.e_process import Floats
from plugins.gates.evaluate import GateEvaluator
from plugins.gates.haystacks import (
    Correlation,
    Haystacks,
    Ints,
    correlation,
    model_interval,
    model_paired_interval,
    votes,
)
from plugins.gates.points import from_points, to_points
from plugins.gates.power import detectable_case_loss
from plugins.gates.statistics import e_bh, log_evidence_below, log_evidence_of_drop
from plugins.gates.thresholds import Thresholds


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The tests of one case against its floor and against the baseline. Scores and differences are in points."""

    score: float | None

    interval: tuple[float, float] | None
    """The confidence interval around the score of the model, not only of the planned samples."""

    haystacks: int
    """The number of haystacks on which samples were measured."""

    correlation: Correlation | None
    """The correlation between scores on the same haystack; None if there are too few of them."""

    floor: float | None
    """The lowest acceptable score; None if the thresholds file sets none for the task."""

    below: bool
    """True if the case is shown to be below its floor, at the false discovery rate that holds over all cases."""

    difference: float | None
    """The mean of model - baseline over all pairs; None without pairs."""

    difference_interval: tuple[float, float] | None
    """The confidence interval around the difference of the models, not only of the planned samples."""

    flips: tuple[int, int]
    """The number of clusters that became worse and the number that became better."""

    votes: tuple[int, int]
    """The number of haystacks that became worse and the number that became better."""

    no_vote: str | None
    """The reason why no haystack has a vote, such as "both at 100"; None if one has, and without pairs."""

    pairs: int
    """The number of clusters that were compared."""

    dropped: bool
    """True if the case is shown to be worse than the baseline, at the same false discovery rate."""

    detectable: float | None = None
    """The smallest one-way loss of this case alone that its pairs detect; None if they show no loss."""

    @property
    def bad(self) -> bool:
        return self.below or self.dropped


def case_blocks(diagnosis: Diagnosis, thresholds: Thresholds) -> bool:
    """Return True if the case fails the run: a floor always does, a loss against the baseline if `cases` says so."""
    return diagnosis.below or (diagnosis.dropped and thresholds.regression.cases == "fail")


def diagnoses(evaluator: GateEvaluator) -> dict[str, Diagnosis]:
    """Return the diagnosis of every case that has a score, keyed by case id."""
    floors = evaluator.thresholds.floors
    scored = {case_id: result for case_id, result in evaluator.measured.results.items() if result.score is not None}
    below = _discoveries(
        {
            case_id: _log_evidence_below(result, floors[result.case.task])
            for case_id, result in scored.items()
            if result.case.task in floors
        },
        evaluator.thresholds.regression.false_discoveries,
    )
    cast = {case_id: votes(np.array(result.differences), _haystacks(result)) for case_id, result in scored.items()}
    dropped = worse_cases(cast, evaluator.thresholds.regression.false_discoveries)
    alpha = 1 - evaluator.thresholds.verdict.confidence
    compared = sum(bool(result.differences) for result in scored.values())
    return {
        case_id: _diagnosis(
            result,
            floors.get(result.case.task),
            votes=flips(cast[case_id]),
            alpha=alpha,
            below=case_id in below,
            dropped=case_id in dropped,
            detectable=_detectable(result, compared, evaluator.thresholds.regression.false_discoveries),
        )
        for case_id, result in scored.items()
    }


def flips(differences: Floats) -> tuple[int, int]:
    """Return how many differences are below zero and how many above."""
    return int((differences < 0).sum()), int((differences > 0).sum())


def worse_cases(votes_by_case: Mapping[str, Floats], false_discoveries: float) -> set[str]:
    """Return the cases that are shown to be worse by the votes of their haystacks. Cases without votes are no tests."""
    return _discoveries(
        {case_id: log_evidence_of_drop(cast) for case_id, cast in votes_by_case.items() if cast.size},
        false_discoveries,
    )


def _discoveries(log_evidence: Mapping[str, float], false_discoveries: float) -> set[str]:
    """Return the cases whose null hypothesis is rejected at this false discovery rate."""
    rejected = e_bh(list(log_evidence.values()), false_discoveries)
    return {case_id for case_id, is_rejected in zip(log_evidence, rejected, strict=True) if is_rejected}


def _log_evidence_below(result: CaseResult, floor: float) -> float:
    clusters = result.case.samples // result.case.group
    return log_evidence_below(np.array(result.evidence), from_points(floor), population=clusters)


def _haystacks(result: CaseResult) -> Haystacks:
    """Return the haystacks of the clusters of a result."""
    case, own = result.case, _haystack_numbers(result)
    planned = [case.haystack(index) for index in range(0, case.samples - case.group + 1, case.group)]
    return Haystacks(of_cluster=own, sizes=np.bincount(planned, minlength=own.max(initial=0) + 1))


def _haystack_numbers(result: CaseResult) -> Ints:
    first = result.outcomes[:: result.case.group]
    return np.array([result.case.haystack(outcome.index) for outcome in first], dtype=np.intp)


def _diagnosis(
    result: CaseResult,
    floor: float | None,
    *,
    votes: tuple[int, int],
    alpha: float,
    below: bool,
    dropped: bool,
    detectable: float | None,
) -> Diagnosis:
    assert result.score is not None
    haystacks, evidence = _haystacks(result), np.array(result.evidence)
    low, high = model_interval(evidence, haystacks, alpha=alpha)
    differences = np.array(result.differences)
    pairs = len(differences)
    bounds = model_paired_interval(differences, haystacks, alpha=alpha) if pairs else None
    return Diagnosis(
        score=to_points(result.score),
        interval=(to_points(low), to_points(high)),
        haystacks=haystacks.count(len(evidence)),
        correlation=correlation([(evidence, haystacks.of_cluster[: len(evidence)])]),
        floor=floor,
        below=below,
        difference=to_points(math.fsum(differences) / pairs) if pairs else None,
        difference_interval=bounds and (to_points(bounds[0]), to_points(bounds[1])),
        flips=flips(differences),
        votes=votes,
        no_vote=_no_vote(evidence, differences),
        pairs=pairs,
        dropped=dropped,
        detectable=detectable,
    )


def _detectable(result: CaseResult, compared: int, false_discoveries: float) -> float | None:
    """Return the smallest loss of a case, in points, that its haystacks detect; None without pairs.

    The lost samples are assumed to stand on as few haystacks as possible, which then have the fewest votes.
    """
    pairs = _haystacks(result).count(len(result.differences))
    loss = detectable_case_loss(pairs, cases=compared, false_discoveries=false_discoveries) if pairs else None
    return None if loss is None else to_points(loss)


def _no_vote(evidence: Floats, differences: Floats) -> str | None:
    """Return the reason why no sample tells the models apart; None if one does, and without pairs."""
    if not differences.size or differences.any():
        return None
    levels = set(evidence[: differences.size].tolist())
    return {frozenset({0.0}): "both at 0", frozenset({1.0}): "both at 100"}.get(
        frozenset(levels), "same score on every sample"
    )
