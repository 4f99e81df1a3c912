"""References of question files: read as a model writes them, and refused if no answer or every answer hits them."""

from pathlib import Path
from typing import Any

import pytest

from longctx.fixtures.corpora.rows import QuestionsError
from longctx.fixtures.tasks.questions.template import reference_text
from longctx.fixtures.tasks.task import Task
from tests.helpers.question_files import ROWS, byte_formatter, rooms

NEWLINE = {"stop": ["\n"]}
OTHERS: dict[str, Any] = {"integer_prefix": "3, 1", "first_number": 5, "last_integer": 5}


def rooms_with(folder: Path, answer: object, metric: str, changes: dict[str, Any]) -> Task:
    """Return the task of four questions of which the third has this answer."""
    rows = [{**row, "a": OTHERS.get(metric, row["a"])} for row in ROWS]
    return rooms(folder, [*rows[:2], {**rows[2], "a": answer}, rows[3]], metric={"name": metric}, **changes)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("2031 \n", "2031"), ("\u200b2031\ufeff", "2031"), ("\u00a0a b\u3000", "a b"), (2031.0, "2031"), (2031, "2031"),
        (0.10000000149011612, "0.1"), (0.1, "0.1"), (16777216.5, "16777216.5"), (1e300, "1e+300"), (True, "True"),
    ],
)  # fmt: skip
def test_a_reference_is_read_as_a_model_writes_it(value: object, text: str) -> None:
    assert reference_text(value) == text


def test_code_keeps_its_indent() -> None:
    assert reference_text("\u200b    return x \n", keeps_indent=True) == "    return x"


@pytest.mark.parametrize(
    ("answer", "metric", "changes", "said"),
    [
        ("one\ntwo", "substring_match", NEWLINE, "'a' is 'one\\ntwo', and the stop string '\\n' cuts it to 0 of 100"),
        ("eleven bytes", "exact_match", {}, "budget = 10 tokens cuts it to 0 of 100 points; raise it"),
        (["green", "yellow"], "string_match_all", {}, "budget = 10 tokens cuts it to 50 of 100 points"),
        ("red", "exact_match", {"answer": {"regex": "[0-9]+"}}, "the same answer scores 0 of 100 (exact_match)"),
        ("not", "substring_match", {}, "'a' is 'not', which an answer that says nothing hits too (substring_match)"),
        ("-", "substring_match", {}, "'a' is '-', which an answer that says nothing hits too"),
    ],
)
def test_a_reference_that_no_answer_or_every_answer_hits_is_refused_with_its_row(
    tmp_path: Path, answer: object, metric: str, changes: dict[str, Any], said: str
) -> None:
    task = rooms_with(tmp_path, answer, metric, changes)
    assert task.check_references is not None
    with pytest.raises(QuestionsError) as refused:
        task.check_references(512, byte_formatter())
    line = 1 if "answer" in changes else 3
    assert f"rooms.jsonl, line {line}: " in str(refused.value)
    assert said in str(refused.value)
    assert task.paper_variant.check_references is None


@pytest.mark.parametrize(
    ("answer", "metric"),
    [("forty", "last_integer"), ("forty", "first_number"), ("forty", "integer_prefix"), ("1 200", "first_number")],
)
def test_a_reference_without_one_number_is_refused_where_one_is_compared(
    tmp_path: Path, answer: str, metric: str
) -> None:
    with pytest.raises(QuestionsError, match=rf"line 3: 'a' is '{answer}'; {metric} needs one number"):
        rooms_with(tmp_path, answer, metric, {})


@pytest.mark.parametrize(
    ("answer", "metric"),
    [
        ("#define X", "code_line"), ("// add", "code_line"), ("A", "exact_match"), ("The", "exact_match"),
        ("?!", "exact_match"), ("C++", "substring_match"), ("red \n", "string_match_any"), (7.0, "substring_match"),
        ("a long text of many words", "f1"), ("a long text of many words", "rouge_l"), ("\u4e0a\u6d77", "rouge_l"),
    ],
)  # fmt: skip
def test_a_reference_that_a_model_can_hit_is_accepted(tmp_path: Path, answer: object, metric: str) -> None:
    task = rooms_with(tmp_path, answer, metric, NEWLINE)
    assert task.check_references is not None
    task.check_references(512, byte_formatter())
