"""Evidence against a mean: the published mixture, fair at every look, and a number for whatever is a score."""

from __future__ import annotations

import math
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.plugins.evidence.e_process import log_evidence
from longctx.plugins.evidence.statistics import decide_level, decide_paired, interval, log_evidence_below
from tests.helpers.scores import MEANS, QUEUES, SCORES


def formula(scores: list[float], mean: float, population: int | None) -> list[float]:
    """The mixture, bet by bet and score by score; without the impossible nulls."""
    shares = [math.sin(math.pi * (2 * j - 1) / 96) ** 2 for j in range(1, 25)]
    capital, seen, evidence = [1.0] * 24, 0.0, []
    for turn, score in enumerate(scores):
        left = mean if population is None else (population * mean - seen) / (population - turn)
        capital = [each * (1 + share * (score / left - 1)) for each, share in zip(capital, shares, strict=True)]
        seen += score
        evidence.append(math.log(sum(capital) / 24))
    return evidence


@settings(deadline=None)
@given(QUEUES, st.floats(0.05, 0.95))
def test_evidence_is_the_published_mixture(scores: list[float], mean: float) -> None:
    assert list(log_evidence(scores, mean)) == pytest.approx(formula(scores, mean, None), abs=1e-9)
    population = len(scores) + math.ceil(sum(scores) / mean)
    assert list(log_evidence(scores, mean, population=population)) == pytest.approx(
        formula(scores, mean, population), abs=1e-9
    )


@settings(deadline=None, max_examples=30)
@given(st.lists(SCORES, min_size=1, max_size=6))
def test_bets_are_fair_over_all_orders_of_a_set(scores: list[float]) -> None:
    """While the null holds the expected e-value is at most 1 at every time: here exactly, over every order."""
    orders = np.array(list(permutations(scores)))
    mean = sum(scores) / len(scores)
    assert np.exp(log_evidence(orders, mean, population=len(scores))).mean(axis=0).max() <= 1 + 1e-6
    assert np.exp(log_evidence(1 - orders, 1 - mean, population=len(scores))).mean(axis=0).max() <= 1 + 1e-6


@settings(deadline=None, max_examples=30)
@given(st.lists(SCORES, min_size=3, max_size=3))
def test_bets_are_fair_over_all_draws_with_replacement(values: list[float]) -> None:
    draws = np.array(list(product(values, repeat=6)))
    assert np.exp(log_evidence(draws, sum(values) / 3)).mean(axis=0).max() <= 1 + 1e-6


@settings(deadline=None)
@given(st.lists(MEANS, max_size=60), st.floats(-0.5, 1.5), st.floats(0, 0.5), st.none() | st.integers(0, 100))
def test_evidence_is_a_number_and_falls_with_the_mean_it_is_against(
    scores: list[float], mean: float, step: float, more: int | None
) -> None:
    population = None if more is None else max(1, len(scores) + more)
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        against = log_evidence(scores, mean, population=population)
        against_more = log_evidence(scores, mean + step, population=population)
    assert against.shape == (len(scores),)
    assert not np.isnan(against).any()
    assert (against >= against_more - 1e-6).all()


@pytest.mark.parametrize("population", [None, 20_000])
@pytest.mark.parametrize("mean", [0.0, 1e-300, 1e-12, 0.5, 1 - 1e-12, 1.0])
@pytest.mark.parametrize("score", [0.0, 1e-300, 1.0])
def test_long_runs_of_one_score_stay_in_range(score: float, mean: float, population: int | None) -> None:
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        evidence = log_evidence(np.full(20_000, score), mean, population=population)
    assert not np.isnan(evidence).any()
    if score > mean + 1e-10:
        assert evidence[-1] > 0
    elif score <= mean:
        assert evidence[-1] <= 1e-9


@pytest.mark.parametrize("population", [None, 8])
def test_a_score_above_zero_refutes_a_mean_of_zero_for_good(population: int | None) -> None:
    evidence = log_evidence([0, 0, 0.25, 0, 0], 0.0, population=population)
    assert list(np.isposinf(evidence)) == [False, False, True, True, True]
    assert (evidence[:2] < 0).all()


def test_more_than_the_set_can_hold_is_certain_for_good() -> None:
    evidence = log_evidence([1, 1, 1, 0, 0, 0], 0.25, population=8)
    assert list(np.isposinf(evidence)) == [False, False, True, True, True, True]
    assert np.isposinf(log_evidence([0.0], -0.1)).all()
    assert np.isposinf(log_evidence([0.0], -0.1, population=8)).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.01, 1.01, 85.6])
def test_what_is_no_score_raises_and_is_shown(bad: float) -> None:
    for call in (
        lambda: log_evidence([0.5, bad], 0.5),
        lambda: decide_level([0.5, bad], 0.5, alpha=0.01, population=9),
        lambda: interval([0.5, bad], alpha=0.01),
        lambda: log_evidence_below([0.5, bad], 0.5, population=None),
    ):
        with pytest.raises(ValueError, match=rf"^{bad!r} among the scores: they run from 0 to 1"):
            call()


def test_what_makes_no_sense_raises() -> None:
    with pytest.raises(ValueError, match="3 scores of a population of 2"):
        log_evidence([0, 1, 1], 0.5, population=2)
    with pytest.raises(ValueError, match="mean nan"):
        log_evidence([0, 1, 1], math.nan)
    with pytest.raises(ValueError, match=r"\(3,\) scores for a population of 2"):
        decide_level([0, 1, 1], 0.5, alpha=0.01, population=2)
    with pytest.raises(ValueError, match=r"threshold 85\.6"):
        decide_level([0, 1, 1], 85.6, alpha=0.01, population=4)
    with pytest.raises(ValueError, match="alpha 1"):
        decide_level([0, 1, 1], 0.5, alpha=1, population=4)
    with pytest.raises(ValueError, match="alpha 0"):
        interval([0, 1, 1], alpha=0)
    with pytest.raises(ValueError, match=r"-1\.5 among the scores: they run from -1 to 1"):
        decide_paired([-1.5], drop=0.02, alpha=0.01, population=4)
    with pytest.raises(ValueError, match=r"drop 0: give"):
        decide_paired([0], drop=0, alpha=0.01, population=4)
