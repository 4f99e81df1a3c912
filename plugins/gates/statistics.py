"""When enough scores were seen to say so, and how sure that is. Pure arithmetic: no pytest, no torch.

Scores are read in a random order and looked at after every one. A verdict that holds under so many looks
needs evidence made for them: an e-process, a running product of fair bets against a null hypothesis.
While the null holds, its expectation is at most 1 at every time, so it ever reaches 1/alpha with
probability at most alpha, whenever one looks and whatever made one stop (Ville's inequality).

The bets are those of Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by
betting": with replacement section 4, without replacement section 5. Here a bet is a fixed share of what
one could stake at all, and a mixture over a grid of shares stands in for knowing the best one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Means closer than this are equal: above what summing 100 000 scores in floating point loses, and far
# below one step of a score. A mean that equals its threshold must not pass for 0.1 + 0.2 > 0.3.
TIE_TOLERANCE = 1e-10
BETS = 24
# Dense near 0 and 1: close calls want timid bets, clear ones bold bets.
SHARES = np.sin(np.pi * (2 * np.arange(1, BETS + 1) - 1) / (4 * BETS)) ** 2
# Products of this many factors stay within a float, as each lies between 1 - max(SHARES) and 1/TIE_TOLERANCE.
BLOCK = 16
# Halvings of the unit interval: bounds are exact to a ten-thousandth of a point.
HALVINGS = 20

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A verdict that stands, and how many elements had been looked at when it was reached."""

    verdict: Literal["pass", "fail"]
    stopping_time: int


def log_evidence(scores: ArrayLike, mean: ArrayLike, *, population: int | None = None) -> Floats:
    """The log e-value against "the mean is at most `mean`", after each of the scores.

    `scores` has shape (..., t), in the order of the queue and from 0 to 1; `mean` is a number, or an array
    that broadcasts against the leading dimensions. With a `population` the scores are drawn without
    replacement from that many, and the null is about their mean; without one they are independent, or at
    least have the mean of the null whatever came before. The value is +inf where the null has become
    impossible, and stays so. Against "the mean is at least m": `log_evidence(1 - x, 1 - m)`.

    Raises ValueError for a score outside [0, 1], a mean that is no number, more scores than the population.
    """
    x = _within(scores, 0.0)
    null = np.asarray(mean, dtype=np.float64)[..., np.newaxis]
    if np.isnan(null).any():
        raise ValueError(f"mean {mean!r}: give a number")
    seen = x.cumsum(axis=-1)
    if population is None:
        left = null
        impossible = (null <= 0) & (seen > null)
    elif population < x.shape[-1]:
        raise ValueError(f"{x.shape[-1]} scores of a population of {population}: give its size")
    else:
        # What is left to draw would have this mean, did the null hold with equality.
        left = (population * null - (seen - x)) / (population - np.arange(x.shape[-1]))
        impossible = seen > population * (null + TIE_TOLERANCE)
    # Rounding that mean up only lowers the evidence, so the floor that keeps x/0 away is safe.
    return np.where(impossible, np.inf, _log_capital(x / np.maximum(left, TIE_TOLERANCE) - 1))


