"""Sequential tests, confidence intervals and multiple tests. Pure arithmetic on `e_process`.

Scores are read in a random order and tested after each one, so a test for a fixed number of samples would be wrong
here. A verdict is reached when an e-process reaches 1/alpha, an interval is made of the means that none has refuted.
Both are valid at every look.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from longctx.fixtures.records.report_parts import Interval
from longctx.plugins.evidence.e_process import PAIR_SHARES, SHARES, TIE_TOLERANCE, Floats, LevelBets, Strata

# Bisection steps on the unit interval: bounds are exact to a ten-thousandth of a point.
BISECTIONS = 20
# A population of so many scores stands for unlimited ones.
UNLIMITED = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A final verdict."""

    verdict: Literal["pass", "fail"]
    stopping_time: int
    """The number of scores (or clusters) after which the verdict was reached."""


def decide_level(
    values: Floats,
    threshold: float,
    strata: Strata,
    *,
    alpha: float,
    indifference_zone: float = 0.0,
    min_observations: int = 8,
) -> Decision | None:
    """Decide from the first values of a population, and the strata of all, whether their mean exceeds the threshold.

    Returns None while the verdict is open. If the mean lies outside threshold ± indifference_zone, the verdict is
    wrong with probability at most `alpha` over the random orders. There is none before `min_observations` values.
    With all values the mean is known: it passes if it is strictly above the threshold. Values, threshold and zone
    run from 0 to 1. Raises ValueError as `LevelBets` does.
    """
    # The last value reveals the mean, so nothing is left to bet on.
    bets = LevelBets(values[: strata.population - 1], strata)
    evidence = bets.log_evidence(threshold - indifference_zone, threshold + indifference_zone)
    decision = first_decision(evidence, alpha=alpha, min_observations=min_observations)
    if decision is None and values.size == strata.population:
        exceeds = math.fsum(values) > strata.population * (threshold + TIE_TOLERANCE)
        return Decision(verdict="pass" if exceeds else "fail", stopping_time=strata.population)
    return decision


def paired_evidence(differences: Floats, strata: Strata, *, drop: float) -> Floats:
    """Return the log e-processes for "non-inferior" and for "inferior", of shape (2, draws), without the last draw.

    The first is against a mean difference model - baseline of -`drop` or less, the second against one of -`drop` / 2
    or more. A difference of a stratum with weight w, from -w to w, becomes a value from 0 to w for `LevelBets`: half of
    it above -w. A stratum is first predicted to differ by 0, so that equal answers leave nothing to chance.
    """
    early = differences[: strata.population - 1]
    values = (early + strata.largest_values[: early.size]) / 2
    bets, mean = LevelBets(values, strata, shares=PAIR_SHARES), strata.largest_mean
    return bets.log_evidence((mean - drop) / 2, (mean - drop / 2) / 2)


def interval(scores: ArrayLike, *, alpha: float, population: int | None = None) -> Interval:
    """Return the bounds of `stratified_interval` for so many, or unlimited, scores in a uniformly random order."""
    strata = Strata.single(UNLIMITED if population is None else population)
    return stratified_interval(np.asarray(scores, dtype=np.float64), strata, alpha=alpha)


def stratified_interval(values: Floats, strata: Strata, *, alpha: float, shares: Floats = SHARES) -> Interval:
    """Return bounds that contain the population's mean at all looks so far with probability 1 - `alpha`.

    Each side has alpha/2. They enclose the means that no look at the first values has refuted (the running intersection
    of a confidence sequence), and are widened to contain the estimate of the mean should it have left them. Without
    values they are the smallest and largest possible mean. They are equal once the population is complete.
    """
    if not values.size:
        return 0.0, strata.largest_mean
    mean = strata.mean(values)
    if values.size == strata.population:
        return mean, mean
    bets = LevelBets(values, strata, shares=shares)
    needed = -math.log(alpha / 2)
    outer, inner = np.array([0.0, strata.largest_mean]), np.array([mean, mean])
    for _ in range(BISECTIONS):
        middle = (outer + inner) / 2
        evidence = bets.log_evidence(middle[0], middle[1])
        refuted = evidence.max(axis=-1) >= needed
        outer, inner = np.where(refuted, middle, outer), np.where(refuted, inner, middle)
    low, high = outer.tolist()
    return min(mean, low), max(mean, high)


def paired_interval(differences: Floats, strata: Strata, *, alpha: float) -> Interval:
    """Return the same bounds for the mean of differences, which run from -w to w in a stratum of weight w."""
    largest = strata.largest_mean
    values = (differences + strata.largest_values[: differences.size]) / 2
    low, high = stratified_interval(values, strata, alpha=alpha, shares=PAIR_SHARES)
    return 2 * low - largest, 2 * high - largest


def benjamini_hochberg(p_values: Sequence[float], q: float) -> tuple[bool, ...]:
    """Return which null hypotheses to reject so that the expected share of true ones among them is at most `q`.

    The k smallest p-values are rejected, for the largest k whose k-th smallest is at most q k / K (Benjamini and
    Hochberg 1995, "Controlling the false discovery rate"). Of 1 / e-value this holds however the e-values depend on
    each other (Wang and Ramdas 2022, "False discovery rate control with e-values").
    """
    largest = -math.inf
    for rank, p_value in enumerate(sorted(p_values), start=1):
        if p_value <= q * rank / len(p_values):
            largest = p_value
    return tuple(p_value <= largest for p_value in p_values)


def first_decision(
    evidence: Floats, *, alpha: float, pass_alpha: float | None = None, min_observations: int
) -> Decision | None:
    """Return the decision at the first look where an e-process, for a pass or for a failure, reaches 1/alpha.

    The larger one wins if both do. `pass_alpha` is the probability of error of a pass, by default that of a failure.
    """
    for_pass, for_failure = evidence
    ahead = for_pass + math.log(alpha if pass_alpha is None else pass_alpha)
    behind = for_failure + math.log(alpha)
    reached = np.maximum(ahead, behind) >= 0
    reached[: max(0, min_observations - 1)] = False
    if not reached.any():
        return None
    look = int(reached.argmax())
    return Decision(verdict="pass" if ahead[look] > behind[look] else "fail", stopping_time=look + 1)
