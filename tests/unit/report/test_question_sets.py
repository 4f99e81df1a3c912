"""The lines on tasks files: answers that are right but wordy."""

from __future__ import annotations

import pytest

from longctx.plugins.report.sections.question_sets import QUESTION_SETS
from tests.helpers.report_records import report_of


@pytest.mark.parametrize(("test", "is_advised"), [("test_questions", True), ("test_ruler", False)])
def test_another_metric_is_advised_only_where_a_tasks_file_can_name_one(test: str, is_advised: bool) -> None:
    case = {"id": f"{test}[contracts-1k]", "task": "contracts", "length": 1024, "samples": 20}
    report = report_of({"cases": [{**case, "failures": {"right but wordy": 3}}]})
    assert QUESTION_SETS.terminal is not None
    lines = [text for text, _ in QUESTION_SETS.terminal(report)]
    assert ["contracts at 1k: 3 of 20 answers state the reference" in line for line in lines] == [True] * is_advised
