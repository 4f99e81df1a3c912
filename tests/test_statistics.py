"""The interval of a mean: it holds the mean, narrows with more samples, and never leaves 0 to 1."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.gates.statistics import mean_interval

MEANS = st.floats(0, 1)
COUNTS = st.integers(1, 100_000)


@settings(deadline=None)
@given(MEANS, COUNTS)
def test_the_interval_holds_the_mean_and_stays_within_bounds(mean: float, samples: int) -> None:
    low, high = mean_interval(mean, samples)
    assert 0 <= low <= mean <= high <= 1
    assert math.isfinite(low + high)


@settings(deadline=None)
@given(MEANS, COUNTS, st.integers(2, 10))
def test_more_samples_narrow_the_interval(mean: float, samples: int, times: int) -> None:
    low, high = mean_interval(mean, samples)
    lower, higher = mean_interval(mean, samples * times)
    assert low <= lower + 1e-12
    assert higher <= high + 1e-12
    assert higher - lower < high - low


@settings(deadline=None)
@given(MEANS, COUNTS)
def test_more_confidence_widens_the_interval(mean: float, samples: int) -> None:
    low, high = mean_interval(mean, samples, confidence=0.9)
    lower, higher = mean_interval(mean, samples, confidence=0.99)
    assert lower <= low + 1e-12
    assert high <= higher + 1e-12


@settings(deadline=None)
@given(MEANS, COUNTS)
def test_failures_mirror_successes(mean: float, samples: int) -> None:
    low, high = mean_interval(mean, samples)
    assert list(mean_interval(1 - mean, samples)) == pytest.approx([1 - high, 1 - low], abs=1e-9)


@pytest.mark.parametrize(
    ("mean", "samples", "low", "high"),
    # Wilson's score interval at 95 %, as statistical packages print it.
    [(0.5, 10, 0.2366, 0.7634), (0.0, 10, 0.0, 0.2775), (1.0, 20, 0.8389, 1.0), (0.9, 100, 0.8256, 0.9448)],
)
def test_published_intervals_are_reproduced(mean: float, samples: int, low: float, high: float) -> None:
    assert list(mean_interval(mean, samples, confidence=0.95)) == pytest.approx([low, high], abs=1e-4)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_the_interval_holds_the_truth_as_often_as_it_says(share: float) -> None:
    random = Random(0)
    held = 0
    for _ in range(2000):
        low, high = mean_interval(sum(random.random() < share for _ in range(100)) / 100, 100)
        held += low <= share <= high
    assert held / 2000 > 0.975


@pytest.mark.parametrize(
    ("mean", "samples"), [(0.5, 0), (0.5, -1), (-0.01, 5), (1.01, 5), (math.nan, 5), (math.inf, 5), (85.6, 500)]
)
def test_what_is_no_mean_raises(mean: float, samples: int) -> None:
    with pytest.raises(ValueError, match="give a mean from 0 to 1 of at least one sample"):
        mean_interval(mean, samples)
