"""Sequential tests, confidence intervals, multiple tests and rank correlation. Pure arithmetic on `e_process`.

All but the rank correlation are valid at every look. Scores are read in a random order and tested after each one, so a
test for a fixed number of samples would be wrong here. A verdict is reached when an e-process reaches 1/alpha, an
interval is made of the means that none has refuted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from longctx.fixtures.records.report_parts import Interval
from longctx.plugins.evidence.e_process import (
    PAIR_SHARES,
    SHARES,
    TIE_TOLERANCE,
    Floats,
    LevelBets,
    Strata,
    checked,
    log_evidence,
)

# Bisection steps on the unit interval: bounds are exact to a ten-thousandth of a point.
BISECTIONS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A final verdict."""

    verdict: Literal["pass", "fail"]
    stopping_time: int
    """The number of scores (or clusters) after which the verdict was reached."""


def decide_level(
    scores: ArrayLike,
    threshold: float,
    *,
    alpha: float,
    population: int,
    indifference_zone: float = 0.0,
    min_observations: int = 8,
    strata: Strata | None = None,
) -> Decision | None:
    """Decide from a prefix of the scores whether the mean of all `population` scores exceeds the threshold.

    Returns None while the verdict is open. If the mean lies outside threshold ± indifference_zone, the verdict is
    wrong with probability at most `alpha` over the random orders. There is none before `min_observations` scores.
    With all scores the mean is known: it passes if it is strictly above the threshold. Scores, threshold and zone
    run from 0 to 1.

    `strata` are those of the population, if it has several: then the evidence is the average of the test above and of
    one on the differences to the mean of each stratum so far, and the order need not be uniformly random (see
    `LevelBets`).

    Raises ValueError for values out of range, and for strata of another size.
    """
    above, below = level_evidence(
        scores,
        threshold,
        population=population,
        indifference_zone=indifference_zone,
        strata=strata,
    )
    decision = first_decision(above, below, alpha=alpha, min_observations=min_observations)
    x = checked(scores, 0.0)
    if decision is None and x.size == population:
        exceeds = math.fsum(x) > population * (threshold + TIE_TOLERANCE)
        return Decision(verdict="pass" if exceeds else "fail", stopping_time=population)
    return decision


def level_evidence(
    scores: ArrayLike,
    threshold: float,
    *,
    population: int,
    indifference_zone: float = 0.0,
    strata: Strata | None = None,
) -> tuple[Floats, Floats]:
    """Return the two log e-processes of `decide_level`, for "above" and for "not above" the threshold.

    Each has a value after every score except the last of the population, with which the mean is known. Raises
    ValueError as `decide_level` does.
    """
    if not (0 <= threshold <= 1 and 0 <= indifference_zone <= 1):
        raise ValueError(f"threshold {threshold!r} ± {indifference_zone!r}: both run from 0 to 1")
    x = checked(scores, 0.0)
    if strata is not None and strata.population != population:
        raise ValueError(f"strata of {strata.population} elements for a population of {population}: give those of all")
    if x.ndim != 1 or x.size > population:
        raise ValueError(f"{x.shape} scores for a population of {population}: give a prefix")
    early = x[: population - 1]
    low, high = threshold - indifference_zone, threshold + indifference_zone
    if strata is not None and strata.weights.size > 1 and early.size:
        above, below = LevelBets(early, strata).log_evidence(low, high)
        return above, below
    # A zone that reaches past 0 or 1 is cut off there: beyond, the null is impossible and would be refuted at once.
    above = log_evidence(early, max(0.0, low), population=population)
    below = log_evidence(1 - early, max(0.0, 1 - high), population=population)
    return above, below


def decide_paired(
    differences: ArrayLike,
    *,
    drop: float,
    alpha: float,
    population: int,
    min_observations: int = 8,
) -> Decision | None:
    """Decide from the first differences model - baseline of a population whether the model is non-inferior.

    Passes once a mean difference of -`drop` or less is refuted, fails once one of -`drop` / 2 or more is. Either is
    wrong with probability at most `alpha` over the random orders. Returns None as long as neither is refuted. The last
    difference reveals the mean; then one of -3/4 `drop` or less is a failure. Differences run from -1 to 1.

    Raises ValueError for differences outside [-1, 1], and unless 0 < drop <= 1.
    """
    if not drop:
        raise ValueError(f"drop {drop!r}: give a number above 0 and up to 1")
    x = checked(differences, -1.0)
    non_inferior, inferior = paired_evidence(x, drop=drop, population=population)
    decision = first_decision(non_inferior, inferior, alpha=alpha, min_observations=min_observations)
    if decision is None and x.size >= population:
        fails = math.fsum(x) <= -population * (0.75 * drop - TIE_TOLERANCE)
        return Decision(verdict="fail" if fails else "pass", stopping_time=population)
    return decision


def paired_evidence(
    differences: ArrayLike,
    *,
    drop: float,
    population: int,
    strata: Strata | None = None,
) -> tuple[Floats, Floats]:
    """Return the two log e-processes of `decide_paired`, for "non-inferior" and for "inferior".

    `strata` are those of the population if they were drawn at rates of their own; None for a uniformly random order.
    A difference of a stratum with weight w, from -w to w, becomes a value from 0 to w for `LevelBets`: half of it above
    -w. A stratum is first predicted to differ by 0, so that equal answers leave nothing to chance.
    """
    if not 0 <= drop <= 1:
        raise ValueError(f"drop {drop!r}: give a number from 0 to 1")
    if strata is not None:
        early = checked(differences, -1.0)[: strata.population - 1]
        values, mean = (early + strata.largest_values[: early.size]) / 2, strata.largest_mean
        if not early.size:
            return values, values
        bets = LevelBets(values, strata, shares=PAIR_SHARES)
        non_inferior, inferior = bets.log_evidence((mean - drop) / 2, (mean - drop / 2) / 2)
        return non_inferior, inferior
    x = (checked(differences, -1.0) + 1) / 2
    early = x[: population - 1]
    non_inferior = log_evidence(early, (1 - drop) / 2, population=population, shares=PAIR_SHARES)
    return non_inferior, log_evidence(1 - early, (1 + drop / 2) / 2, population=population, shares=PAIR_SHARES)


