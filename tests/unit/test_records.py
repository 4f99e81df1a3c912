"""Records are equal after a round trip through JSON, and statistics follow from the samples that they hold."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.fixtures.records import CaseResult, Outcome, Score, Verdict, group_means
from tests.helpers.outcomes import case_of, generation_of
from tests.helpers.queues import result

TEXT = st.text(st.characters(), max_size=20)
CASE = case_of("vt", 4096, 2)
Record = TypeVar("Record")


def through_json(record: Record) -> Record:
    text = json.dumps(msgspec.to_builtins(record))
    assert text.isascii()
    return msgspec.convert(json.loads(text), type(record))


@st.composite
def outcomes(draw: st.DrawFn) -> Outcome:
    return Outcome(
        index=draw(st.integers(0, 500)),
        score=Score(
            value=draw(st.floats(0, 1)),
            parts=draw(st.dictionaries(TEXT, st.floats(0, 1), max_size=3)),
            failure=draw(st.sampled_from([None, "empty", "wrong"])),
        ),
        generation=generation_of(draw(TEXT), 3, computed_tokens=4, seconds=0.5),
        references=tuple(draw(st.lists(TEXT, max_size=3))),
        depths=tuple(draw(st.lists(st.floats(0, 1), max_size=3))),
    )


@given(
    st.lists(outcomes(), max_size=3), st.sampled_from([None, "out of memory"]), st.lists(st.floats(0, 1), max_size=3)
)
def test_a_result_is_equal_after_a_round_trip(drawn: list[Outcome], error: str | None, baseline: list[float]) -> None:
    record = CaseResult(case=CASE, outcomes=tuple(drawn), seconds=1.5, error=error, baseline=tuple(baseline))
    assert through_json(record) == record


@pytest.mark.parametrize("interval", [None, (78.0, 85.25)])
def test_a_verdict_is_equal_after_a_round_trip(interval: tuple[float, float] | None) -> None:
    verdict = Verdict(
        name="level at 4k", kind="level", length=interval and 4096, measured=interval and 81.5, interval=interval,
        confidence=interval and 0.99, required=80.0, samples=40, of=6500, verdict="undecided", blocking=True,
        because="too few samples",
    )  # fmt: skip
    assert through_json(verdict) == verdict


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
