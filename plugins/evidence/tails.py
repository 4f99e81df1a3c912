"""The tails of Student's and the binomial distribution, from one continued fraction: scipy takes longer to import than
most comparisons take."""

from __future__ import annotations

import math

# Less than the rounding of a factor; the fraction is exact to this.
PRECISION = 1e-15
NEWTON_TOLERANCE = 1e-12


def beta_cdf(a: float, b: float, x: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b), for a and b above 0 (DLMF 8.17.4 and 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        # There the fraction converges slowly.
        return 1 - beta_cdf(b, a, 1 - x)
    log_factor = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_factor) / (a * _fraction(a, b, x))


def _fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction 1 + d_1 / (1 + d_2 / (1 + ...)), by Lentz's method."""
    value = numerator = 1.0
    denominator = 0.0
    term = 0
    while True:
        term += 1
        half = term // 2
        if term % 2:
            step = -(a + half) * (a + b + half) * x / ((a + term - 1) * (a + term))
        else:
            step = half * (b - half) * x / ((a + term - 1) * (a + term))
        denominator = 1 / (1 + step * denominator)
        numerator = 1 + step / numerator
        value *= numerator * denominator
        if abs(numerator * denominator - 1) < PRECISION:
            return value


def student_cdf(freedom: float, t: float) -> float:
    """Return the probability of at most t under Student's distribution."""
    tail = beta_cdf(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2
    return tail if t < 0 else 1 - tail


def student_quantile(freedom: float, tail: float) -> float:
    """Return the value that Student's distribution exceeds with a probability of `tail`, below a half."""
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2
    value = 0.0
    while True:
        # The tail is convex, so Newton's method stays below the quantile until it is there.
        density = math.exp(log_scale - (freedom + 1) / 2 * math.log1p(value * value / freedom))
        step = (student_cdf(freedom, -value) - tail) / density
        value += step
        if step <= NEWTON_TOLERANCE * value:
            return value


def binomial_cdf(successes: int, trials: int, share: float) -> float:
    """Return the probability of at most so many successes in independent trials that succeed with this probability."""
    return 1.0 if successes >= trials else beta_cdf(trials - successes, successes + 1, 1 - share)
