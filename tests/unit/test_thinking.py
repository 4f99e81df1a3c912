"""Answers that begin with a thought are told from others."""

import pytest

from longctx.fixtures.thinking import begins_with_thought
from longctx.plugins.report.sections.gates import warning_texts
from tests.helpers.report_records import report_of


@pytest.mark.parametrize(
    ("answer", "begins"),
    [
        ("<think>\nWell", True), ("\n <think></think> 7", True), ("[THINK]Hm", True), ("<seed:think>x", True),
        ("<|channel|>analysis<|message|>We", True), ("◁think▷x", True),
        ("7", False), ("", False), ("I <think> so", False), ("analysis of 7", False), ("<thinkers>", False),
        ("<thinking> so", True),
    ],
)  # fmt: skip
def test_an_answer_begins_with_a_thought_only_behind_a_mark(answer: str, begins: bool) -> None:
    assert begins_with_thought(answer) is begins


def test_a_report_names_thoughts_that_were_closed_or_scored() -> None:
    warning = "the chat template opens a thought, which thinking=False closes"
    texts = warning_texts(report_of({"model": {"thought_warning": warning, "answers_with_thought": 3}}))
    assert texts[0] == warning
    assert "3 of 0 answers begin with a thought" in texts[1]
    assert not any("thought" in text for text in warning_texts(report_of({})))