def decide_level(
    scores: ArrayLike,
    threshold: float,
    *,
    alpha: float,
    population: int,
    indifference_zone: float = 0.0,
    min_observations: int = 8,
    control_variate: ArrayLike | None = None,
) -> Decision | None:
    """Whether the mean of all `population` scores exceeds the threshold, from a prefix; None while undecided.

    Of a set whose mean lies outside threshold ± indifference_zone, the verdict is wrong with probability at most
    `alpha` over the random orders; nothing is said before `min_observations` scores. With every score at hand the
    mean is known: it passes when strictly above the threshold. Scores, threshold and indifference_zone run from 0 to 1.

    `control_variate`: a baseline's scores on all of the population, in the order of the queue. Since their mean is
    known, the differences to them test the same null, the cheaper the more alike the two score; the evidence
    is the average of both.

    Raises ValueError for what lies outside its range, and for a control of another size.
    """
    above, below = level_evidence(
        scores, threshold, population=population, indifference_zone=indifference_zone, control_variate=control_variate
    )
    decision = _first(above, below, alpha=alpha, min_observations=min_observations)
    x = _within(scores, 0.0)
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
    control_variate: ArrayLike | None = None,
) -> tuple[Floats, Floats]:
    """The two log e-values behind `decide_level`, for "above" and for "not above", after each score but the last.

    The last of the population has none: with it the mean is known. Raises ValueError as `decide_level` does.
    """
    if not (0 <= threshold <= 1 and 0 <= indifference_zone <= 1):
        raise ValueError(f"threshold {threshold!r} ± {indifference_zone!r}: both run from 0 to 1")
    x = _within(scores, 0.0)
    known = None if control_variate is None else _within(control_variate, 0.0)
    if x.ndim != 1 or x.size > population or (known is not None and known.shape != (population,)):
        sizes = f"{x.shape} scores" if known is None else f"{x.shape} scores and {known.shape} of a control variate"
        raise ValueError(f"{sizes} for a population of {population}: give a prefix, and a control variate for all")
    early = x[: population - 1]
    # Where the zone reaches past 0 or 1 the null would be impossible, and the verdict given for nothing.
    above = _log_level(early, max(0.0, threshold - indifference_zone), population, known)
    below = _log_level(
        1 - early, max(0.0, 1 - threshold - indifference_zone), population, None if known is None else 1 - known
    )
    return above, below


def decide_paired(
    differences: ArrayLike,
    *,
    drop: float,
    clear: float,
    alpha: float,
    min_observations: int = 8,
    population: int | None = None,
) -> Decision | None:
    """Whether a candidate holds up to its baseline, from candidate - baseline along the queue.

    Passes when a mean difference of -`drop` or worse is refuted, fails when one of -`clear` or better is;
    each is wrong with probability at most `alpha`. None when neither is: then the scores do not tell.
    Differences run from -1 to 1, and are about the model: drawn from more than these samples. With a
    `population` they are about the mean of all those, which is known with the last of them: then half way
    between `clear` and `drop` is a fail.

    Raises ValueError for differences outside [-1, 1], and unless 0 <= clear < drop <= 1.
    """
    found = _within(differences, -1.0)
    evidence = paired_evidence(found, drop=drop, clear=clear, population=population)
    decision = _first(*evidence, alpha=alpha, min_observations=min_observations)
    if decision is None and population is not None and found.size >= population:
        fails = math.fsum(found) <= -population * ((drop + clear) / 2 - TIE_TOLERANCE)
        return Decision(verdict="fail" if fails else "pass", stopping_time=population)
    return decision


def paired_evidence(
    differences: ArrayLike, *, drop: float, clear: float, population: int | None = None
) -> tuple[Floats, Floats]:
    """The two log e-values behind `decide_paired`, for "holds up" and for "does not", after each difference."""
    if not 0 <= clear < drop <= 1:
        raise ValueError(f"drop {drop!r} with clear {clear!r}: give 0 <= clear < drop <= 1")
    x = (_within(differences, -1.0) + 1) / 2
    early = x if population is None else x[: population - 1]
    held = log_evidence(early, (1 - drop) / 2, population=population)
    return held, log_evidence(1 - early, (1 + clear) / 2, population=population)


def log_evidence_of_drop(differences: ArrayLike, *, clear: float = 0.0) -> float:
    """The log e-value, at the end, against "the mean difference is -`clear` or better"; see `decide_paired`.

    For `e_bh`: an e-value at the time of stopping, which a running maximum is not.
    """
    return _last(log_evidence((1 - _within(differences, -1.0)) / 2, (1 + clear) / 2))


def log_evidence_below(scores: ArrayLike, floor: float, *, population: int | None) -> float:
    """The log e-value, at the end, against "the mean is `floor` or above"; see `log_evidence_of_drop`."""
    return _last(log_evidence(1 - _within(scores, 0.0), 1 - floor, population=population))


def interval(scores: ArrayLike, *, alpha: float, population: int | None = None) -> tuple[float, float]:
    """Bounds on the mean that held at every look so far with probability 1 - `alpha`, alpha/2 on each side.

    The means that no look has refuted (a confidence sequence and its running intersection), widened to
    hold the mean of the scores where that has strayed. (0, 1) without scores, a point when the population
    is complete. Raises ValueError as `log_evidence` does, and for an alpha outside (0, 1).
    """
    bar = _bar(alpha / 2)
    x = _within(scores, 0.0)
    if not x.size:
        return 0.0, 1.0
    mean = math.fsum(x) / x.size
    if x.size == population:
        return mean, mean
    sides = np.stack([x, 1 - x])
    low, high = np.zeros(2), np.array([mean, 1 - mean])
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        refuted = log_evidence(sides, middle, population=population).max(axis=-1) >= bar
        low, high = np.where(refuted, middle, low), np.where(refuted, high, middle)
    return min(mean, float(low[0])), max(mean, 1 - float(low[1]))


