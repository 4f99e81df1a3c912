"""Intervals agree with verdicts, hold the mean, and narrow to it."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.plugins.evidence.e_process import Strata
from longctx.plugins.evidence.statistics import interval, paired_interval
from tests.helpers.scores import QUEUES, binary_scores, decide, paired_differences

RESOLUTION = 1e-5


@settings(deadline=None, max_examples=50)
@given(QUEUES, st.integers(0, 40), st.sampled_from((0.01, 0.2)))
def test_an_interval_holds_the_mean_and_more_scores_keep_it_inside(
    scores: list[float], more: int, alpha: float
) -> None:
    population = len(scores) + more
    mean = math.fsum(scores) / len(scores)
    wide = interval(scores[: len(scores) // 2], alpha=alpha, population=population)
    low, high = interval(scores, alpha=alpha, population=population)
    assert 0 <= low <= mean <= high <= 1
    assert min(wide[0], mean) <= low + RESOLUTION
    assert high - RESOLUTION <= max(wide[1], mean)


@settings(deadline=None, max_examples=50)
@given(QUEUES, st.floats(0.05, 0.95), st.integers(1, 40))
def test_an_interval_excludes_a_threshold_when_the_gate_has_decided(
    scores: list[float], threshold: float, more: int
) -> None:
    population = len(scores) + more
    mean = math.fsum(scores) / len(scores)
    low, high = interval(scores, alpha=0.1, population=population)
    decision = decide(scores, threshold, alpha=0.05, population=population, least=1)
    if decision is None:
        assert low - RESOLUTION <= threshold <= high + RESOLUTION
    elif decision.verdict == "pass":
        assert low >= min(threshold, mean) - RESOLUTION
    else:
        assert high <= max(threshold, mean) + RESOLUTION


def test_an_interval_narrows_to_the_mean_of_the_set() -> None:
    scores = binary_scores(0.9, 500)
    widths = [high - low for low, high in (interval(scores[:n], alpha=0.01, population=500) for n in (1, 20, 100, 400))]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.06
    assert interval(scores, alpha=0.01, population=500) == (0.9, 0.9)
    assert interval([], alpha=0.01) == (0.0, 1.0)
    assert interval([1.0] * 500, alpha=0.01)[1] == 1.0
    assert interval([0.0] * 500, alpha=0.01)[0] == 0.0


def test_paired_intervals_run_from_minus_one_to_one() -> None:
    low, high = paired_interval(paired_differences(0.1, 0.05, 2000, 0), Strata.single(9000), alpha=0.01)
    assert -0.1 < low < -0.05 < high < 0
    assert paired_interval(np.empty(0), Strata.single(9), alpha=0.01) == (-1.0, 1.0)
