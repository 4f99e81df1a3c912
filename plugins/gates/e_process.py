"""Evidence against a hypothesis on a mean that stays valid however often one looks at it: an e-process.

An e-process against a null hypothesis starts at 1, and while the null holds its expectation is at most 1 at every
stopping time. So it ever reaches 1/alpha with probability at most alpha (Ville's inequality).

The e-process here is the capital of a gambler who bets against the null before every score (Waudby-Smith and Ramdas
2024, "Estimating means of bounded random variables by betting"; section 4 with replacement, section 5 without).
Against "the mean is at most m", with the share s of the largest allowed stake, the capital after x_1 ... x_t is the
product of 1 + s (x_i / m_i - 1). With replacement m_i = m. Without replacement from a population of N,
m_i = (N m - x_1 - ... - x_{i-1}) / (N - i + 1), the mean of the scores still to be drawn if the null holds exactly.
The best share is unknown, so the capital is averaged over a grid of shares; an average of e-processes is one too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Two means closer than this count as equal. It exceeds what summing 100 000 scores in floating point can lose, and is
# far below the smallest difference between scores: a mean equal to its threshold must not exceed it by rounding.
TIE_TOLERANCE = 1e-10
BETS = 24
# The grid is dense near 0 and 1: a mean near the threshold needs small stakes, a distant one large stakes.
SHARES = np.sin(np.pi * (2 * np.arange(1, BETS + 1) - 1) / (4 * BETS)) ** 2
# The product of so many factors stays within a float: a factor lies between 1 - max(SHARES) and 1 / TIE_TOLERANCE.
BLOCK = 16

Floats = NDArray[np.float64]


def log_evidence(scores: ArrayLike, mean: ArrayLike, *, population: int | None = None) -> Floats:
    """Return the logarithm of the e-process against "the mean is at most `mean`", after every score.

    `scores` has shape (..., t), in queue order, from 0 to 1. `mean` is a number or broadcasts against the leading
    dimensions. With a `population`, the scores are drawn without replacement from so many, and the null is about
    their mean. Without one, a score has at most the mean of the null given the scores before it, as independent
    ones do. The result has the shape of `scores`. It is +inf from the score on that makes the null impossible.

    For "the mean is at least m", call `log_evidence(1 - x, 1 - m)`.

    Raises ValueError for a score outside [0, 1], a mean that is NaN, or more scores than the population.
    """
    x = checked(scores, 0.0)
    null = np.asarray(mean, dtype=np.float64)[..., np.newaxis]
    if np.isnan(null).any():
        raise ValueError(f"mean {mean!r}: give a number")
    sums = x.cumsum(axis=-1)
    if population is None:
        remaining_mean = null
        impossible = (null <= 0) & (sums > null)
    elif population < x.shape[-1]:
        raise ValueError(f"{x.shape[-1]} scores of a population of {population}: give its size")
    else:
        remaining_mean = (population * null - (sums - x)) / (population - np.arange(x.shape[-1]))
        impossible = sums > population * (null + TIE_TOLERANCE)
    # The lower bound avoids a division by zero. It can only raise the mean, which lowers the evidence, so it is safe.
    return np.where(impossible, np.inf, log_capital(x / np.maximum(remaining_mean, TIE_TOLERANCE) - 1))


def checked(values: ArrayLike, minimum: float) -> Floats:
    """Return the values as an array; raise ValueError if one is NaN or outside [minimum, 1]."""
    array = np.asarray(values, dtype=np.float64)
    # NaN is outside too, because it compares as false.
    inside = (array >= minimum) & (array <= 1)
    if not inside.all():
        raise ValueError(f"{float(array[~inside][0])!r} among the scores: they run from {minimum:g} to 1")
    return array


def log_capital(gains: Floats) -> Floats:
    """Return the logarithm of the mean capital over all shares after every bet.

    `gains` holds the gain of every bet per unit staked, at least -1. The factors are multiplied in blocks and the
    logarithm is taken once per block, because a logarithm per factor would make intervals too slow.
    """
    *leading, looks = gains.shape
    blocks = -(-looks // BLOCK)
    padded = np.zeros((*leading, blocks * BLOCK, 1))
    padded[..., :looks, 0] = gains
    growth = padded.reshape(*leading, blocks, BLOCK, 1) * SHARES
    growth += 1
    for step in range(1, BLOCK):
        growth[..., step, :] *= growth[..., step - 1, :]
    block_logs = np.log(growth[..., -1, :])
    logs_before = block_logs.cumsum(axis=-2) - block_logs
    largest = logs_before.max(axis=-1, keepdims=True)
    capital: Floats = np.log(np.einsum("...sb,...b->...s", growth, np.exp(logs_before - largest)) / BETS) + largest
    return capital.reshape(*leading, blocks * BLOCK)[..., :looks]
