"""Evidence on the mean of a finite population that consists of strata, such as the tasks of a panel.

An element of stratum k has a value v from 0 to the weight w_k. The null hypothesis is "the mean of all N values is at
most m". The elements are drawn without replacement; the next one is drawn with a probability proportional to the rate
of its stratum, which is fixed before the first draw. With equal rates this is a uniformly random order.

Before a draw, let R be the number of elements left, S the sum of the values drawn, and q_k the mean rate of the
elements left divided by the rate of stratum k. Any element of stratum k is next with probability 1 / (R q_k),
so the expectation of q_k v is the mean of the values left, for any rates. If the null holds, that mean is at most
(N m - S) / R. Let a be a prediction of every value left that is fixed before the draw, such as the mean of its stratum
so far. Which elements are left is known, so the mean c of their predictions is known too. With a bound b that no q_k a
exceeds, the payoff q_k (v - a) + b is never negative, and under the null its expectation is at most
(N m - S) / R - c + b. Capital that is bet on the payoff at these odds is a nonnegative supermartingale, as in
`e_process`: an e-process for any rates and any predictions. They only decide how much the payoffs vary, which is little
if a predicts v. An average of e-processes with several predictions is an e-process too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from plugins.gates.e_process import TIE_TOLERANCE, Floats, log_capital

# The mean of a stratum starts at the mean over all strata, which counts as so many draws.
PRIOR_DRAWS = 1.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Strata:
    """The strata of a finite population's elements, in the order in which these are drawn."""

    stratum: NDArray[np.intp]
    """The number of every element's stratum, from 0."""

    weights: Floats
    """The largest value that an element of every stratum can have; the smallest is 0."""

    rates: Floats
    """The rates at which the strata are drawn, above 0; only their ratios matter."""

    @property
    def population(self) -> int:
        return self.stratum.size

    @property
    def has_equal_rates(self) -> bool:
        return bool((self.rates == self.rates[0]).all())

    @cached_property
    def largest_values(self) -> Floats:
        """The largest value that every element can have."""
        return self.weights[self.stratum]

    @cached_property
    def largest_mean(self) -> float:
        """The mean of the population if every value is as large as possible."""
        return float(self.largest_values.mean())

    @cached_property
    def drawn(self) -> Floats:
        """The number of elements drawn of every stratum before every draw, of shape (population, strata)."""
        return _sums_before(np.ones(self.population), self)

    @cached_property
    def shares(self) -> Floats:
        """The share of every stratum in the elements left before every draw, of shape (population, strata)."""
        left = np.bincount(self.stratum, minlength=self.weights.size) - self.drawn
        shares: Floats = left / left.sum(axis=-1, keepdims=True)
        return shares

    @cached_property
    def importance(self) -> Floats:
        """The mean rate of the elements left divided by the rate of the stratum, before every draw; 0 for a stratum
        of which none is left."""
        return np.where(self.shares > 0, (self.shares @ self.rates)[:, np.newaxis] / self.rates, 0.0)

    def mean(self, values: Floats) -> float:
        """Return the estimate of the population's mean from the first values.

        It is the mean of the strata's means; a stratum without a draw is taken to be like all others together.
        """
        scores = values / self.largest_values[: values.size]
        drawn = self.stratum[: values.size]
        counts = np.bincount(drawn, minlength=self.weights.size)
        sums = np.bincount(drawn, scores, minlength=self.weights.size)
        means = np.where(counts > 0, sums / np.maximum(counts, 1), scores.mean())
        return float((np.bincount(self.stratum) * self.weights * means).sum() / self.population)


