"""Claims about a model count a haystack once, however many of its samples are measured."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.fixtures.records import Case
from longctx.plugins.evidence.clusters import ClusteredQueue
from longctx.plugins.evidence.e_process import Floats
from longctx.plugins.evidence.haystacks import (
    correlation,
    difference_interval,
    level_interval,
    model_mean,
)
from longctx.plugins.verdicts.panels import Panel
from tests.helpers.queues import case


def blocks(rng: np.random.Generator, *, haystacks: int, size: int, mean: float, correlated: float) -> Floats:
    """Return scores of 0 and 1 by haystack and sample, with this intra-cluster correlation."""
    strength = 1 / correlated - 1 if correlated else 0.0
    of_haystack = (
        rng.beta(mean * strength, (1 - mean) * strength, haystacks) if correlated else np.full(haystacks, mean)
    )
    return (rng.random((size, haystacks)) < of_haystack).T.astype(np.float64)


@settings(deadline=None, derandomize=True, max_examples=25)
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=30), st.integers(1, 4))
def test_a_standard_error_counts_a_haystack_once(values: list[float], repeats: int) -> None:
    own = np.arange(len(values))
    single, several = (
        model_mean([[(np.array(values), own)]]),
        model_mean([[(np.tile(values, repeats), np.tile(own, repeats))]]),
    )
    assert single is not None
    assert several is not None
    assert math.sqrt(single.variance) == pytest.approx(np.std(values, ddof=1) / math.sqrt(len(values)), abs=1e-12)
    assert math.sqrt(several.variance) == pytest.approx(math.sqrt(single.variance), abs=1e-12)
    assert model_mean([[(np.array(values), 0 * own)]]) is None


def test_equal_samples_on_a_haystack_tell_no_more_than_one() -> None:
    scores, own = np.array([1.0] * 16 + [0.0] * 4), np.arange(20)
    once, often = (level_interval([[(np.tile(scores, n), np.tile(own, n))]], alpha=0.01) for n in (1, 8))
    alone = level_interval([[(np.tile(scores, 8), np.arange(160))]], alpha=0.01)
    assert often == pytest.approx(once, abs=0.02)
    assert alone[0] > once[0] + 0.05


def test_a_text_in_two_cases_is_one_unit() -> None:
    scores, own = np.array([1.0] * 30 + [0.0] * 10), np.arange(40)
    together, apart = [[(scores, own), (scores, own)]], [[(scores, own)], [(scores, own)]]
    for interval_of in (level_interval, difference_interval):
        widths = [high - low for low, high in (interval_of(strata, alpha=0.01) for strata in (together, apart))]
        assert widths[0] > 1.25 * widths[1]


def test_without_an_estimate_anything_is_possible() -> None:
    assert level_interval([], alpha=0.01) == (0.0, 1.0)
    assert level_interval([[(np.ones(16), np.zeros(16, dtype=np.intp))]], alpha=0.01) == (0.0, 1.0)
    assert difference_interval([[(np.zeros(1), np.zeros(1, dtype=np.intp))]], alpha=0.01) == (-1.0, 1.0)


@pytest.mark.parametrize("pairs", [24, 312])
def test_equal_answers_leave_room_for_rare_losses(pairs: int) -> None:
    """No haystack of so many has changed: the upper end is about that of a probability of which none happened."""
    low, high = difference_interval([[(np.zeros(pairs), np.arange(pairs))]], alpha=0.01)
    assert low == -high
    assert 1 - 0.005 ** (1 / pairs) <= high <= 2 * (1 - 0.005 ** (1 / pairs))


@pytest.mark.parametrize("correlated", [0.0, 0.3])
def test_the_interval_about_the_model_holds_where_samples_are_alike(correlated: float) -> None:
    """Of 200 models with a mean of 0.8, the interval misses few."""
    rng, missed, own = np.random.default_rng(5), 0, np.repeat(np.arange(32), 16)
    for _ in range(200):
        scores = blocks(rng, haystacks=32, size=16, mean=0.8, correlated=correlated).ravel()
        low, high = level_interval([[(scores, own)]], alpha=0.05)
        missed += not low <= 0.8 <= high
    assert missed <= 16


@pytest.mark.parametrize("planted", [0.0, 0.2, 0.6])
def test_the_planted_correlation_is_estimated(planted: float) -> None:
    rng = np.random.default_rng(3)
    cases = [
        (blocks(rng, haystacks=100, size=16, mean=mean, correlated=planted).ravel(), np.repeat(np.arange(100), 16))
        for mean in (0.5, 0.7, 0.9)
    ]
    estimate = correlation(cases)
    assert estimate is not None
    assert estimate.value == pytest.approx(planted, abs=0.08)
    assert abs(estimate.value - planted) < 4 * estimate.standard_error


def test_too_few_samples_on_a_haystack_give_no_correlation() -> None:
    assert correlation([]) is None
    assert correlation([(np.array([1.0, 0.0] * 20), np.arange(40))]) is None
    assert correlation([(np.ones(64), np.repeat(np.arange(4), 16))]) is None


def case_of(task: str, samples: int, *, shares_haystacks: bool) -> Case:
    return replace(case(task, 4096, samples), shares_haystacks=shares_haystacks)


def queue_of(*cases: Case) -> ClusteredQueue:
    return Panel("ruler", 4096, cases, seed=0, hypotheses=()).queue({case.id for case in cases})


def sizes_of(queue: ClusteredQueue) -> list[int]:
    """Return the number of clusters of every haystack."""
    sizes: list[int] = np.bincount(queue.units).tolist()
    return sizes


@pytest.mark.parametrize(
    ("samples", "sizes"), [(24, {1: 24}), (32, {1: 32}), (40, {1: 24, 2: 8}), (500, {15: 12, 16: 20})]
)
def test_a_case_shares_haystacks_only_when_all_of_them_are_used(samples: int, sizes: dict[int, int]) -> None:
    queue = queue_of(case_of("shared", samples, shares_haystacks=True))
    assert Counter(sizes_of(queue)) == sizes
    assert bool(queue.values_by_case(np.zeros(samples))) == (samples > 32)


@pytest.mark.parametrize("samples", [24, 500])
def test_only_cases_that_share_haystacks_can_show_a_correlation(samples: int) -> None:
    shared, alone = case_of("shared", samples, shares_haystacks=True), case_of("alone", samples, shares_haystacks=False)
    queue = queue_of(shared, alone)
    assert sizes_of(queue_of(alone)) == [1] * samples
    of_shared = queue.values_by_case(np.arange(2 * samples) / (2 * samples))
    assert [(values.size, len(set(own.tolist()))) for values, own in of_shared] == [(samples, 32)] * (samples > 32)
