"""`--prompts helmet-code`: samples, chat turns and rubrics as in HELMET's code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longctx.fixtures.records import Sample
from longctx.fixtures.scoring.judge.grading import JudgeQuestion, read_verdict
from longctx.fixtures.tasks import SHIPPED_PROMPTS, TASKS, has_published_rubrics, load_tasks
from longctx.fixtures.tasks.task import Assistants, Task
from longctx.fixtures.tokenization.prompts import PromptFormatter
from longctx.plugins.runner.samples import sample_problems
from tests.helpers.tiny_tokenizers import GENERATED, HELMET, byte_level, formatter

FILE = str(SHIPPED_PROMPTS["helmet-code"])
ANY = "(?:.|\n)+?"
PAGE = rf"Document \(Title: {ANY}\): {ANY}"
KEY = r"Key: [0-9a-f-]{{36}}\nCorresponding value: [0-9a-f-]{{36}}\n\n"
CITE = rf"Instruction: Write an accurate{ANY}\n\nQuestion: "
# The prompts of HELMET's code, filled in by hand: {c} is the context and {q} the question; the rest is a pattern.
EXPECTED: Mapping[str, str] = {
    "json_kv": rf"{{c}}\n\nExtract the value{ANY} below\.\n\n" + KEY * 2 + r"Key: {q}\nCorresponding value:",
    "nq": (
        rf"Use the given documents{ANY}:\nAnswer: \[answer\]\n\n"
        + rf"{PAGE}\n\nQuestion: {ANY}\nAnswer: {ANY}\n\n" * 2
        + r"{c}\n\nQuestion: {q}\nAnswer:"
    ),
    "asqa": (
        rf"{CITE}{ANY}\n\nDocument \[1\]\(Title: {ANY}\n\nAnswer: {ANY}\n\n\n" * 2 + rf"{CITE}{{q}}\n\n{{c}}\n\nAnswer:"
    ),
    "msmarco": (
        rf"You are provided{ANY}\nRanking: ID3 > ID1 > ID2\n\n"
        + rf"\[ID: \d+\] Document: {ANY}\n\nQuery: {ANY}\nRanking: [\d> ]+\n\n" * 2
        + r"{c}\n\nQuery: {q}\nRanking:"
    ),
    "nlu": rf'Use the provided mapping{ANY}"label: {{{{label}}}}" and nothing else\. \n\n{{c}}\n\n{{q}}\nlabel:',
    "infbench_mc": (
        rf"You are given a story{ANY}\n\nFor example:\n\n"
        + rf"\[story text\]\nQuestion: {ANY}\nOptions:\nA\. {ANY}\nAnswer: [A-D]\n\n" * 2
        + rf"Now, read the following story:\n\n{{c}}\n\nQuestion: {{q}}\nOptions:\nA\. {ANY}\n\nAnswer:"
    ),
    "multi_lexsum": (
        rf"You are given the legal documents{ANY}\n\nExample summaries:\n\n"
        + rf"Summary: {ANY}\n\n" * 2
        + rf"Now, write{ANY}\nLegal documents:\n{{c}}\n\nNow please summarize the case\.\n\nSummary:"
    ),
}


@pytest.fixture(scope="module")
def published() -> Mapping[str, Task]:
    return load_tasks(FILE, "paper")


def sample_of(task: Task, index: int, chosen: PromptFormatter) -> Sample:
    length = 16384 if task.category == "rerank" else 8192
    return task.sample(length, index, seed=0, tokenizer=chosen, corpora=GENERATED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_prompt_is_that_of_helmets_code(name: str, published: Mapping[str, Task]) -> None:
    for index in range(2):
        sample = sample_of(published[name], index, formatter())
        pattern = EXPECTED[name].format(c=re.escape(sample.context), q=re.escape(sample.question))
        assert re.fullmatch(pattern, sample.prompt.text), sample.prompt.text[:2000] + sample.prompt.text[-600:]


def test_shots_have_the_form_of_helmets_code(published: Mapping[str, Task]) -> None:
    shots = sample_of(published["nlu"], 0, formatter()).context.split("\n\n")
    assert all(re.fullmatch(r".+\nlabel: \d+", shot) for shot in shots)


@pytest.fixture(scope="module")
def chat() -> PromptFormatter:
    tokenizer = byte_level()
    tokenizer.chat_template = "{% for message in messages %}<user>{{ message.content }}</user>{% endfor %}<assistant>"
    return PromptFormatter(tokenizer)


def test_chat_templates_are_used_as_in_helmets_configurations(
    published: Mapping[str, Task], chat: PromptFormatter
) -> None:
    for name in ("json_kv", "ruler_niah_multikey_2", "nq", "msmarco", "nlu"):
        assert "<user>" not in sample_of(published[name], 0, chat).prompt.text
    for name in ("asqa", "infbench_qa", "multi_lexsum"):
        text = sample_of(published[name], 0, chat).prompt.text
        assert text.startswith("<user>")
        assert text.rstrip().endswith("<assistant>")


@pytest.mark.parametrize("name", ["nq", "asqa", "multi_lexsum"])
def test_samples_of_helmets_prompts_are_sound(name: str, published: Mapping[str, Task], chat: PromptFormatter) -> None:
    for chosen in (chat, formatter()):
        assert sample_problems(sample_of(published[name], 0, chosen), published[name], chosen) == []


def test_strict_scoring_and_other_files_keep_the_chat_template(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[nq]\nanswer_prefix = "So:"\n', encoding="utf-8")
    for tasks in (load_tasks(FILE), load_tasks(str(own), "paper"), load_tasks(scoring="paper")):
        assert {task.turns for task in tasks.values()} == {"prefix"}


def test_helmets_prompts_end_no_answer_at_a_line_end() -> None:
    for scoring in ("strict", "paper"):
        tasks = load_tasks(FILE, scoring)
        assert {tasks[name].stop for name in HELMET} == {()}


class RecordingJudge:
    """A judge that keeps its questions and gives the same verdicts to all texts."""

    def __init__(self, *verdicts: Mapping[str, int]) -> None:
        self.verdicts = verdicts
        self.questions: list[JudgeQuestion] = []

    def decide(self, judged: Any) -> Any:
        self.questions += judged.questions()
        return judged.decided(self.verdicts)


def published_sample(task: Task) -> Sample:
    return replace(sample_of(task, 0, formatter()), source="published")


def test_answers_are_judged_by_helmets_rubric(published: Mapping[str, Task]) -> None:
    judge: Any = RecordingJudge({"fluency": 1, "correctness": 2})
    task = published["narrativeqa"]
    sample = replace(published_sample(task), question="Who?", references=("Ida", "Ida Berg"))
    assert task.assisted_grade is not None
    score = task.assisted_grade(sample, "I think.\nAnswer: Ida\nBerg", Assistants(judge=judge))
    assert score.value == pytest.approx(2 / 3)
    (question,) = judge.questions
    assert question.temperature == 0.1
    assert question.text.startswith("Please act as an impartial judge")
    form = '{"fluency": 0, "correctness": 1}'
    said = "Question: Who?\nCorrect answers: ['Ida', 'Ida Berg']\nAnswer: Ida Berg\n"
    assert question.text.endswith(f"in the following json format: {form}.\n\n{said}")
    assert read_verdict('So {"fluency": 1, "correctness": 3}', question.limits) == {"fluency": 1, "correctness": 3}


def test_summaries_are_judged_by_helmets_rubrics(published: Mapping[str, Task]) -> None:
    verdicts = ({"fluency": 1}, {"recall": 1}, {"precision": 1, "sentence_count": 2})
    for name, mark in (("infbench_sum", "{}<end of summary>"), ("multi_lexsum", '"{}"')):
        judge: Any = RecordingJudge(*verdicts)
        task = published[name]
        sample = published_sample(task)
        truth = replace(sample.truth, key_points=("One.", "Two."), reference="Both.")
        assert task.assisted_grade is not None
        score = task.assisted_grade(replace(sample, truth=truth), " It is one. ", Assistants(judge=judge))
        assert score.value == pytest.approx(0.5)
        fluency, recall, precision = (question.text for question in judge.questions)
        assert fluency.endswith('Text: "It is one."\n')
        assert "Key points:\n1. One.\n2. Two.\n\nSummary: " in recall
        for text in (recall, precision):
            assert text.endswith(mark.format("It is one.") + "\n")
        assert mark.format("Both.") in precision


def test_strict_scoring_and_other_files_keep_our_rubrics() -> None:
    assert load_tasks(FILE)["narrativeqa"].assisted_grade is TASKS["narrativeqa"].assisted_grade
    assert has_published_rubrics(FILE, "paper")
    assert not has_published_rubrics(FILE, "strict")
    assert not has_published_rubrics(None, "paper")


def test_without_a_file_no_prompt_changes() -> None:
    assert all("answer_separator" not in task.prompts for task in TASKS.values())
