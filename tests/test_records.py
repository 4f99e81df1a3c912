"""Records go to JSON and come back equal; identity gives the same draws everywhere."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.identity import random_for, stable_hash
from fixtures.lengths import LengthError, format_length, parse_length
from fixtures.records import Case, CaseResult, Generation, Outcome, Score, from_json, to_json

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


@given(st.lists(outcomes(), max_size=3), st.sampled_from([None, "out of memory"]))
def test_records_survive_json(found: list[Outcome], error: str | None) -> None:
    result = CaseResult(case=CASE, outcomes=tuple(found), seconds=1.5, error=error)
    text = json.dumps(to_json(result))
    assert text.isascii()
    assert from_json(CaseResult, json.loads(text)) == result


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="unknown field 'scores'"):
        from_json(Score, {"value": 1.0, "scores": 3})


@pytest.mark.parametrize(("found", "error"), [(1, None), (2, "lost")])
def test_a_missing_sample_or_an_error_leaves_no_score(found: int, error: str | None) -> None:
    generation = Generation(
        text="", prompt_tokens=1, generated_tokens=0, computed_tokens=1, reused_tokens=0, finish="stop", seconds=0.0
    )
    outcome = Outcome(index=0, score=Score(value=1.0), generation=generation, references=("a",), depths=())
    assert CaseResult(case=CASE, outcomes=(outcome,) * found, seconds=1.0, error=error).score is None
    assert CaseResult(case=CASE, outcomes=(outcome,) * 2, seconds=1.0).score == 1.0


def test_draws_do_not_depend_on_the_process() -> None:
    script = "from fixtures.identity import random_for; print(random_for('vt', 4096, 0).random())"
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