class LevelBets:
    """The bets on a prefix of a population's values, for and against a mean above any level.

    `control_variate` holds predictions of all values of the population that were known before the first draw.
    """

    def __init__(self, values: Floats, strata: Strata, control_variate: Floats | None = None):
        # A mean of at least m is a mean of at most `largest_mean` - m of the distances to the largest values.
        self._values = np.stack([values, strata.largest_values[: values.size] - values])
        bets = list(_bets(values, strata, control_variate))
        if strata.has_equal_rates:
            # Values without a prediction; with other rates they would vary as the importance of their strata does.
            bets.append((self._values, np.zeros_like(self._values)))
        # Shape (e-processes, 2, draws).
        self._payoffs = np.stack([payoffs for payoffs, _ in bets])
        self._offsets = np.stack([offsets for _, offsets in bets])
        self._population = strata.population
        self._largest_mean = strata.largest_mean

    def log_evidence(self, low: float, high: float) -> Floats:
        """Return the log e-processes against "the mean is at most `low`" and "the mean is at least `high`".

        The result has shape (2, draws), with +inf from the draw on that makes the null hypothesis impossible. A level
        below 0 or above the largest possible mean is moved there: beyond, a null hypothesis would be refuted at once.
        """
        nulls = np.array([[max(0.0, low)], [max(0.0, self._largest_mean - high)]])
        sums = self._values.cumsum(axis=-1)
        left = self._population - np.arange(sums.shape[-1])
        expected = (self._population * nulls - (sums - self._values)) / left + self._offsets
        # The lower bound avoids a division by zero; raising what is expected only lowers the evidence.
        logs = log_capital(self._payoffs / np.maximum(expected, TIE_TOLERANCE) - 1)
        impossible = sums > self._population * (nulls + TIE_TOLERANCE)
        return np.where(impossible, np.inf, np.logaddexp.reduce(logs, axis=0) - np.log(len(logs)))


def _bets(values: Floats, strata: Strata, control_variate: Floats | None) -> Iterator[tuple[Floats, Floats]]:
    """Yield the payoffs and offsets of all predictions, for the values and for their distances to the largest ones.

    An offset is by how much the largest expectation of a payoff exceeds the mean of the values left. Values are
    predicted by the means of their strata so far; with a control variate by that too, alone and with the means of the
    differences to it.
    """
    yield _two_sided_bets(values, strata, np.zeros(strata.population), _means_before(values, strata, 0.5))
    if control_variate is not None:
        differences = values - control_variate[: values.size]
        yield _two_sided_bets(values, strata, control_variate, np.zeros_like(strata.shares[: values.size]))
        yield _two_sided_bets(values, strata, control_variate, _means_before(differences, strata, 0.0))


def _two_sided_bets(values: Floats, strata: Strata, known: Floats, running: Floats) -> tuple[Floats, Floats]:
    """Return payoffs and offsets of shape (2, draws) for predictions that are the sum of two numbers.

    `known` has one for every element of the population, `running` one for every stratum before every draw.
    """
    looks = np.arange(values.size)
    drawn = strata.stratum[: values.size]
    importance, shares = strata.importance[: values.size], strata.shares[: values.size]
    known_left = (known.sum() - known.cumsum() + known)[: values.size] / (strata.population - looks)
    expected = known_left + (shares * running).sum(axis=-1)
    most, least = np.full((2, strata.weights.size), -np.inf)
    np.maximum.at(most, strata.stratum, known)
    np.maximum.at(least, strata.stratum, -known)
    # Importance is 0 where no element is left; any bound of at least 0 is safe there.
    upper = np.maximum(importance * (most + running), 0.0).max(axis=-1)
    lower = np.maximum(importance * (strata.weights + least - running), 0.0).max(axis=-1)
    residuals = importance[looks, drawn] * (values - known[: values.size] - running[looks, drawn])
    # Rounding must not make a payoff of 0 negative.
    payoffs = np.maximum(np.stack([upper + residuals, lower - residuals]), 0.0)
    return payoffs, np.stack([upper - expected, lower - (shares @ strata.weights - expected)])


def _means_before(values: Floats, strata: Strata, start: float) -> Floats:
    """Return the mean of every stratum's values before every draw, of shape (values, strata), in units of its weight.

    It starts at the mean over all strata, and that one at `start`.
    """
    sums = _sums_before(values / strata.largest_values[: values.size], strata)
    overall = (sums.sum(axis=-1, keepdims=True) + start) / np.arange(1, values.size + 1)[:, np.newaxis]
    means: Floats = (sums + PRIOR_DRAWS * overall) / (strata.drawn[: values.size] + PRIOR_DRAWS)
    return strata.weights * means


def _sums_before(values: Floats, strata: Strata) -> Floats:
    """Return the sum of every stratum's values before every draw, of shape (values, strata)."""
    sums = np.zeros((values.size + 1, strata.weights.size))
    sums[np.arange(1, values.size + 1), strata.stratum[: values.size]] = values
    return sums.cumsum(axis=0)[:-1]
