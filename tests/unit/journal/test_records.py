"""Records go to JSON and come back equal; identity gives the same draws everywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.lengths import LengthError, format_length, parse_length
from fixtures.records import Case, CaseResult, Generation, Outcome, Score, Verdict, from_json, to_json
from fixtures.seeding import choice, random_for, shuffle, stable_hash

TEXT = st.text(st.characters(), max_size=20)
CASE = Case(
    id="test_ruler[vt-4k]", suite="ruler", category="tracing", task="vt", length=4096, samples=2,
    source="archive", generation_tokens=30,
)  # fmt: skip


@st.composite
def outcomes(draw: st.DrawFn) -> Outcome:
    return Outcome(
        index=draw(st.integers(0, 500)),
        score=Score(
            value=draw(st.floats(0, 1)),
            parts=draw(st.dictionaries(TEXT, st.floats(0, 1), max_size=3)),
            failure=draw(st.sampled_from([None, "empty", "wrong"])),
        ),
        generation=Generation(
            text=draw(TEXT),
            prompt_tokens=3,
            generated_tokens=1,
            computed_tokens=4,
            reused_tokens=0,
            finish="stop",
            seconds=0.5,
        ),
        references=tuple(draw(st.lists(TEXT, max_size=3))),
        depths=tuple(draw(st.lists(st.floats(0, 1), max_size=3))),
    )


@given(
    st.lists(outcomes(), max_size=3), st.sampled_from([None, "out of memory"]), st.lists(st.floats(0, 1), max_size=3)
)
def test_records_survive_json(found: list[Outcome], error: str | None, baseline: list[float]) -> None:
    result = CaseResult(case=CASE, outcomes=tuple(found), seconds=1.5, error=error, baseline=tuple(baseline))
    text = json.dumps(to_json(result))
    assert text.isascii()
    assert from_json(CaseResult, json.loads(text)) == result


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """A record that holds others by name."""

    scores: Mapping[str, Score]
    nested: Mapping[str, tuple[Score, ...]] = field(default_factory=dict)
    spare: Mapping[str, Score] | None = None


SCORES = st.builds(Score, value=st.floats(0, 1), parts=st.dictionaries(TEXT, st.floats(0, 1), max_size=2))


@given(
    st.dictionaries(TEXT, SCORES, max_size=3),
    st.dictionaries(TEXT, st.lists(SCORES, max_size=2).map(tuple), max_size=2),
    st.none() | st.dictionaries(TEXT, SCORES, max_size=2),
)
def test_records_by_name_survive_json(
    scores: dict[str, Score], nested: dict[str, tuple[Score, ...]], spare: dict[str, Score] | None
) -> None:
    shelf = Shelf(scores=scores, nested=nested, spare=spare)
    assert from_json(Shelf, json.loads(json.dumps(to_json(shelf)))) == shelf


def test_a_verdict_survives_json() -> None:
    verdict = Verdict(
        name="level at 4k", kind="level", length=4096, measured=81.5, interval=(78.0, 85.25), confidence=0.99,
        required=80.0, samples=40, of=6500, verdict="inconclusive", blocking=True, reason="because",
    )  # fmt: skip
    for each in (verdict, replace(verdict, length=None, measured=None, interval=None, confidence=None)):
        assert from_json(Verdict, json.loads(json.dumps(to_json(each)))) == each


def test_a_record_within_a_mapping_is_read_strictly() -> None:
    with pytest.raises(TypeError, match="unknown field 'vlaue'"):
        from_json(Shelf, {"scores": {"a": {"vlaue": 1.0}}})


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="unknown field 'scores'"):
        from_json(Score, {"value": 1.0, "scores": 3})


def result(*values: float, error: str | None = None) -> CaseResult:
    generation = Generation(
        text="", prompt_tokens=1, generated_tokens=0, computed_tokens=1, reused_tokens=0, finish="stop", seconds=0.0
    )
    outcomes = tuple(
        Outcome(index=index, score=Score(value=value), generation=generation, references=("a",), depths=())
        for index, value in enumerate(values)
    )
    return CaseResult(case=CASE, outcomes=outcomes, seconds=1.0, error=error)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_a_score_is_the_mean_over_what_there_is(values: list[float]) -> None:
    """Fewer samples than were planned are the rule, not an error."""
    score = result(*values).score
    assert score == pytest.approx(sum(values) / len(values))
    assert result(*reversed(values)).score == score


@pytest.mark.parametrize("values", [(), (1.0,), (1.0, 1.0)])
def test_no_sample_or_an_error_leaves_no_score(values: tuple[float, ...]) -> None:
    assert result().score is None
    assert result(*values, error="lost").score is None


def test_draws_do_not_depend_on_the_process() -> None:
    script = "from fixtures.seeding import random_for; print(random_for('vt', 4096, 0).random())"
    seen = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert seen == {f"{random_for('vt', 4096, 0).random()}\n"}


def test_parts_are_kept_apart() -> None:
    assert stable_hash("a", "bc") != stable_hash("ab", "c")


@pytest.mark.parametrize(("text", "tokens"), [("8k", 8192), ("8192", 8192), ("1m", 2**20), (" 4K ", 4096)])
def test_lengths_are_read_as_people_write_them(text: str, tokens: int) -> None:
    assert parse_length(text) == tokens


@pytest.mark.parametrize("text", ["8kb", "", "0", "-4k", "4.5k", "k", "٣k"])
def test_other_lengths_are_refused(text: str) -> None:
    with pytest.raises(LengthError, match="write 8k, 8192 or 1m"):
        parse_length(text)


@given(st.integers(1, 2**22))
def test_a_written_length_reads_back(tokens: int) -> None:
    assert parse_length(format_length(tokens)) == tokens


@given(seed=st.integers(0, 2**64), size=st.integers(0, 70))
def test_shuffles_and_choices_are_those_of_random(seed: int, size: int) -> None:
    """Samples are pinned to them, so they may be quicker and nothing else."""
    drawn, expected = Random(seed), Random(seed)
    items, shuffled = list(range(size)), list(range(size))
    shuffle(drawn, items)
    expected.shuffle(shuffled)
    assert items == shuffled
    if items:
        assert [choice(drawn, items) for _ in range(5)] == [expected.choice(items) for _ in range(5)]
    assert drawn.random() == expected.random()
