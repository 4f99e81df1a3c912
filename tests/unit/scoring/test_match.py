"""HELMET's matches, the part of an output that answers, and multiple choice."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fixtures.scoring.choice import choice_match, choice_match_strict
from fixtures.scoring.match import (
    exact_match,
    normalize,
    plain,
    string_match_all,
    string_match_any,
    substring_match,
    token_f1,
    word_match,
)
from fixtures.scoring.parsing import after_prefix, best_of

WORDS = st.sampled_from(
    ["a", "The", "an", "art", "part", "Paris", "yes", "no", "noanswer", "1960", "1960s", "é", "É", "\u0663", "…", "¿"]
)
GAPS = st.sampled_from([" ", "", "  ", "\n", ".", "-", ", ", "\u00a0", "'"])
TEXT = st.lists(st.tuples(WORDS, GAPS), max_size=6).map(lambda parts: "".join(word + gap for word, gap in parts))
REFERENCES = st.lists(TEXT, min_size=1, max_size=3)
LETTERS = st.sampled_from("ABCD")


def plainly_normal(text: str) -> str:
    """The definition, one character and one word at a time."""
    letters = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    without = re.split(r"(\w+)", letters)
    return " ".join("".join(" " if part in ("a", "an", "the") else part for part in without).split())


def plainly_f1(output: str, reference: str) -> float:
    one, other = plainly_normal(output), plainly_normal(reference)
    if one != other and {one, other} & {"yes", "no", "noanswer"}:
        return 0.0
    left, shared = other.split(), 0
    for word in one.split():
        if word in left:
            left.remove(word)
            shared += 1
    if not shared:
        return 0.0
    precision, recall = shared / len(one.split()), shared / len(other.split())
    return 2 * precision * recall / (precision + recall)


# --- normalised matches ---


@given(st.text(max_size=30) | TEXT)
@example("The\u00a0Art of a-the an.a")
def test_normal_text_has_no_case_punctuation_articles_or_wide_gaps(text: str) -> None:
    assert normalize(text) == plainly_normal(text)


@given(TEXT, REFERENCES)
def test_matches_are_the_best_over_the_references(output: str, references: list[str]) -> None:
    answer, names = plainly_normal(output), [plainly_normal(reference) for reference in references]
    assert exact_match(output, references) == float(answer in names)
    assert substring_match(output, references) == float(any(answer.find(name) >= 0 for name in names))
    assert token_f1(output, references) == pytest.approx(
        max(plainly_f1(output, reference) for reference in references), abs=1e-12
    )


@given(TEXT, REFERENCES)
def test_a_stricter_match_never_gives_more(output: str, references: list[str]) -> None:
    assert word_match(output, references) <= substring_match(output, references)
    assert exact_match(output, references) <= substring_match(output, references)


@given(TEXT, st.lists(REFERENCES, min_size=1, max_size=3))
def test_one_reference_and_lists_of_them_are_read_alike(output: str, lists: list[list[str]]) -> None:
    together = [reference for references in lists for reference in references]
    for metric in (exact_match, substring_match, word_match, token_f1):
        assert metric(output, lists) == metric(output, together)
        assert metric(output, together[0]) == metric(output, together[:1])


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
        ("anything", "The", 0, 1, 0, 0),
        ("...", "?!", 1, 1, 0, 0),
        ("The  Paris!", "paris", 1, 1, 1, 1),
        ("in the party", "art", 0, 1, 0, 0),
        ("I know it", "no", 0, 1, 0, 0),
        ("no", "no it", 0, 0, 0, 0),
        ("yes yes", "yes", 0, 1, 1, 0),
        ("yes", "Yes.", 1, 1, 1, 1),
        ("Paris Paris", "Paris", 0, 1, 1, 2 / 3),
        ("Caf\u00e9", "Cafe\u0301", 0, 0, 0, 0),
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

LINES = st.lists(st.sampled_from(["Answer:", "ANSWER: ", " answer:", "Paris", "\n", " ", "Answer", ":", "\r", "."]))


@given(LINES.map("".join))
def test_the_part_after_the_prefix_is_the_rest_of_its_line(output: str) -> None:
    start = output.lower().find("answer:")
    line = output[start + len("answer:") :] if start >= 0 else output
    line = line.split("\n")[0].strip()
    if line.lower().startswith("answer:"):
        line = line[len("answer:") :].strip()
    assert after_prefix(output, "Answer:") == line


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
        ("B because", 1, 0, 0),
        ("C) the house", 2, 1, 1),
        ("the house", 2, 0, 0),
        ("ABCD", 0, 0, 0),
        # Where only the paper's reading counts it.
        ("", 0, 1, 0),
        ("\n", 0, 1, 0),
        ("...", 0, 1, 0),
        ("The.", 0, 1, 0),
        ("Answer:\nB", 0, 1, 0),
        ("Tom", 0, 1, 0),
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


@given(st.sampled_from(range(4)), st.lists(st.sampled_from([*OPTIONS, *"ABCD", "Answer:", "\n", " ", ".", "the"])))
def test_a_strict_choice_never_gives_more_and_says_the_letter(right: int, parts: list[str]) -> None:
    output = "".join(parts)
    paper, strict = choose(output, right)
    assert strict <= paper
    assert not strict or "abcd"[right] in plain(output)
