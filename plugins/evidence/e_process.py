"""Evidence against a hypothesis on a mean that stays valid however often one looks at it: an e-process.

An e-process against a null hypothesis starts at 1, and while the null holds its expectation is at most 1 at every
stopping time. So it ever reaches 1/alpha with probability at most alpha (Ville's inequality).

The e-process here is the capital of a gambler who bets against the null before every score (Waudby-Smith and Ramdas
2024, "Estimating means of bounded random variables by betting", section 5). The scores x are drawn without replacement
from a population of N. Against "the mean is at most m", with the share s of the largest allowed stake, the capital
after x_1 ... x_t is the product of 1 + s (x_i / m_i - 1). Here m_i = (N m - x_1 - ... - x_{i-1}) / (N - i + 1) is the
mean of the scores still to be drawn if the null holds exactly. The best share is unknown, so the capital is averaged
over a grid of shares; an average of e-processes is one too.

`LevelBets` does so on a population of strata, such as the tasks of a panel, which are drawn at rates of their own.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

# Two means closer than this count as equal. It exceeds what summing 100 000 scores in floating point can lose, and is
# far below the smallest difference between scores: a mean equal to its threshold must not exceed it by rounding.
TIE_TOLERANCE = 1e-10
BETS = 24
# The grid is dense near 0 and 1: a mean near the threshold needs small stakes, a distant one large stakes.
SHARES = np.sin(np.pi * (2 * np.arange(1, BETS + 1) - 1) / (4 * BETS)) ** 2
# Bets on differences between two models have larger stakes: where few answers flip, most differences are 0, and a large
# stake hardly loses. The three small ones are for thousands of pairs of which many differ.
PAIR_SHARES = np.append([0.01, 0.035, 0.08], np.sqrt((np.arange(BETS) + 0.5) / BETS))
# The product of so many factors stays within a float: a factor lies between 1 - max(SHARES) and 1 / TIE_TOLERANCE.
BLOCK = 16
# The mean of a stratum starts at the mean over all strata, which counts as so many draws.
PRIOR_DRAWS = 1.0

Floats = NDArray[np.float64]


def _log_capital(gains: Floats, shares: Floats) -> Floats:
    """Return the logarithm of the mean capital over all shares after every bet.

    `gains` holds the gain of every bet per unit staked, at least -1. The factors are multiplied in blocks and the
    logarithm is taken once per block, because a logarithm per factor would make intervals too slow.
    """
    *leading, looks = gains.shape
    blocks = -(-looks // BLOCK)
    padded = np.zeros((*leading, blocks * BLOCK, 1))
    padded[..., :looks, 0] = gains
    growth = padded.reshape(*leading, blocks, BLOCK, 1) * shares
    growth += 1
    for step in range(1, BLOCK):
        growth[..., step, :] *= growth[..., step - 1, :]
    # The capital after a bet depends on no later one, so a prefix of the bets has the same to the last bit.
    logs_before = np.zeros_like(growth[..., 0, :])
    logs_before[..., 1:, :] = np.log(growth[..., :-1, -1, :]).cumsum(axis=-2)
    largest = logs_before.max(axis=-1, keepdims=True)
    growth *= np.exp(logs_before - largest)[..., np.newaxis, :]
    capital: Floats = np.log(growth.mean(axis=-1)) + largest
    return capital.reshape(*leading, blocks * BLOCK)[..., :looks]


@dataclass(frozen=True, eq=False, kw_only=True)
class Strata:
    """The strata of a finite population's elements, in the order in which these are drawn."""

    stratum: NDArray[np.intp]
    """The number of every element's stratum, from 0."""
    weights: Floats
    """The largest value that an element of every stratum can have; the smallest is 0."""
    rates: Floats
    """The rates at which the strata are drawn, above 0; only their ratios matter."""

    @classmethod
    def single(cls, population: int) -> "Strata":
        """Return the one stratum of a population of values from 0 to 1 in a uniformly random order."""
        return cls(stratum=np.zeros(population, dtype=np.intp), weights=np.ones(1), rates=np.ones(1))

    @property
    def population(self) -> int:
        return self.stratum.size

    @property
    def has_equal_rates(self) -> bool:
        return bool((self.rates == self.rates[:1]).all())

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

        It is the mean of the strata's means; a stratum without a draw counts as all others together.
        """
        count = self.weights.size
        if count == 1:
            return math.fsum(values) / values.size
        scores = values / self.largest_values[: values.size]
        drawn = self.stratum[: values.size]
        counts = np.bincount(drawn, minlength=count)
        sums = np.bincount(drawn, scores, minlength=count)
        means = np.where(counts > 0, sums / np.maximum(counts, 1), scores.mean())
        total = np.bincount(self.stratum) * self.weights * means
        return float(total.sum() / self.population)


class LevelBets:
    """The bets on a prefix of a population's values, for and against a mean above any level.

    An element of stratum k has a value v from 0 to the weight w_k. The null hypothesis is "the mean of all N values is
    at most m". The elements are drawn without replacement; the next one is drawn with a probability proportional to
    the rate of its stratum, which is fixed before the first draw. With equal rates this is a uniformly random order.

    Before a draw, let R be the number of elements left, S the sum of the values drawn, and q_k the mean rate of the
    elements left divided by the rate of stratum k. Any element of stratum k is next with probability 1 / (R q_k),
    so the expectation of q_k v is the mean of the values left, for any rates. If the null holds, that mean is at most
    (N m - S) / R. Let a be a prediction of every value left that is fixed before the draw, such as the mean of its
    stratum so far. Which elements are left is known, so the mean c of their predictions is known too. With a bound b
    that no q_k a exceeds, the payoff q_k (v - a) + b is never negative, and under the null its expectation is at most
    (N m - S) / R - c + b. Capital that is bet on the payoff at these odds is a nonnegative supermartingale: an
    e-process for any rates and any predictions. They only decide how much the payoffs vary, which is little if a
    predicts v. An average of e-processes with several predictions is an e-process too.

    `shares` are those of the largest allowed stake over which the capital is averaged. Raises ValueError for a value
    outside 0 to the weight of its stratum, which would make the evidence NaN.
    """

    def __init__(self, values: Floats, strata: Strata, *, shares: Floats = SHARES):
        largest = strata.largest_values[: values.size]
        # NaN is outside too, because it compares as false. A weighted mean may exceed 1 by rounding.
        is_inside = (values >= -TIE_TOLERANCE) & (values <= largest + TIE_TOLERANCE)
        if not is_inside.all():
            outside = float(values[~is_inside][0])
            raise ValueError(f"{outside!r} among the scores: they run from 0 to the weight of their stratum")
        # A mean of at least m is a mean of at most `largest_mean` - m of the distances to the largest values.
        self._values = np.stack([values, largest - values])
        bets = []
        if strata.weights.size > 1:
            bets.append(_predicted_bets(values, strata))
        if strata.has_equal_rates:
            # Values without a prediction; with other rates they would vary as the importance of their strata does.
            bets.append((self._values, np.zeros_like(self._values)))
        payoffs, offsets = zip(*bets, strict=True)
        # Shape (e-processes, 2, draws).
        self._payoffs, self._offsets = np.stack(payoffs), np.stack(offsets)
        self._population = strata.population
        self._largest_mean = strata.largest_mean
        self._shares = shares

    def log_evidence(self, low: float, high: float) -> Floats:
        """Return the log e-processes against "the mean is at most `low`" and "the mean is at least `high`".

        The result has shape (2, draws), with +inf from the draw on that makes the null hypothesis impossible. A level
        below 0 or above the largest possible mean is moved there: beyond, a null hypothesis would be refuted at once.
        """
        not_above, not_below = max(0.0, low), max(0.0, self._largest_mean - high)
        nulls = np.array([[not_above], [not_below]])
        total, sums = self._population * nulls, self._values.cumsum(axis=-1)
        left = self._population - np.arange(sums.shape[-1])
        sums_before = sums - self._values
        expected = (total - sums_before) / left + self._offsets
        # The lower bound avoids a division by zero; raising what is expected only lowers the evidence.
        gains = self._payoffs / np.maximum(expected, TIE_TOLERANCE) - 1
        logs = _log_capital(gains, self._shares)
        mean_log = np.logaddexp.reduce(logs, axis=0) - math.log(len(logs))
        impossible = sums > total + self._population * TIE_TOLERANCE
        return np.where(impossible, np.inf, mean_log)


def _predicted_bets(values: Floats, strata: Strata) -> tuple[Floats, Floats]:
    """Return payoffs and offsets, each of shape (2, draws), of bets that predict the mean of the stratum so far.

    An offset is by how much the largest expectation of a payoff exceeds the mean of the values left.
    """
    draws, weights = values.size, strata.weights
    importance, shares = strata.importance[:draws], strata.shares[:draws]
    predicted = _means_before(values, strata)
    # Importance is 0 where no element is left; any bound of at least 0 is safe there.
    highest, lowest = importance * predicted, importance * (weights - predicted)
    upper, lower = highest.max(axis=-1, initial=0.0), lowest.max(axis=-1, initial=0.0)
    own = np.arange(draws), strata.stratum[:draws]
    residuals = importance[own] * (values - predicted[own])
    expected = (shares * predicted).sum(axis=-1)
    expected_distance = shares @ weights - expected
    offsets = np.stack([upper - expected, lower - expected_distance])
    # Rounding must not make a payoff of 0 negative.
    payoffs = np.maximum([upper + residuals, lower - residuals], 0.0)
    return payoffs, offsets


def _means_before(values: Floats, strata: Strata) -> Floats:
    """Return the mean of every stratum's values before every draw, of shape (values, strata), in units of its weight.

    It starts at the mean over all strata, and that one at a half.
    """
    draws = values.size
    sums = _sums_before(values / strata.largest_values[:draws], strata)
    counts = np.arange(1, draws + 1)[:, np.newaxis]
    overall = (sums.sum(axis=-1, keepdims=True) + 0.5) / counts
    means: Floats = (sums + PRIOR_DRAWS * overall) / (strata.drawn[:draws] + PRIOR_DRAWS)
    return strata.weights * means


def _sums_before(values: Floats, strata: Strata) -> Floats:
    """Return the sum of every stratum's values before every draw, of shape (values, strata)."""
    sums = np.zeros((values.size + 1, strata.weights.size))
    sums[np.arange(1, values.size + 1), strata.stratum[: values.size]] = values
    return sums.cumsum(axis=0)[:-1]