def log_evidence_below(scores: ArrayLike, floor: float, *, population: int | None) -> float:
    """Return the log e-value against "the mean is `floor` or more" after the last score; 0 without scores."""
    evidence = log_evidence(1 - checked(scores, 0.0), 1 - floor, population=population)
    return float(evidence[-1]) if evidence.size else 0.0


def interval(scores: ArrayLike, *, alpha: float, population: int | None = None, shares: Floats = SHARES) -> Interval:
    """Return bounds that contain the mean at all looks so far with probability 1 - `alpha`, alpha/2 on each side.

    They enclose the means that no look has refuted (the running intersection of a confidence sequence), and are
    widened to contain the mean of the scores should it have left them. The bounds are (0, 1) without scores, and
    equal once the population is complete. Raises ValueError as `log_evidence` does, and for an alpha outside (0, 1).
    """
    boundary = _boundary(alpha / 2)
    x = checked(scores, 0.0)
    if not x.size:
        return 0.0, 1.0
    mean = math.fsum(x) / x.size
    if x.size == population:
        return mean, mean
    # The upper bound is one minus the lower bound of the inverted scores; both are bisected at once.
    both = np.stack([x, 1 - x])
    low, high = np.zeros(2), np.array([mean, 1 - mean])
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        refuted = log_evidence(both, middle, population=population, shares=shares).max(axis=-1) >= boundary
        low, high = np.where(refuted, middle, low), np.where(refuted, high, middle)
    return min(mean, float(low[0])), max(mean, 1 - float(low[1]))


def stratified_interval(values: Floats, strata: Strata, *, alpha: float, shares: Floats = SHARES) -> Interval:
    """Return the bounds of `interval` for the mean of a finite population, from the first values and the strata of all.

    With several strata they rest on the e-processes of `decide_level`, and are widened to contain the mean of the
    strata's means.
    """
    if strata.weights.size == 1 or not values.size:
        return interval(values, alpha=alpha, population=strata.population, shares=shares)
    mean = strata.mean(values)
    if values.size == strata.population:
        return mean, mean
    boundary = _boundary(alpha / 2)
    bets = LevelBets(values, strata, shares=shares)
    outer, inner = np.array([0.0, strata.largest_mean]), np.array([mean, mean])
    for _ in range(BISECTIONS):
        middle = (outer + inner) / 2
        refuted = bets.log_evidence(*middle).max(axis=-1) >= boundary
        outer, inner = np.where(refuted, middle, outer), np.where(refuted, inner, middle)
    return min(mean, float(outer[0])), max(mean, float(outer[1]))


def paired_interval(
    differences: ArrayLike, *, alpha: float, population: int | None = None, strata: Strata | None = None
) -> Interval:
    """Return the bounds of `interval`, or of `stratified_interval`, for the mean of differences from -1 to 1."""
    if strata is not None:
        x = checked(differences, -1.0)
        largest = strata.largest_mean
        values = (x + strata.largest_values[: x.size]) / 2
        low, high = stratified_interval(values, strata, alpha=alpha, shares=PAIR_SHARES)
        return 2 * low - largest, 2 * min(high, largest) - largest
    values = (checked(differences, -1.0) + 1) / 2
    low, high = interval(values, alpha=alpha, population=population, shares=PAIR_SHARES)
    return 2 * low - 1, 2 * high - 1


def benjamini_hochberg(p_values: Sequence[float], q: float) -> tuple[bool, ...]:
    """Return which null hypotheses to reject so that the expected share of true ones among them is at most `q`.

    The k smallest p-values are rejected, for the largest k whose k-th smallest is at most q k / K (Benjamini and
    Hochberg 1995, "Controlling the false discovery rate"). Of 1 / e-value this holds however the e-values depend on
    each other (Wang and Ramdas 2022, "False discovery rate control with e-values").
    """
    ranked = sorted(p_values)
    met = [value for rank, value in enumerate(ranked, start=1) if value <= q * rank / len(ranked)]
    return tuple(bool(met) and value <= met[-1] for value in p_values)


def first_decision(
    above: Floats, below: Floats, *, alpha: float, pass_alpha: float | None = None, min_observations: int
) -> Decision | None:
    """Return the decision at the first look where an e-process reaches 1/alpha; the larger one wins if both do.

    `pass_alpha` is the probability of error of a pass, by default that of a failure.
    """
    ahead, behind = above - _boundary(alpha if pass_alpha is None else pass_alpha), below - _boundary(alpha)
    reached = np.maximum(ahead, behind) >= 0
    reached[: max(0, min_observations - 1)] = False
    if not reached.any():
        return None
    look = int(reached.argmax())
    return Decision(verdict="pass" if ahead[look] > behind[look] else "fail", stopping_time=look + 1)


def _boundary(alpha: float) -> float:
    """Return log(1/alpha), the value at which an e-process refutes its null hypothesis."""
    if not 0 < alpha < 1:
        raise ValueError(f"alpha {alpha!r}: give a probability above 0 and below 1")
    return -math.log(alpha)
