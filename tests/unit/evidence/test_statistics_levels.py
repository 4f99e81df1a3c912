"""Verdicts on a level stand once they are reached, and follow all samples at the end."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.plugins.evidence.statistics import Decision
from tests.helpers.scores import MEANS, QUEUES, decide


@settings(deadline=None, max_examples=50)
@given(QUEUES, st.integers(0, 20), MEANS, st.sampled_from((0.0, 0.05)), st.integers(0, 70))
def test_a_verdict_stands_and_is_never_missing_at_the_end(
    scores: list[float], more: int, threshold: float, zone: float, least: int
) -> None:
    def decided(looks: int) -> Decision | None:
        return decide(scores[:looks], threshold, alpha=0.2, population=len(scores) + more, zone=zone, least=least)

    last = decided(len(scores))
    assert last is not None or more
    for looks in range(len(scores)):
        assert decided(looks) == (last if last is not None and looks >= last.stopping_time else None)
    if last is not None:
        assert last.stopping_time >= min(least, len(scores) + more)


@settings(deadline=None)
@given(QUEUES)
def test_a_mean_at_its_threshold_fails(scores: list[float]) -> None:
    """However the sum is rounded: ten times 0.1 is not above 1."""
    size = len(scores)
    tie, below = sum(scores) / size, max(0.0, sum(scores) / size - 1e-6)
    assert decide(scores, tie, population=size, least=size) == Decision(verdict="fail", stopping_time=size)
    above = decide(scores, below, population=size, least=size + 1)
    assert above == Decision(verdict="pass" if below < tie else "fail", stopping_time=size)


@pytest.mark.parametrize(("score", "threshold"), [(0.1, 0.1), (0.7, 0.7), (1 / 3, 1 / 3), (0.0, 0.0), (1.0, 1.0)])
@pytest.mark.parametrize("size", [1, 3, 10, 500, 6500])
def test_constant_scores_at_their_threshold_fail_only_at_the_end(score: float, threshold: float, size: int) -> None:
    scores = np.full(size, score)
    assert decide(scores, threshold, population=size) == Decision(verdict="fail", stopping_time=size)
    assert decide(scores[:-1], threshold, population=size) is None


def test_a_single_look_at_the_ends_of_the_scale_is_enough() -> None:
    """Any score above 0 is a mean above 0, any score below 1 a mean below 1."""
    right, wrong = [0.0] * 9 + [1.0], [1.0] * 9 + [0.0]
    assert decide(right, 0.0, population=500) == Decision(verdict="pass", stopping_time=10)
    assert decide(wrong, 1.0, population=500) == Decision(verdict="fail", stopping_time=10)
    assert decide(wrong, 0.995, population=500, zone=0.01) == Decision(verdict="fail", stopping_time=10)


def test_a_complete_set_is_compared_exactly_whatever_the_zone() -> None:
    """Inside the zone both nulls are refuted by then."""
    for score, verdict in ((0.55, "pass"), (0.5, "fail"), (0.45, "fail")):
        decision = decide([score] * 4, 0.5, population=4, zone=0.1, least=4)
        assert decision is not None
        assert decision.verdict == verdict


def test_a_zone_past_the_scale_decides_nothing_by_itself() -> None:
    perfect = np.ones(500)
    assert decide(1 - perfect[:30], 0.005, population=500, zone=0.01) is None
    assert decide(perfect[:30], 0.995, population=500, zone=0.01) is None
    assert decide(perfect, 0.995, population=500, zone=0.01) == Decision(verdict="pass", stopping_time=275)
