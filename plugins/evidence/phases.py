"""Tests of the largest difference between the mean scores of two phases, the residues of a needle's position.

Rows hold the scores of one sample with its needle at every residue modulo the number of columns. A smaller modulus
joins columns. All phases have the same samples, so differences are paired. Rows are drawn at random and tested after
each: the largest difference is too large once one pair of phases is shown to differ by more (Bonferroni over all
ordered pairs of all moduli), and small enough once every pair is shown to differ by less.

The claim is about the model, so rows on one haystack are no independent observations. The evidence is computed in the
layers of `longctx.plugins.evidence.haystacks`, which count every haystack once; each of n layers has 1/n of the error.
Where no two rows share a haystack there is one layer, of all rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from longctx.plugins.evidence.e_process import Floats, log_evidence
from longctx.plugins.evidence.haystacks import Haystacks, Ints, layers
from longctx.plugins.evidence.statistics import Decision, first_decision

# Bisection steps on the unit interval: bounds are exact to a fortieth of a point.
BISECTIONS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class _PhasePair:
    """Two phases: residues of positions modulo the same number."""

    modulus: int
    high: int
    low: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The largest difference between two phases, shares of 1."""

    pair: _PhasePair
    """The two phases that are shown to differ most."""

    high: float
    """The mean score of the higher phase."""

    low: float

    at_least: float
    """The lower bound of the largest difference between any two phases."""

    at_most: float
    """Its upper bound."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _PhaseLayer:
    """The differences between phases on independent observations: means of rows, one of every haystack."""

    places: Ints
    """The number, from 0, of the row that completes an observation, in ascending order."""

    differences: Floats
    """For every ordered pair of phases, high - low on every observation."""


def decide_phases(
    rows: Floats, haystacks: Haystacks, moduli: Sequence[int], within: float, *, alpha: float, min_observations: int
) -> Decision | None:
    """Decide whether no two phases differ by more than `within`; None while neither answer is shown.

    `haystacks` are those of the rows. A verdict is wrong with probability at most `alpha`, over all haystacks that
    could be drawn, however alike the rows on one haystack are.
    """
    if not len(rows):
        return None
    pairs, observed = _layers(rows, haystacks, moduli)
    exceeds, stays_within = _log_evidence(observed, within, len(rows))
    fails = exceeds.max(axis=0) - math.log(len(pairs))
    return first_decision(stays_within.min(axis=0), fails, alpha=alpha, min_observations=min_observations)


def spread(rows: Floats, haystacks: Haystacks, moduli: Sequence[int], within: float, *, alpha: float) -> Spread:
    """Return the largest difference between phases. Each of its bounds is wrong with probability at most `alpha`.

    The pair is that with the most evidence of a difference beyond `within`. Raises ValueError without rows.
    """
    if not len(rows):
        raise ValueError("no rows: give at least one")
    pairs, observed = _layers(rows, haystacks, moduli)
    boundary = -math.log(alpha)

    def evidence(candidate: float) -> tuple[Floats, Floats]:
        above, below = _log_evidence(observed, candidate, len(rows))
        return above[:, -1], below[:, -1]

    pair = pairs[int(evidence(within)[0].argmax())]
    means = _phase_means(rows, pair.modulus).mean(axis=0)
    return Spread(
        pair=pair,
        high=float(means[pair.high]),
        low=float(means[pair.low]),
        at_least=_bisect(lambda bound: bool(evidence(bound)[0].max() - math.log(len(pairs)) >= boundary), 0.0, 1.0),
        at_most=1 - _bisect(lambda bound: bool(evidence(1 - bound)[1].min() >= boundary), 0.0, 1.0),
    )


def _layers(rows: Floats, haystacks: Haystacks, moduli: Sequence[int]) -> tuple[list[_PhasePair], list[_PhaseLayer]]:
    """Return all ordered pairs of phases, and their differences in every layer."""
    by_column = [layers(column, haystacks) for column in rows.T]
    means = [np.stack([layer.values for layer in columns], axis=1) for columns in zip(*by_column, strict=True)]
    pairs, _ = _differences(rows[:1], moduli)
    return pairs, [
        _PhaseLayer(places=layer.places, differences=_differences(of_layer, moduli)[1])
        for layer, of_layer in zip(by_column[0], means, strict=True)
    ]


def _phase_means(rows: Floats, modulus: int) -> Floats:
    """Return the mean of every row at every residue modulo a divisor of the number of columns."""
    means: Floats = rows.reshape(len(rows), rows.shape[1] // modulus, modulus).mean(axis=1)
    return means


def _differences(rows: Floats, moduli: Sequence[int]) -> tuple[list[_PhasePair], Floats]:
    """Return all ordered pairs of phases, and the differences high - low of every pair along the rows."""
    pairs: list[_PhasePair] = []
    differences: list[Floats] = []
    for modulus in moduli:
        means = _phase_means(rows, modulus).T
        for high, low in permutations(range(modulus), 2):
            pairs.append(_PhasePair(modulus=modulus, high=high, low=low))
            differences.append(means[high] - means[low])
    return pairs, np.stack(differences)


def _log_evidence(observed: Sequence[_PhaseLayer], bound: float, rows: int) -> tuple[Floats, Floats]:
    """Return for every pair the largest log evidence so far for a mean difference above and below the bound.

    It has a value after every row: that of the layer with the most, divided by the number of layers.
    """
    above: list[Floats] = []
    below: list[Floats] = []
    for layer in observed:
        x = np.clip((layer.differences + 1) / 2, 0.0, 1.0)
        counts = np.searchsorted(layer.places, np.arange(rows), side="right")
        for side, log in ((above, log_evidence(x, (1 + bound) / 2)), (below, log_evidence(1 - x, (1 - bound) / 2))):
            side.append(np.insert(np.maximum.accumulate(log, axis=1), 0, 0.0, axis=1)[:, counts])
    share = math.log(len(observed))
    return np.max(above, axis=0) - share, np.max(below, axis=0) - share


def _bisect(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return the largest number from `low` to `high` at which `holds` is true, if it turns false once; else `low`."""
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
