"""The test of a loss on haystacks: how often would an unchanged model lose as much?

A unit is all that one model and another score differently on one haystack: the sum of their differences. If the models
are equal, model and baseline are exchangeable on every haystack, so each sum is as likely to have the other sign,
independently of all others (Fisher 1935; Efron 1969, "Student's t-test under symmetry conditions"). The p-value is the
share of all sign patterns with a loss of at least the observed one. It is exact for any number of haystacks, any
correlation on them and any scores; if only the means of the models are equal, it is so asymptotically (Canay, Romano
and Shaikh 2017, "Randomization tests under an approximate symmetry assumption"). Small losses on most haystacks that
large gains on a few outweigh are then rejected too often, so the larger p-value of two tests counts: the second is a
t-test that allows for skewness, or for few units a bound that needs no symmetry.
"""

import math

import numpy as np
from numpy.typing import NDArray

from longctx.plugins.evidence.e_process import TIE_TOLERANCE, Floats

# Fewer units are tested by a bound that holds for any distribution with few flips.
FEWEST_UNITS = 20
# The share of the pairs of an unchanged model whose scores differ, as the bound assumes it.
ASSUMED_FLIPS = 0.2
# Sums that are multiples of the largest one divided by a number up to this are counted exactly; others are rounded to
# such multiples, and the loss is lowered by all that rounding may have added to it.
MOST_LEVELS = 480
GRID_TOLERANCE = 1e-7
STAKES = 400
# More than the error of the Fourier transform.
ROUNDING = 1e-15


def loss_p_value(sums: Floats, largest: Floats) -> float:
    """Return the probability that an unchanged model loses as much as the sums of differences show.

    `sums` has the sum of model - baseline of every unit, `largest` the largest absolute value that it can have.
    The result is 1 for sums that show no loss.
    """
    if sums.sum() >= 0:
        return 1.0
    other = skewed_p_value(sums) if sums.size >= FEWEST_UNITS else bounded_p_value(sums, largest)
    return max(sign_flip_p_value(sums), other)


def sign_flip_p_value(sums: Floats) -> float:
    """Return the share of sign patterns whose sum is at most that of `sums`; 1 if none of them differs from zero."""
    sizes = np.abs(sums)
    sizes = sizes[sizes > TIE_TOLERANCE]
    if not sizes.size:
        return 1.0
    step = _grid_step(sizes)
    steps = np.maximum(1, np.rint(sizes / step).astype(np.int64))
    rounded = float(np.abs(sizes - steps * step).sum())
    total = int(steps.sum())
    lost = (-float(sums.sum()) - rounded) / step
    loss = math.ceil(lost - TIE_TOLERANCE * total)
    # The signed total is `total` - 2 B, where B adds up the steps of the units with a minus.
    most = (total - loss) // 2
    if most >= total:
        return 1.0
    probability = float(_half_sums(steps)[: most + 1].sum())
    return min(1.0, max(0.0, probability) + ROUNDING)


def skewed_p_value(sums: Floats) -> float:
    """Return the probability that sums with a mean of zero are as low as these, allowing for their skewness.

    It is a t-test with Hall's transformation (1992, "On the removal of skewness by transformation") and the normal
    distribution. Rare large gains beside many small losses make an ordinary test reject too often.
    """
    mean, deviation = float(sums.mean()), float(sums.std(ddof=1))
    if deviation == 0:
        return 0.0
    skewness = float((((sums - mean) / deviation) ** 3).mean())
    root = math.sqrt(sums.size)
    return skewed_tail(root * mean / deviation, skewness / root)


def skewed_tail(standardized: float, skewness: float) -> float:
    """Return the probability of a mean as low as this many standard errors, given the skewness of its estimate."""
    third = skewness / 3
    # The cube of 1 + third * standardized, less 1, divided by 3 * third.
    transformed = standardized * (1 + third * standardized + (third * standardized) ** 2 / 3)
    return 0.5 * math.erfc(-(transformed + skewness / 6) / math.sqrt(2))


def _grid_step(sizes: Floats) -> float:
    """Return the largest step of which all sizes are multiples, else the largest size divided by `MOST_LEVELS`."""
    largest = float(sizes.max())
    levels = np.arange(1, MOST_LEVELS + 1)
    multiples = np.unique(sizes / largest) * levels[:, np.newaxis]
    exact = (np.abs(multiples - np.rint(multiples)) < GRID_TOLERANCE).all(axis=1)
    return largest / (int(levels[exact.argmax()]) if exact.any() else MOST_LEVELS)


def _half_sums(steps: NDArray[np.int64]) -> Floats:
    """Return the distribution of the sum of a random half of the steps: of each with probability 1/2.

    Its characteristic function is the product of exp(i k t / 2) cos(k t / 2) over all steps k.
    """
    total = int(steps.sum())
    size = 1 << total.bit_length()
    points = np.arange(size // 2 + 1)
    angle = np.pi / size
    transform = np.ones(points.size)
    for value, count in zip(*np.unique(steps, return_counts=True), strict=True):
        transform *= np.cos(value * (angle * points)) ** count
    # Whole turns are left out first, because large angles lose precision.
    turns = np.fmod(float(total) * points, 2 * size)
    distribution: Floats = np.fft.irfft(transform * np.exp(-1j * angle * turns), n=size)
    return distribution


def bounded_p_value(sums: Floats, largest: Floats, flips: float = ASSUMED_FLIPS) -> float:
    """Return a bound on the probability that an unchanged model loses as much, if so few of its answers flip.

    It is Chernoff's bound for units whose pairs all flip together, the worst case, in either direction (Bennett 1962,
    "Probability inequalities for the sum of independent random variables").
    """
    loss, unit = -float(sums.sum()), float(largest.max())
    # Every stake gives a bound, so the best one of a grid is one.
    stakes = np.geomspace(0.01, 50.0, STAKES) / unit
    excess = np.cosh(stakes[:, np.newaxis] * largest) - 1
    growth = np.log1p(flips * excess).sum(axis=1)
    log_bounds = growth - stakes * loss
    return math.exp(min(0.0, log_bounds.min()))
