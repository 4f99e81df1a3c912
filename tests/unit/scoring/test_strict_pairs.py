"""Strict scores against what a careful person says, and properties of the folding of text."""

import tomllib
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.fixtures.scoring.choice import chosen_letter
from longctx.fixtures.scoring.folding import contains, equals
from longctx.fixtures.scoring.question_metrics import METRICS, Expected

TABLES: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("strict_pairs.toml").read_text())["pairs"]
# Answers on which the score and a careful person disagree, with the reason.
DISAGREE = {
    ("substring_match", "31st May 2031", "31 May 2031"): "forms of dates are references of their own",
    ("substring_match", "10.0.0.1:80", "10.0.0.1"): "a port belongs to an address",
    ("substring_match", "3½", "3.5"): "two numbers",
    ("exact_match", "उत्तर दिल्ली है।", "दिल्ली"): "the link of Hindi stands behind the name",
}
MARKS = st.sampled_from([".", "!", "…", "**", '"', "”", "«", "(", ")", "\n", " ", "\u200b", "、", "。", "؟", "¿", "`"])
NAMES = (
    "Paris", "C", "C++", "C#", "Ann", "Anna", "O'Brien", "Brien", "Vitamin A", "Vitamin", "Python 3.1", "Python 3.10",
    "北京", "東京", "東京都", "京都", "A+", "A", "3D", "3", "x < 5", "x > 5", "10^2", "102", "½", "12", "007", "7",
    "5th", "5",
    "Qwen2.5", "Qwen25", "a.b.c", "abc", "A*", "thirty-three", "three", "≤ 10", "≥ 10", "1 million", "1 billion",
    "1960s", "1960", "√2", "2", "Café", "Cafe", "foo_bar", "foobar", "1.2.3", "1.2", "AB-C", "A-BC",
)  # fmt: skip


def pairs() -> Iterator[tuple[str, str, str, bool, Expected]]:
    for table in TABLES:
        expected = Expected(
            references=(table["reference"],),
            options=tuple(table.get("options", ())),
            labels=tuple(table.get("labels", ())),
        )
        for is_right, answers in ((True, table.get("right", ())), (False, table.get("wrong", ()))):
            for answer in answers:
                yield table["metric"], answer, table["reference"], is_right, expected


def test_strict_scores_are_what_a_careful_person_says() -> None:
    found = {}
    for metric, answer, reference, is_right, expected in pairs():
        score = METRICS[metric].score(answer, expected)
        if is_right != (score > 0.999):
            found[metric, answer, reference] = score
    assert found.keys() == DISAGREE.keys()
    assert len(list(pairs())) >= 1000
    assert len(DISAGREE) <= len(list(pairs())) / 100


def test_two_names_or_numbers_never_become_equal() -> None:
    assert [pair for pair in combinations(NAMES, 2) if equals(*pair)] == []


@settings(deadline=None)
@given(
    st.decimals(allow_nan=False, allow_infinity=False, places=3),
    st.decimals(allow_nan=False, places=2, allow_infinity=False),
)
def test_two_numbers_are_equal_only_if_their_values_are(one: Any, other: Any) -> None:
    assert equals(f"{one:,f}", f"{other:f}") == (one == other)
    assert contains(f"It is {one:,f}.", f"{other:f}") == (one == other)


@settings(deadline=None)
@given(st.sampled_from(NAMES), st.lists(MARKS, max_size=4), st.lists(MARKS, max_size=4))
def test_marks_around_a_right_answer_never_make_it_wrong(name: str, before: list[str], after: list[str]) -> None:
    answer = "".join(before) + " " + name + " " + "".join(after)
    assert contains(answer, name)
    assert equals(answer, name)


@settings(deadline=None)
@given(st.sampled_from("ABCD"), st.lists(MARKS, max_size=4), st.lists(MARKS, max_size=4))
def test_marks_around_a_letter_never_make_it_wrong(letter: str, before: list[str], after: list[str]) -> None:
    assert chosen_letter("".join(before) + letter + "".join(after), ("red", "green", "blue", "white")) == letter


@pytest.mark.parametrize(
    "unit", ["answer ", "answer is ", "A B ", "1,234", "\\text{", "<a>", "(", "no, ", " \n", "上,", "B. "]
)
def test_a_long_answer_is_read_in_time_that_grows_with_its_length(unit: str) -> None:
    expected = Expected(references=("B",), options=("Red", "Green"), labels=("red",))
    for metric in ("option", "exact_match", "f1", "label_set"):
        assert 0 <= METRICS[metric].score(unit * (4000 // len(unit)), expected) <= 1
