"""A mean below its threshold fails a run of a series only if the model is shown to be below."""

import math

import numpy as np
import pytest

from longctx.plugins.evidence.haystacks import level_p_values
from longctx.plugins.evidence.sequential import ErrorShares, Hypothesis
from longctx.plugins.verdicts.panels import Panel
from tests.helpers.queues import case

SAMPLES = 200
CASE = case("a", 1024, SAMPLES)


def decided(right: int, threshold: float, *, series: int = 1) -> tuple[str | None, str | None]:
    """Return the verdict and what is shown of the model, with so many right answers of all samples."""
    confirmation = ErrorShares.of_mean(0.01 / series) if series > 1 else None
    hypothesis = Hypothesis(case_ids=frozenset({CASE.id}), threshold=threshold, confirmation=confirmation)
    panel = Panel("ruler", 1024, [CASE], seed=0, hypotheses=[hypothesis], full=True)
    # Spread evenly over the queue, so that no early verdict is reached by chance.
    marks = np.diff(np.arange(SAMPLES + 1) * right // SAMPLES).astype(float)
    found = panel.analyze(hypothesis, dict(zip(panel.order, marks.tolist(), strict=True)))
    return None if found.decision is None else found.decision.verdict, found.of_model


def test_a_run_of_its_own_follows_the_planned_samples_and_says_that_the_model_is_near() -> None:
    assert decided(169, 0.85) == ("fail", "near")
    assert decided(171, 0.85) == ("pass", "near")


def test_in_a_series_a_mean_that_is_near_is_not_failed_and_one_far_below_is() -> None:
    assert decided(169, 0.85, series=200) == (None, "near")
    assert decided(171, 0.85, series=200) == ("pass", "near")
    assert decided(120, 0.85, series=200) == ("fail", "below")
    assert decided(0, 0.85, series=200) == ("fail", "below")


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_p_values_of_a_mean_are_calibrated_on_haystacks(correlation: float) -> None:
    rng, below, runs = np.random.default_rng(0), 0, 1500
    haystacks = np.arange(320) % 32
    for _ in range(runs):
        cases = []
        for accuracy in (0.5, 0.8, 0.7):
            shared = rng.random(32)[haystacks]
            together = rng.random(320) < np.sqrt(correlation)
            cases.append(((np.where(together, shared, rng.random(320)) < accuracy).astype(float), haystacks))
        found = level_p_values([[each] for each in cases], 2 / 3)
        assert found is not None
        below += int(found[1] <= 0.05)
    assert below / runs <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / runs)


def test_means_that_do_not_vary_have_the_p_values_of_a_bound_and_single_haystacks_none() -> None:
    found = level_p_values([[(np.ones(10), np.arange(10))]], 0.5)
    assert found is not None
    assert found == pytest.approx((math.e * 0.5**10, 1.0))
    assert level_p_values([[(np.array([0.0, 1.0]), np.zeros(2, dtype=np.intp))]], 0.5) is None


@pytest.mark.parametrize("right", [0, 1, 2, 4])
def test_few_right_answers_show_no_more_than_the_binomial_tail(right: int) -> None:
    """A mean of 3 % of 312 samples: one right answer seems to have hardly any variance, and a t-test takes it so."""
    marks = np.zeros((13, 24))
    marks[range(right), 0] = 1.0
    found = level_p_values([[(values, np.arange(24))] for values in marks], 0.03)
    tail = sum(math.comb(312, k) * 0.03**k * 0.97 ** (312 - k) for k in range(right + 1))
    assert found is not None
    assert found[1] >= math.e * tail * 0.999
