"""The tails of Student's and the binomial distribution are those of scipy."""

from __future__ import annotations

import pytest
from scipy.special import bdtr, stdtr, stdtrit

from longctx.plugins.evidence.tails import binomial_cdf, student_cdf, student_quantile


@pytest.mark.parametrize("freedom", [1, 2.5, 19, 499, 9987.3, 300_000])
@pytest.mark.parametrize("tail", [0.4, 0.05, 0.005, 2e-5, 1e-9])
def test_students_tails(freedom: float, tail: float) -> None:
    quantile = student_quantile(freedom, tail)
    assert quantile == pytest.approx(-stdtrit(freedom, tail), rel=1e-8)
    assert student_cdf(freedom, -quantile) == pytest.approx(stdtr(freedom, -quantile), rel=1e-8)
    assert student_cdf(freedom, quantile) == pytest.approx(stdtr(freedom, quantile), rel=1e-9)


@pytest.mark.parametrize("trials", [1, 8, 500, 10_000])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.856, 1.0])
@pytest.mark.parametrize("part", [0.0, 0.2, 0.3, 0.8, 1.0])
def test_the_binomial_tail(trials: int, share: float, part: float) -> None:
    successes = round(part * trials)
    expected = bdtr(successes, trials, share)
    assert binomial_cdf(successes, trials, share) == pytest.approx(expected, rel=1e-8, abs=1e-300)
