"""Scores by overlap, on hand-made answers: empty sides, missing codes, ties and lines that are nearly right."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.scoring.overlap import (
    copy_credit,
    count_credit,
    listed_items,
    matching_ratio,
    named_alone,
    set_f1,
    text_after_code,
    word_error_rate,
)

WORDS = st.lists(st.sampled_from("abc"), max_size=7)


def test_the_f1_of_two_sets_counts_empty_ones_as_equal() -> None:
    assert set_f1([], []) == 1
    assert set_f1(["a"], []) == set_f1([], ["a"]) == set_f1(["b"], ["a"]) == 0
    assert set_f1(["a", "a", "b"], ["a"]) == pytest.approx(2 / 3)
    assert set_f1(["a", "b"], ["b", "c", "a"]) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a1, b2]", ("a1", "b2")),
        (" ['A1', b2", ("a1", "b2")),
        ("[x9]\nI check [y8].\nFinal Answer: [a1]", ("a1",)),
        ("Final Answer: []", ()),
        ("Final Answer: none", None),
        ("a1, b2", None),
        ("", None),
    ],
)
def test_the_last_list_after_the_mark_is_the_answer(text: str, expected: tuple[str, ...] | None) -> None:
    assert listed_items(text, after="Final Answer:") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("aB3 the reply ", "the reply"), ("\n aB3the", "the"), ("ab3 the", None), ("So: aB3 the", None), ("", None)],
)
def test_only_an_answer_that_begins_with_the_code_has_text_behind_it(text: str, expected: str | None) -> None:
    assert text_after_code(text, "aB3") == expected


def test_the_ratio_of_two_texts_is_that_of_difflib() -> None:
    assert matching_ratio("abcd", "bcde") == 0.75
    assert matching_ratio("", "") == 1
    assert matching_ratio("abc", "") == 0


@given(answered=WORDS, expected=WORDS.filter(bool))
def test_the_word_error_rate_is_the_edit_distance_over_the_expected_words(
    answered: list[str], expected: list[str]
) -> None:
    assert word_error_rate(" ".join(answered), " ".join(expected)) == pytest.approx(
        distance(tuple(answered), tuple(expected)) / len(expected)
    )


def distance(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """The definition, plainly: the fewest edits by the last words of both."""
    if not one or not other:
        return len(one) + len(other)
    table = {(i, j): i + j for i in range(len(one) + 1) for j in range(len(other) + 1) if not i or not j}
    for i in range(1, len(one) + 1):
        for j in range(1, len(other) + 1):
            table[i, j] = min(
                table[i - 1, j - 1] + (one[i - 1] != other[j - 1]), table[i - 1, j] + 1, table[i, j - 1] + 1
            )
    return table[len(one), len(other)]


def test_a_word_error_rate_needs_expected_words() -> None:
    with pytest.raises(ValueError, match="needs at least one"):
        word_error_rate("a", " ")


def test_a_copied_line_earns_credit_for_less_than_half_of_its_words_wrong() -> None:
    gold = "one two three four"
    assert copy_credit(f"1. {gold}\nand so on", gold) == 1
    assert copy_credit("one two three five", gold) == 0.5
    assert copy_credit("one two five six", gold) == copy_credit("", gold) == copy_credit("\n\n", gold) == 0
    assert copy_credit("one two three four".upper(), gold) == 0


def test_a_count_loses_a_quarter_for_every_step() -> None:
    assert [count_credit(answer, 5) for answer in (5, 4, 7)] == [1, 0.75, 0.5625]


def test_a_name_counts_only_alone_and_whole() -> None:
    assert named_alone("It is ANN.", "Ann", ["Ben"])
    assert not named_alone("Ann or Ben", "Ann", ["Ann", "Ben"])
    assert not named_alone("Anna", "Ann", [])
