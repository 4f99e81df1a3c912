"""Evidence on a population of several tasks is valid for any order and prediction, and saves samples."""

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from longctx.plugins.evidence.e_process import Floats, LevelBets, Strata
from longctx.plugins.evidence.statistics import paired_evidence, paired_interval, stratified_interval

POPULATION = 5


@st.composite
def populations(draw: st.DrawFn) -> tuple[list[int], Floats, Floats, Floats]:
    """Draw strata of all elements, the strata's weights and rates, and the values."""
    strata = draw(st.sampled_from([[0, 0, 0, 0, 0], [0, 0, 0, 1, 1], [0, 1, 1, 1, 1], [0, 0, 1, 1, 2]]))
    count = max(strata) + 1
    shares = st.lists(st.sampled_from([0.0, 0.3, 0.5, 1.0]), min_size=POPULATION, max_size=POPULATION)
    weights = np.array(draw(st.lists(st.sampled_from([0.25, 1.0]), min_size=count, max_size=count)))
    rates = np.array(draw(st.lists(st.sampled_from([1.0, 1.0, 5.0]), min_size=count, max_size=count)))
    values = weights[strata] * np.array(draw(shares))
    return strata, weights, rates, values


@settings(deadline=None, max_examples=15)
@given(populations())
def test_the_next_draw_is_expected_to_add_no_evidence_against_a_true_hypothesis(
    population: tuple[list[int], Floats, Floats, Floats],
) -> None:
    """All orders are enumerated with their probabilities, so this is exact: a supermartingale on both sides."""
    strata, weights, rates, values = population
    mean = float(values.mean())
    capital: dict[tuple[int, ...], Floats] = {(): np.ones(2)}
    for order in map(list, permutations(range(POPULATION))):
        drawn = Strata(stratum=np.array(strata)[order], weights=weights, rates=rates)
        logs = LevelBets(values[order][:-1], drawn).log_evidence(mean, mean)
        for looks in range(1, POPULATION):
            capital[tuple(order[:looks])] = np.exp(logs[:, looks - 1])
    element_rates = rates[strata]
    for prefix, before in capital.items():
        left = [element for element in range(POPULATION) if element not in prefix]
        if len(left) > 1:
            chances = element_rates[left] / element_rates[left].sum()
            after = sum(chance * capital[*prefix, element] for chance, element in zip(chances, left, strict=True))
            assert (after <= before * (1 + 1e-9)).all()


def strata_of(tasks: ArrayLike, sizes: Sequence[float] = (1.0, 1.0)) -> Strata:
    return Strata(stratum=np.array(tasks), weights=np.array(sizes), rates=np.ones(len(sizes)))


def test_the_interval_of_a_whole_population_is_its_mean() -> None:
    strata = strata_of([0, 1, 1, 0], (1.0, 0.5))
    assert stratified_interval(np.array([1.0, 0.5, 0.0, 0.5]), strata, alpha=0.1) == (0.5, 0.5)


@settings(deadline=None, max_examples=10)
@given(populations())
def test_paired_evidence_at_other_rates_grows_under_no_true_hypothesis(
    population: tuple[list[int], Floats, Floats, Floats],
) -> None:
    """Over all orders, with their probabilities, the evidence against a true limit has an expectation of at most 1."""
    strata, weights, rates, values = population
    differences = 2 * values - weights[strata]
    mean = float(differences.mean())
    # A loss that is just allowed, and one of just half as much.
    for drop, side in ((-mean, 0), (-2 * mean, 1)):
        if not 0 < drop <= 1:
            continue
        expectation = np.zeros(POPULATION - 1)
        for order in map(list, permutations(range(POPULATION))):
            left, chance = rates[np.array(strata)[order]], 1.0
            for place in range(POPULATION):
                chance *= left[place] / left[place:].sum()
            drawn = Strata(stratum=np.array(strata)[order], weights=weights, rates=rates)
            logs = paired_evidence(differences[order], drawn, drop=drop)
            expectation += chance * np.exp(logs[side])
        assert (expectation <= 1 + 1e-9).all()


def test_a_paired_interval_at_other_rates_contains_the_mean_and_closes_on_it() -> None:
    random = np.random.default_rng(1)
    weights = np.array([1.0, 0.25])
    stratum = random.permutation([0] * 20 + [1] * 80)
    strata = Strata(stratum=stratum, weights=weights, rates=weights)
    differences = weights[stratum] * random.choice((-1.0, 0.0, 1.0), 100)
    for looks in (5, 60, 100):
        low, high = paired_interval(differences[:looks], strata, alpha=0.01)
        assert low - 1e-9 <= differences.mean() <= high + 1e-9
    assert low == pytest.approx(high)
    assert paired_interval(np.empty(0), strata, alpha=0.01) == pytest.approx((-0.4, 0.4))
