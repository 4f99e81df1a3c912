"""The metrics of question files on hand-made answers: the strict rule and the published one with its faults."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.fixtures.scoring.choice import chosen_letter
from longctx.fixtures.scoring.question_metrics import METRICS, Expected
from longctx.fixtures.versions import QUESTION_METRICS

PLACES = ("kitchen", "office", "garden")
OPTIONS = ("Red", "Green", "Blue", "White")
EXPECTED = {
    "one two": Expected(references=("one two",)),
    "17": Expected(references=("17",)),
    "names": Expected(references=("ANNA BELL", "ANNA")),
    "B": Expected(references=("B",), options=OPTIONS),
    "list": Expected(references=("3, 3, -5",)),
    "trec": Expected(references=("Other location",), labels=("Other", "location", "Other location", "Person")),
    "none": Expected(references=("none",), labels=("none", "one", "three", "two")),
    "no": Expected(references=("yes",), labels=("no", "yes")),
    "place": Expected(references=("office",), labels=PLACES, question="Where was it before the kitchen?"),
    "things": Expected(references=("apple,milk",), labels=("apple", "football", "milk")),
    "code": Expected(references=("return x",)),
    "text": Expected(references=("The cat sat. It ran.",)),
}
# metric, expected, output, strict score, published score
CASES = [
    ("f1", "one two", "The one, two!", 1, 1),
    ("f1", "one two", "one three", 0.5, 0.5),
    ("exact_match", "one two", "One two.", 1, 1),
    ("substring_match", "one two", "one twofold", 0, 1),
    ("option", "B", "Answer: B", 1, 1),
    ("option", "B", "A good question. The answer is (B).", 1, 1),
    ("option", "B", "Green", 1, 1),
    ("option", "B", "Red or green", 0, 0),
    ("first_integer", "17", "It is 17.", 1, 1),
    ("first_integer", "17", "017", 0, 0),
    ("contains_word", "17", '"17":', 1, 1),
    ("contains_word", "17", "217", 0, 0),
    ("name", "names", "Anna Bell, I think", 1, 0),
    ("name", "names", "Annabel", 0, 0),
    ("first_number", "17", "-17", 0, 1),
    ("first_number", "17", "17.5", 0, 0),
    ("first_number", "17", "17.0", 1, 0),
    ("last_integer", "17", "The value is 17.", 1, 1),
    ("last_integer", "17", "17 is it", 1, 0),
    ("integer_prefix", "list", "[3, 3, -5]", 1, 1),
    ("integer_prefix", "list", "[1, 3, 3, -5]", 1, 0),
    ("integer_prefix", "list", "[3, 4, -5]", 1 / 3, 1 / 3),
    ("book_option", "B", "Answer: B", 1, 0),
    ("book_option", "B", "Because it is C", 0, 1),
    ("book_option", "B", "the answer is:B", 1, 0),
    ("debug_option", "B", "B", 1, 0),
    ("debug_option", "B", "B. Green", 1, 1),
    ("chinese_f1", "one two", "one, two", 1, 1),
    ("number_share", "17", "17 or 18", 0.5, 0.5),
    ("class_share", "trec", "Other location", 1, 0.5),
    ("class_share", "trec", "Other location or Person", 0.5, 1 / 3),
    ("class_share", "trec", "Person", 0, 0),
    ("code_line", "code", "\n# note\nreturn x\nelse", 1, 1),
    ("code_line", "code", "# note\n\nreturn x", 1, 0),
    ("rouge_l_words", "text", "The cat sat. It ran.", 1, 1),
    ("rouge_l_words", "text", "the cat", 2 / 7, 2 / 7),
    ("option_sentence", "B", "the correct answer is **(B)**", 1, 0),
    ("option_sentence", "B", "The correct answer is Both", 0, 1),
    # As InfiniteBench's normalize_zh_answer, which removes the closing mark of a title and keeps the opening one.
    ("chinese_f1", "one two", "\u300aonetwo\u300b", 1, 12 / 13),
    ("chinese_f1", "one two", "\uff08one\u3001two\uff09\u3000", 1, 1),
    ("f1", "no", "yes it is", 0.5, 0.5),
    ("chinese_f1", "one two", "onet", 0.8, 0.8),
    ("label_set", "none", "None", 1, 0),
    ("label_set", "no", "Yes, I know", 1, 0),
    ("label_set", "place", "From the kitchen to the office.", 1, 1),
    ("label_set", "place", "garden or office", 0, 0),
    ("label_set", "things", "milk and an apple", 1, 1),
    ("label_set", "things", "milk", 0, 0),
]


@pytest.mark.parametrize(("metric", "expected", "output", "strict", "published"), CASES)
def test_an_answer_gets_its_strict_and_its_published_score(
    metric: str, expected: str, output: str, strict: float, published: float
) -> None:
    rule = METRICS[metric]
    assert rule.score(output, EXPECTED[expected]) == pytest.approx(strict)
    assert (rule.published or rule.score)(output, EXPECTED[expected]) == pytest.approx(published)


def test_every_metric_has_a_version() -> None:
    assert QUESTION_METRICS.keys() == METRICS.keys()


@settings(deadline=None, max_examples=40)
@pytest.mark.parametrize("metric", METRICS)
@given(output=st.text(max_size=60))
def test_no_output_breaks_a_rule(metric: str, output: str) -> None:
    rule = METRICS[metric]
    for expected in (EXPECTED["B"], EXPECTED["trec"], EXPECTED["17"]):
        if rule.needs == "options" and not expected.options:
            continue
        for score in (rule.score, rule.published or rule.score):
            assert 0 <= score(output, expected) <= 1


@pytest.mark.parametrize("metric", METRICS)
def test_an_empty_answer_scores_nothing(metric: str) -> None:
    assert METRICS[metric].score("", EXPECTED["B"]) == 0


@pytest.mark.parametrize(
    ("output", "letter"),
    [
        ("B", "B"), ("(c)", "C"), ("**C**", "C"), ("The answer is b", "B"), ("answer: a dog", None),
        ("I think it is D.", "D"), ("It's C's turn: D", "D"), ("blue", "C"), ("E", None), ("", None),
    ],
)  # fmt: skip
def test_a_letter_is_read_where_it_is_meant(output: str, letter: str | None) -> None:
    assert chosen_letter(output, OPTIONS) == letter
