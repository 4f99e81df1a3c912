"""HELMET's matches, the part of an output that answers, and multiple choice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.fixtures.scoring.choice import choice_match, choice_match_strict
from longctx.fixtures.scoring.match import (
    copy_credit,
    count_credit,
    exact_match,
    lenient_items,
    listed_items,
    named_alone,
    set_f1,
    string_match_all,
    string_match_any,
    substring_match,
    text_after_code,
    token_f1,
    word_error_rate,
    word_match,
)
from longctx.fixtures.scoring.parsing import after_prefix, best_of

# --- normalised matches ---


@pytest.mark.parametrize("metric", [exact_match, substring_match, word_match, token_f1])
@pytest.mark.parametrize("references", [[], [[]]])
def test_no_reference_is_no_score(metric: object, references: list[str]) -> None:
    assert callable(metric)
    with pytest.raises(ValueError, match="references: there are none"):
        metric("Paris", references)


@pytest.mark.parametrize(
    ("output", "reference", "exact", "part", "words", "f1"),
    [
        ("", "Paris", 0, 0, 0, 0),
        ("", "", 1, 1, 0, 0),
        ("The", "a", 1, 1, 0, 0),
        ("The", "the", 1, 1, 1, 0),
        ("anything", "The", 0, 1, 0, 0),
        ("...", "?!", 1, 1, 0, 0),
        ("The  Paris!", "paris", 1, 1, 1, 1),
        ("in the party", "art", 0, 1, 0, 0),
        ("I know it", "no", 0, 1, 0, 0),
        ("no", "no it", 0, 0, 0, 0),
        ("yes yes", "yes", 0, 1, 1, 0),
        ("yes", "Yes.", 1, 1, 1, 1),
        ("Paris Paris", "Paris", 0, 1, 1, 2 / 3),
        ("Caf\u00e9", "Cafe\u0301", 0, 0, 1, 0),
        ("it\u2019s", "its", 0, 0, 0, 0),
    ],
)
def test_known_matches(output: str, reference: str, exact: float, part: float, words: float, f1: float) -> None:
    assert exact_match(output, [reference]) == exact
    assert substring_match(output, [reference]) == part
    assert word_match(output, [reference]) == words
    assert token_f1(output, [reference]) == pytest.approx(f1)


def test_rulers_matches_keep_punctuation_and_articles() -> None:
    assert string_match_all("The Art, 7", ["the art", "art 7"]) == 0.5
    assert string_match_any("The Art, 7", ["art 7", "T,"]) == 1


# --- the part that answers ---


@pytest.mark.parametrize(
    ("output", "prefix", "part"),
    [
        ("", "Answer:", ""),
        ("\nParis", "Answer:", ""),
        ("Paris\nLyon", "Answer:", "Paris"),
        ("Well.\nThe answer: Paris \nLyon", "Answer:", "Paris"),
        ("Answer: answer: Paris", "Answer:", "Paris"),
        ("Answer:\nParis", "Answer:", ""),
        ("Answer: Paris. Answer: Lyon", "Answer:", "Paris. Answer: Lyon"),
        ("Corresponding value: 7f", "corresponding value:", "7f"),
        ("Answer (one): x", "Answer (one):", "x"),
    ],
)
def test_known_parts(output: str, prefix: str, part: str) -> None:
    assert after_prefix(output, prefix) == part


def test_the_better_of_the_whole_and_the_part_counts() -> None:
    assert best_of(exact_match, "Sure. Answer: Paris", ["Paris"]) == 1
    assert best_of(substring_match, "Answer: in\nParis", ["Paris"]) == 1
    assert best_of(exact_match, "Answer: Lyon", ["Paris"]) == 0


# --- multiple choice ---

OPTIONS = ("A. Tom", "B. Tommy", "C. The house", "D. A garden")


def choose(output: str, right: int) -> tuple[float, float]:
    option = OPTIONS[right]
    others = [other for other in OPTIONS if other != option]
    references = (option[0], option)
    return choice_match(output, references), choice_match_strict(output, references, others)


@pytest.mark.parametrize(
    ("output", "right", "paper", "strict"),
    [
        ("A", 0, 1, 1),
        ("(a)", 0, 1, 1),
        ("A. Tom", 0, 1, 1),
        ("Answer: A\nbecause", 0, 1, 1),
        ("I say b. tommy, surely", 1, 1, 1),
        ("B", 0, 0, 0),
        ("B because", 1, 0, 1),
        ("C) the house", 2, 1, 1),
        ("the house", 2, 0, 1),
        ("ABCD", 0, 0, 0),
        ("", 0, 1, 0),
        ("\n", 0, 1, 0),
        ("...", 0, 1, 0),
        ("The.", 0, 1, 0),
        ("Answer:\nB", 0, 1, 0),
        ("Tom", 0, 1, 1),
        ("A. Tommy", 0, 1, 0),
        ("B. Tommy or A. Tommy", 0, 1, 0),
        ("\n".join(OPTIONS), 2, 1, 0),
        ("A. Tom, or C. The house", 0, 1, 0),
    ],
)
def test_known_choices(output: str, right: int, paper: float, strict: float) -> None:
    assert choose(output, right) == (paper, strict)


@given(st.sampled_from(range(4)), st.text(alphabet=".,!? \n'()\u00a0", max_size=8))
def test_an_answer_without_a_letter_is_no_choice(right: int, output: str) -> None:
    assert choose(output, right) == (float(right == 0), 0)


def test_the_f1_of_two_sets_counts_empty_ones_as_equal() -> None:
    assert set_f1([], []) == 1
    assert set_f1(["a"], []) == set_f1([], ["a"]) == set_f1(["b"], ["a"]) == 0
    assert set_f1(["a", "a", "b"], ["a"]) == pytest.approx(2 / 3)
    assert set_f1(["a", "b"], ["b", "c", "a"]) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("text", "strict", "lenient"),
    [
        ("[a1, b2]", None, ("a1", "b2")),
        (" ['A1', b2", None, ("a1", "b2")),
        ("Final Answer: ['A1', b2]", ("A1", "b2"), ("a1", "b2")),
        ("final answer: [a1]", None, ("a1",)),
        ("[x9]\nI check [y8].\nFinal Answer: [a1]\n\n", ("a1",), ("a1",)),
        ("Final Answer: [a1]\nThat is all.", None, ("a1",)),
        ("Final Answer: []", (), ()),
        ("Final Answer: none", None, None),
        ("a1, b2", None, None),
        ("", None, None),
    ],
)
def test_a_list_counts_in_the_last_line_and_leniently_anywhere(
    text: str, strict: tuple[str, ...] | None, lenient: tuple[str, ...] | None
) -> None:
    """The strict column is what the `graphwalks` task of lm-eval 0.4.13 reads."""
    assert listed_items(text, after="Final Answer:") == strict
    assert lenient_items(text, after="Final Answer:") == lenient


@pytest.mark.parametrize(
    ("text", "expected"),
    [("aB3 the reply ", "the reply"), ("\n aB3the", "the"), ("ab3 the", None), ("So: aB3 the", None), ("", None)],
)
def test_only_an_answer_that_begins_with_the_code_has_text_behind_it(text: str, expected: str | None) -> None:
    assert text_after_code(text, "aB3") == expected


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
