"""Evidence against a mean: the published mixture, fair at every look, and a number for whatever is a score."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.plugins.evidence.e_process import LevelBets, Strata
from longctx.plugins.evidence.statistics import interval, paired_evidence
from tests.helpers.scores import MEANS, QUEUES, decide, evidence_against


def formula(scores: list[float], mean: float, population: int) -> list[float]:
    """The mixture, bet by bet and score by score; without the impossible nulls."""
    shares = [math.sin(math.pi * (2 * j - 1) / 96) ** 2 for j in range(1, 25)]
    capital, seen, evidence = [1.0] * 24, 0.0, []
    for turn, score in enumerate(scores):
        left = (population * mean - seen) / (population - turn)
        capital = [each * (1 + share * (score / left - 1)) for each, share in zip(capital, shares, strict=True)]
        seen += score
        evidence.append(math.log(sum(capital) / 24))
    return evidence


@settings(deadline=None)
@given(QUEUES, st.floats(0.05, 0.95))
def test_evidence_is_the_published_mixture(scores: list[float], mean: float) -> None:
    population = len(scores) + math.ceil(sum(scores) / mean)
    assert list(evidence_against(scores, mean, population)) == pytest.approx(
        formula(scores, mean, population), abs=1e-9
    )


@settings(deadline=None)
@given(st.lists(MEANS, max_size=60), st.floats(-0.5, 1.5), st.floats(0, 0.5), st.integers(0, 100))
def test_evidence_is_a_number_and_falls_with_the_mean_it_is_against(
    scores: list[float], mean: float, step: float, more: int
) -> None:
    population = max(1, len(scores) + more)
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        against = evidence_against(scores, mean, population)
        against_more = evidence_against(scores, mean + step, population)
    assert against.shape == (len(scores),)
    assert not np.isnan(against).any()
    assert (against >= against_more - 1e-6).all()


@pytest.mark.parametrize("mean", [0.0, 1e-300, 1e-12, 0.5, 1 - 1e-12, 1.0])
@pytest.mark.parametrize("score", [0.0, 1e-300, 1.0])
def test_long_runs_of_one_score_stay_in_range(score: float, mean: float) -> None:
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        evidence = evidence_against(np.full(20_000, score), mean, 20_000)
    assert not np.isnan(evidence).any()
    if score > mean + 1e-10:
        assert evidence[-1] > 0
    elif score <= mean:
        assert evidence[-1] <= 1e-9


def test_a_score_above_zero_refutes_a_mean_of_zero_for_good() -> None:
    evidence = evidence_against([0, 0, 0.25, 0, 0], 0.0, 8)
    assert list(np.isposinf(evidence)) == [False, False, True, True, True]
    assert (evidence[:2] < 0).all()


def test_more_than_the_set_can_hold_is_certain_for_good() -> None:
    evidence = evidence_against([1, 1, 1, 0, 0, 0], 0.25, 8)
    assert list(np.isposinf(evidence)) == [False, False, True, True, True, True]


def test_evidence_forgets_what_was_refuted_on_the_way() -> None:
    """False discovery rates hold for evidence at a stop; its running maximum is no e-value."""
    evidence = evidence_against([1.0] * 10 + [0.0] * 40, 0.5, 100)
    assert evidence[9] > math.log(20)
    assert evidence[-1] < 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.01, 1.01, 85.6])
def test_what_is_no_score_raises_and_is_shown(bad: float) -> None:
    for call in (
        lambda: decide([0.5, bad], 0.5, population=9),
        lambda: interval([0.5, bad], alpha=0.01),
    ):
        with pytest.raises(ValueError, match=rf"^{bad!r} among the scores: they run from 0 to the weight"):
            call()
    halves = Strata(stratum=np.array([0, 1] * 4), weights=np.array([1.0, 0.5]), rates=np.ones(2))
    with pytest.raises(ValueError, match=r"^0\.75 among the scores"):
        LevelBets(np.array([0.75, 0.75]), halves)
    with pytest.raises(ValueError, match="among the scores"):
        paired_evidence(np.array([-1.5]), Strata.single(4), drop=0.02)
