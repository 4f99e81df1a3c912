"""Tests of the largest difference between the mean scores of two phases, the residues of a needle's position.

Rows hold the scores of one sample with its needle at every residue modulo the number of columns. A smaller modulus
joins columns. All phases have the same samples, so differences are paired. Rows are drawn at random and tested after
each: the largest difference is too large once one pair of phases is shown to differ by more (Bonferroni over all
ordered pairs of all moduli), and small enough once every pair is shown to differ by less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from plugins.gates.clusters import ClusteredQueue, SampleRef
from plugins.gates.e_process import Floats, log_evidence
from plugins.gates.statistics import Decision, first_decision

if TYPE_CHECKING:
    from plugins.gates.sequential import Hypothesis

# Bisection steps on the unit interval: bounds are exact to a fortieth of a point.
BISECTIONS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePair:
    """Two phases: residues of positions modulo the same number."""

    modulus: int
    high: int
    low: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The largest difference between two phases, shares of 1."""

    pair: PhasePair
    """The two phases that are shown to differ most."""

    high: float
    """The mean score of the higher phase."""

    low: float

    at_least: float
    """The lower bound of the largest difference between any two phases."""

    at_most: float
    """Its upper bound."""


def decide_sweeps(
    hypothesis: Hypothesis, queue: ClusteredQueue, scores: Mapping[SampleRef, float], *, full: bool
) -> tuple[Decision | None, int]:
    """Return the decision on the finished clusters of a queue, and the number of clusters behind it.

    With `full` a verdict waits for all samples.
    """
    rows = queue.weighted_rows(scores)
    within, alpha = (hypothesis.threshold or 0.0) / queue.scale, hypothesis.alpha
    decision = decide_phases(rows, hypothesis.moduli, within, alpha=alpha, min_observations=queue.min_clusters)
    if decision is None or full:
        return (decision if len(rows) == len(queue.clusters) else None), len(rows)
    return decision, decision.stopping_time


def decide_phases(
    rows: Floats, moduli: Sequence[int], within: float, *, alpha: float, min_observations: int
) -> Decision | None:
    """Decide whether no two phases differ by more than `within`; None while neither answer is shown.

    A verdict is wrong with probability at most `alpha`, over all samples that a row could be of.
    """
    if not len(rows):
        return None
    _, differences = _differences(rows, moduli)
    exceeds, stays_within = _log_evidence(differences, within)
    fails = exceeds.max(axis=0) - math.log(len(differences))
    return first_decision(stays_within.min(axis=0), fails, alpha=alpha, min_observations=min_observations)


def spread(rows: Floats, moduli: Sequence[int], within: float, *, alpha: float) -> Spread:
    """Return the largest difference between phases. Each of its bounds is wrong with probability at most `alpha`.

    The pair is that with the most evidence of a difference beyond `within`. Raises ValueError without rows.
    """
    if not len(rows):
        raise ValueError("no rows: give at least one")
    pairs, differences = _differences(rows, moduli)
    boundary = -math.log(alpha)

    def is_more(candidate: float) -> bool:
        evidence, _ = _log_evidence(differences, candidate)
        return bool(evidence[:, -1].max() - math.log(len(pairs)) >= boundary)

    def is_less(candidate: float) -> bool:
        return bool(_log_evidence(differences, candidate)[1][:, -1].min() >= boundary)

    pair = pairs[int(_log_evidence(differences, within)[0][:, -1].argmax())]
    means = _phase_means(rows, pair.modulus).mean(axis=0)
    return Spread(
        pair=pair,
        high=float(means[pair.high]),
        low=float(means[pair.low]),
        at_least=_bisect(is_more, 0.0, 1.0),
        at_most=1 - _bisect(lambda candidate: is_less(1 - candidate), 0.0, 1.0),
    )


def _phase_means(rows: Floats, modulus: int) -> Floats:
    """Return the mean of every row at every residue modulo a divisor of the number of columns."""
    means: Floats = rows.reshape(len(rows), -1, modulus).mean(axis=1)
    return means


def _differences(rows: Floats, moduli: Sequence[int]) -> tuple[list[PhasePair], Floats]:
    """Return all ordered pairs of phases, and the differences high - low of each along the rows."""
    pairs: list[PhasePair] = []
    differences: list[Floats] = []
    for modulus in moduli:
        means = _phase_means(rows, modulus).T
        for high, low in permutations(range(modulus), 2):
            pairs.append(PhasePair(modulus=modulus, high=high, low=low))
            differences.append(means[high] - means[low])
    return pairs, np.stack(differences)


def _log_evidence(differences: Floats, bound: float) -> tuple[Floats, Floats]:
    """Return for every pair the largest log evidence so far for a mean difference above and below the bound."""
    x = np.clip((differences + 1) / 2, 0.0, 1.0)
    above, below = log_evidence(x, (1 + bound) / 2), log_evidence(1 - x, (1 - bound) / 2)
    return np.maximum.accumulate(above, axis=1), np.maximum.accumulate(below, axis=1)


def _bisect(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return the largest number from `low` to `high` at which `holds` is true, if it turns false once; else `low`."""
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
