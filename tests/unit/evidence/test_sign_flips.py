"""The exact test of a loss: it counts all sign patterns, and fails an unchanged model no more often than it says."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.plugins.evidence.sign_flips import FEWEST_UNITS, bounded_p_value, loss_p_value, sign_flip_p_value

# Sums of scores that are multiples of one part of an answer.
sums = st.builds(
    lambda part, counts: [count / part for count in counts],
    st.sampled_from((1, 3, 4, 5, 10)),
    st.lists(st.integers(-40, 40), min_size=1, max_size=11),
)


@given(sums)
def test_every_sign_pattern_is_counted(values: list[float]) -> None:
    sizes = np.abs(values)
    patterns = (np.dot(signs, sizes) for signs in itertools.product((-1, 1), repeat=len(values)))
    exact = np.mean([total >= -sum(values) - 1e-9 for total in patterns])
    assert sign_flip_p_value(np.array(values)) == pytest.approx(exact, abs=1e-9)


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=11))
def test_rounding_never_makes_a_loss_less_likely(values: list[float]) -> None:
    sizes = np.abs(values)
    patterns = (np.dot(signs, sizes) for signs in itertools.product((-1, 1), repeat=len(values)))
    exact = np.mean([total >= -sum(values) + 1e-12 for total in patterns])
    assert exact - 1e-9 <= sign_flip_p_value(np.array(values)) <= 1


@pytest.mark.parametrize("units", [3, 19, 20, 60])
@pytest.mark.parametrize("pairs", [1, 16])
def test_an_unchanged_model_loses_as_much_no_more_often_than_the_p_value_says(units: int, pairs: int) -> None:
    """All answers on a haystack flip together, in a fifth of the haystacks, which is the most the bound allows."""
    rng = np.random.default_rng(units)
    draws = rng.choice((-1.0, 0.0, 1.0), size=(3000, units), p=(0.1, 0.8, 0.1)) * pairs
    largest = np.full(units, float(pairs))
    p_values = np.array([loss_p_value(each, largest) for each in draws])
    for alpha in (0.2, 0.05, 0.01):
        spread = 4 * np.sqrt(alpha * (1 - alpha) / len(draws))
        assert (p_values <= alpha).mean() <= alpha + spread


def test_a_loss_on_all_of_many_haystacks_is_no_chance_and_a_gain_is_no_loss() -> None:
    lost = np.full(416, -1.0)
    assert loss_p_value(lost, np.full(416, 16.0)) < 1e-12
    assert loss_p_value(-lost, np.full(416, 16.0)) == 1.0
    assert loss_p_value(np.zeros(416), np.full(416, 16.0)) == 1.0


def test_few_whole_haystacks_show_little() -> None:
    """Three lost haystacks of sixteen samples each are three observations, not 48."""
    assert bounded_p_value(np.full(3, -16.0), np.full(3, 16.0)) == pytest.approx(0.1**3, rel=0.05)
    assert FEWEST_UNITS > 3


def test_thousands_of_units_with_odd_scores_are_counted_quickly() -> None:
    rng = np.random.default_rng(0)
    values = rng.choice((-1.0, 0.0, 1.0), 6500, p=(0.06, 0.9, 0.04)) * rng.random(6500)
    assert 0 < sign_flip_p_value(values) < 0.01
