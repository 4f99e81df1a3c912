"""Scores by containment, and the kinds of failure."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.fixtures.records import FailureKind
from longctx.fixtures.scoring.failures import failure_kind, is_copied
from longctx.fixtures.scoring.match import needle_hits, string_match_all
from longctx.fixtures.words import contains_words

TEXT = st.text(alphabet="abAB 1.", max_size=30)
CONTEXT = "The old mill by the river burned down in the spring of that year and was never built again."


# --- containment ---


@pytest.mark.parametrize(
    ("text", "value", "stated"),
    [
        ("in 1960.", "1960", True),
        ("the 1960s", "1960", False),
        ("the part", "art", False),
        ("ART, they say", "art", True),
        ("it costs $5 (five)", "$5", True),
        ("it costs $50", "$5", False),
        ("a.b", "a.b", True),
        ("axb", "a.b", False),
        ("", "a", False),
    ],
)
def test_contains_words_matches_whole_words(text: str, value: str, stated: bool) -> None:
    assert contains_words(text, value) is stated


# --- kinds of failure ---


def kind(output: str, references: Sequence[str] = ("1234567", "7654321")) -> FailureKind | None:
    value = string_match_all(output, references)
    return failure_kind(output, value=value, prompt=CONTEXT, distractors=("1111111", "Bryn"))


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("1234567 and 7654321", None),
        ("I am sorry, but 1234567, 7654321", None),
        ("", "empty"),
        (" \n\t", "empty"),
        ("... -- !", "empty"),
        ("burned down in the spring of that year", "copied"),
        ("urned  down in\nthe spring of that yea", "copied"),
        ("1234567", "incomplete"),
        ("1234567 or 1111111", "incomplete"),
        ("1111111", "distractor"),
        ("the town of bryn", "distractor"),
        ("I'm sorry, but 1111111", "distractor"),
        ("I'm sorry, there is no such number.", "refused"),
        ("I\u2019m sorry.", "refused"),
        ("I can\u2019t find it.", "refused"),
        ("The number is not mentioned in the text.", "refused"),
        ("I don't know", "refused"),
        ("As an AI language model", "refused"),
        ("11111112", "wrong"),
        ("7777777", "wrong"),
        ("the spring of that year", "wrong"),
        ("burned down in the autumn of that year", "wrong"),
        ("Brynford", "wrong"),
    ],
)
def test_a_failure_is_of_the_most_telling_kind(output: str, expected: FailureKind | None) -> None:
    assert kind(output) == expected


@given(TEXT)
def test_every_failure_has_a_kind_and_no_success_has_one(output: str) -> None:
    references = ("ab", "1")
    value = string_match_all(output, references)
    found_kind = failure_kind(output, value=value, prompt=CONTEXT, distractors=())
    assert (found_kind is None) == (value == 1)
    assert (found_kind == "incomplete") == (value == 0.5)


@pytest.mark.parametrize(
    ("output", "value", "expected"),
    [
        ("The lease of flat 192 ends on 28 May 2032.", 0.5, "right but wordy"),
        ("It ends on 28 May, 2032", 0.5, "right but wordy"),
        ("28 May 2032", 1.0, None),
        ("The lease of flat 192 ends on 28 May 2031.", 0.4, "copied"),
        # A long run of the text that happens to hold the date is a copy.
        (
            "The lease of flat 192 ends on 28 May 2032. " + "The rent is due on the first day of a month. " * 3,
            0.1,
            "copied",
        ),
    ],
)
def test_a_right_answer_in_a_sentence_is_wordy_and_no_copy(
    output: str, value: float, expected: FailureKind | None
) -> None:
    prompt = "The lease of flat 192 ends on 28 May 2031. So the text says. " + output
    found = failure_kind(output, value=value, prompt=prompt, distractors=(), alternatives=("2032-05-28", "28 May 2032"))
    assert found == expected


def test_a_short_answer_is_no_copy() -> None:
    """Every right answer of few words stands in the context."""
    assert not is_copied("in the spring of that year", CONTEXT)
    assert is_copied("burned down in the spring of that year", CONTEXT)
    assert not is_copied(f"{CONTEXT} So the answer is spring.", CONTEXT)


@pytest.mark.parametrize(
    ("answer", "strict", "paper"),
    [
        ("It is 1234567.", 1, 1), ("1,234,567", 1, 0), ("91234567", 0, 1), ("9 1234567", 1, 1), ("x1234567", 1, 1),
        ("91234567, no: 1234567", 1, 1), ("12345678", 1, 1), ("123456", 0, 0),
    ],
)  # fmt: skip
def test_a_number_is_no_end_of_a_longer_one(answer: str, strict: int, paper: int) -> None:
    """A longer number that begins with it counts, because decoding may end behind the last digit."""
    assert needle_hits(answer, ["1234567"]) == (strict,)
    assert needle_hits(answer, ["1234567"], strict=False) == (paper,)
