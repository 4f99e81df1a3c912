"""Records of the wrong shape are refused, and statistics follow from the samples that they hold."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.fixtures.records import Score, group_means
from tests.helpers.outcomes import case_of
from tests.helpers.queues import result

CASE = case_of("vt", 4096, 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"value": 1.0, "scores": 3}, "unknown field `scores`"),
        ({"parts": {}}, "missing required field `value`"),
        ({"value": float("nan")}, "Expected `float`"),
        ({"value": 1.5}, "<= 1.0"),
        ({"value": 1.0, "parts": {"a": float("inf")}}, "Expected `float`"),
    ],
)
def test_a_score_of_the_wrong_shape_is_refused(content: dict[str, Any], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert(content, Score)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_a_score_is_the_mean_over_the_finished_samples(values: list[float]) -> None:
    """A verdict often needs fewer samples than planned, so that is no error."""
    score = result(CASE, *values).score
    assert score == pytest.approx(sum(values) / len(values))
    assert result(CASE, *reversed(values)).score == score


@pytest.mark.parametrize("values", [(), (1.0,), (1.0, 1.0)])
def test_a_case_without_samples_or_with_an_error_has_no_score(values: tuple[float, ...]) -> None:
    assert result(CASE).score is None
    assert result(CASE, *values, error="lost").score is None


def test_an_incomplete_last_group_has_no_mean() -> None:
    assert group_means([0.0, 1.0, 0.5, 0.5, 1.0], 2) == (0.5, 0.5)
    assert group_means([1.0], 2) == ()


def test_differences_cover_the_samples_that_both_models_answered() -> None:
    assert result(CASE, 1.0, 0.5, 1.0, baseline=(0.5, 1.0)).differences == (0.5, -0.5)
