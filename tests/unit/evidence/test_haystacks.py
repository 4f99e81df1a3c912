"""Claims about a model count a haystack once, however many of its samples are measured."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.fixtures.records import Case
from longctx.plugins.evidence.clusters import ClusteredQueue
from longctx.plugins.evidence.e_process import Floats
from longctx.plugins.evidence.haystacks import (
    Haystacks,
    clustered_error,
    correlation,
    layers,
    model_interval,
    model_paired_evidence,
    model_paired_interval,
)
from longctx.plugins.evidence.statistics import interval, paired_evidence
from longctx.plugins.verdicts.panels import Panel

DIFFERENCES = st.lists(st.tuples(st.integers(0, 5), st.sampled_from([-1.0, -0.25, 0.0, 0.5, 1.0])), max_size=40)


def haystacks_of(numbers: list[int], sizes: list[int] | None = None) -> Haystacks:
    own = np.array(numbers, dtype=np.intp)
    return Haystacks(of_cluster=own, sizes=np.bincount(own) if sizes is None else np.array(sizes))


def blocks(rng: np.random.Generator, *, haystacks: int, size: int, mean: float, correlated: float) -> Floats:
    """Return scores of 0 and 1 by haystack and sample, with this intra-cluster correlation."""
    strength = 1 / correlated - 1 if correlated else 0.0
    of_haystack = (
        rng.beta(mean * strength, (1 - mean) * strength, haystacks) if correlated else np.full(haystacks, mean)
    )
    return (rng.random((size, haystacks)) < of_haystack).T.astype(np.float64)


def test_a_layer_counts_a_haystack_once_it_has_enough_clusters() -> None:
    values = np.array([1.0, 0.0, 0.0, 1.0, 1.0, 0.0])
    observed = layers(values, haystacks_of([0, 1, 0, 0, 2, 1], [4, 2, 1]))
    assert [layer.places.tolist() for layer in observed] == [[0, 1, 4], [2, 4, 5], [4, 5]]
    assert [layer.values.tolist() for layer in observed] == [[1.0, 0.0, 1.0], [0.5, 1.0, 0.0], [1.0, 0.0]]


def test_the_interval_about_the_model_excludes_what_a_verdict_has_refuted() -> None:
    """As soon as evidence refutes a loss, the interval of the same error is above it, and not before."""
    random = np.random.default_rng(4)
    differences = random.choice((-1.0, 0.0, 1.0), 1000, p=(0.02, 0.96, 0.02))
    # Haystacks of 4 clusters each.
    haystacks = haystacks_of((random.permutation(1000) // 4).tolist())
    non_inferior, _ = model_paired_evidence(differences, haystacks, drop=0.05, clear=0.0)
    passed = int((non_inferior >= math.log(100)).argmax()) + 1
    before, after = (
        model_paired_interval(differences[:looks], haystacks, alpha=0.02)[0] for looks in (passed - 1, passed)
    )
    assert before < -0.05 <= after + 1e-6


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=30), st.integers(1, 4))
def test_a_standard_error_counts_a_haystack_once(values: list[float], repeats: int) -> None:
    single = clustered_error(np.array(values), haystacks_of(list(range(len(values)))))
    assert single == pytest.approx(np.std(values, ddof=1) / math.sqrt(len(values)))
    repeated = haystacks_of(list(range(len(values))) * repeats)
    assert clustered_error(np.array(values * repeats), repeated) == pytest.approx(single)
    assert clustered_error(np.array(values), haystacks_of([0] * len(values))) is None


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(st.floats(0, 1), max_size=30))
def test_without_shared_haystacks_every_cluster_is_an_observation(values: list[float]) -> None:
    scores, alone = np.array(values), haystacks_of(list(range(len(values))))
    assert model_interval(scores, alone, alpha=0.01) == pytest.approx(interval(scores, alpha=0.01))
    evidence = model_paired_evidence(scores, alone, drop=0.1, clear=0.05)
    for shown, plain in zip(evidence, paired_evidence(scores, drop=0.1, clear=0.05), strict=True):
        assert shown == pytest.approx(plain)


def test_equal_samples_on_a_haystack_tell_no_more_than_one() -> None:
    once, often = haystacks_of(list(range(20))), haystacks_of([*range(20)] * 8)
    scores = np.array([1.0] * 16 + [0.0] * 4)
    wide, all_equal = model_interval(scores, once, alpha=0.01), model_interval(np.tile(scores, 8), often, alpha=0.01)
    assert all_equal[0] <= wide[0] < wide[1] <= all_equal[1]
    assert interval(np.tile(scores, 8), alpha=0.01)[0] > all_equal[0] + 0.05


@settings(deadline=None, derandomize=True, max_examples=80)
@given(DIFFERENCES)
def test_intervals_contain_the_mean_and_layers_stay_in_range(pairs: list[tuple[int, float]]) -> None:
    differences = np.array([difference for _, difference in pairs])
    haystacks = haystacks_of([number for number, _ in pairs], [16] * 6)
    low, high = model_paired_interval(differences, haystacks, alpha=0.01)
    mean = math.fsum(differences) / len(pairs) if pairs else 0.0
    assert -1 <= low <= mean + 1e-12
    assert mean - 1e-12 <= high <= 1
    assert all(np.all(np.abs(layer.values) <= 1) for layer in layers(differences, haystacks))


@pytest.mark.parametrize("correlated", [0.0, 0.3])
def test_the_interval_about_the_model_holds_where_samples_are_alike(correlated: float) -> None:
    """Of 80 models with a mean of 0.8, the interval misses few, at the look where that is likeliest."""
    rng, missed = np.random.default_rng(5), 0
    numbers = np.repeat(np.arange(32), 16)
    for _ in range(80):
        scores = blocks(rng, haystacks=32, size=16, mean=0.8, correlated=correlated).ravel()
        order = rng.permutation(512)
        haystacks = Haystacks(of_cluster=numbers[order], sizes=np.full(32, 16))
        low, high = model_interval(scores[order], haystacks, alpha=0.05)
        missed += not low <= 0.8 <= high
    assert missed <= 4


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
    return Case(
        id=f"test_ruler[{task}-4k]", suite="ruler", category="retrieval", task=task, length=4096, samples=samples,
        source="archive", generation_tokens=8, shares_haystacks=shares_haystacks,
    )  # fmt: skip


def queue_of(*cases: Case) -> ClusteredQueue:
    return Panel("ruler", 4096, cases, seed=0, hypotheses=()).queue({case.id for case in cases})


@pytest.mark.parametrize(
    ("samples", "sizes"), [(24, {1: 24}), (32, {1: 32}), (40, {1: 24, 2: 8}), (500, {15: 12, 16: 20})]
)
def test_a_case_shares_haystacks_only_when_all_of_them_are_used(samples: int, sizes: dict[int, int]) -> None:
    queue = queue_of(case_of("shared", samples, shares_haystacks=True))
    assert Counter(queue.haystacks.sizes.tolist()) == sizes
    assert bool(queue.values_by_case(np.zeros(samples))) == (samples > 32)


@pytest.mark.parametrize("samples", [24, 40, 100, 500])
def test_a_queue_joins_samples_where_another_case_shares_haystacks(samples: int) -> None:
    """Both cases have as many haystacks then, and so the same weight in the mean of haystacks."""
    shared, alone = case_of("shared", samples, shares_haystacks=True), case_of("alone", samples, shares_haystacks=False)
    queue = queue_of(shared, alone)
    by_case = [
        np.bincount(queue.haystacks.of_cluster[queue.strata.stratum == number], minlength=len(queue.haystacks.sizes))
        for number in (0, 1)
    ]
    one, other = (sorted(sizes[sizes > 0].tolist()) for sizes in by_case)
    assert one == other
    assert len(one) == min(samples, 32)
    assert queue_of(alone).haystacks.sizes.tolist() == [1] * samples
    of_shared = queue.values_by_case(np.arange(2 * samples) / (2 * samples))
    assert [(values.size, len(set(own.tolist()))) for values, own in of_shared] == [(samples, 32)] * (samples > 32)


def test_a_smaller_case_has_as_many_samples_on_a_joined_haystack() -> None:
    shared, alone = case_of("shared", 160, shares_haystacks=True), case_of("alone", 20, shares_haystacks=False)
    assert sorted(queue_of(shared, alone).haystacks.sizes.tolist()) == [5] * (32 + 4)