def paired_interval(differences: ArrayLike, *, alpha: float, population: int | None = None) -> tuple[float, float]:
    """`interval` for the mean of differences from -1 to 1."""
    low, high = interval((_within(differences, -1.0) + 1) / 2, alpha=alpha, population=population)
    return 2 * low - 1, 2 * high - 1


def e_bh(log_e_values: Sequence[float], q: float) -> tuple[bool, ...]:
    """Which nulls to reject so that at most a share `q` of the rejected is expected to be true.

    With K e-values, the k largest for the largest k whose k-th is at least K/(q·k). Holds however the
    e-values depend on each other (Wang and Ramdas 2022, "False discovery rate control with e-values").
    Raises ValueError for a q outside (0, 1] and an e-value that is NaN.
    """
    if not 0 < q <= 1 or any(math.isnan(value) for value in log_e_values):
        raise ValueError(f"q {q!r} over {list(log_e_values)}: give a q above 0 up to 1, and numbers")
    bars = [math.log(len(log_e_values) / (q * rank)) for rank in range(1, len(log_e_values) + 1)]
    met = [bar for value, bar in zip(sorted(log_e_values, reverse=True), bars, strict=True) if value >= bar]
    return tuple(bool(met) and value >= met[-1] for value in log_e_values)


def _within(values: ArrayLike, least: float) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    # NaN compares as false, so it is asked what lies within.
    inside = (array >= least) & (array <= 1)
    if not inside.all():
        raise ValueError(f"{float(array[~inside][0])!r} among the scores: they run from {least:g} to 1")
    return array


def _log_capital(gains: Floats) -> Floats:
    """The log of the mixture's capital after each bet that wins `gains` (at least -1) times its stake.

    Logs are taken once a block and not once a factor, which is what makes an interval affordable.
    """
    *leading, looks = gains.shape
    blocks = -(-looks // BLOCK)
    padded = np.zeros((*leading, blocks * BLOCK, 1))
    padded[..., :looks, 0] = gains
    growth = padded.reshape(*leading, blocks, BLOCK, 1) * SHARES
    growth += 1
    for step in range(1, BLOCK):
        growth[..., step, :] *= growth[..., step - 1, :]
    whole = np.log(growth[..., -1, :])
    before = whole.cumsum(axis=-2) - whole
    top = before.max(axis=-1, keepdims=True)
    capital: Floats = np.log(np.einsum("...sb,...b->...s", growth, np.exp(before - top)) / BETS) + top
    return capital.reshape(*leading, blocks * BLOCK)[..., :looks]


def _log_level(scores: Floats, mean: float, population: int, control_variate: Floats | None) -> Floats:
    plain = log_evidence(scores, mean, population=population)
    if control_variate is None:
        return plain
    difference = (scores - control_variate[: scores.size] + 1) / 2
    gap = mean - math.fsum(control_variate) / population
    # The average of two e-processes is one, so neither has to be chosen beforehand.
    return np.logaddexp(plain, log_evidence(difference, (gap + 1) / 2, population=population)) - math.log(2)


def _first(above: Floats, below: Floats, *, alpha: float, min_observations: int) -> Decision | None:
    """The first look from `min_observations` on at which either reaches 1/alpha; the stronger one when both do."""
    reached = np.maximum(above, below) >= _bar(alpha)
    reached[: max(0, min_observations - 1)] = False
    if not reached.any():
        return None
    look = int(reached.argmax())
    return Decision(verdict="pass" if above[look] > below[look] else "fail", stopping_time=look + 1)


def _bar(alpha: float) -> float:
    if not 0 < alpha < 1:
        raise ValueError(f"alpha {alpha!r}: give a probability above 0 and below 1")
    return -math.log(alpha)


def _last(evidence: Floats) -> float:
    """The evidence now; none without scores."""
    return float(evidence[-1]) if evidence.size else 0.0
