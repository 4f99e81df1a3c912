"""Prompts that are read from a clone of HELMET: what the clone's templates give, sample by sample."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longctx.fixtures.corpora.__main__ import main
from longctx.fixtures.records import Sample
from longctx.fixtures.scoring.judge.grading import JudgeQuestion, read_verdict
from longctx.fixtures.tasks import TASKS, has_published_rubrics, load_tasks
from longctx.fixtures.tasks.task import Assistants, Task
from longctx.fixtures.tokenization.prompts import PromptFormatter
from longctx.plugins.runner.samples import sample_problems
from tests.helpers.helmet_clone import make_helmet_clone
from tests.helpers.tiny_tokenizers import GENERATED, HELMET, byte_level, formatter

CLASSES = ("trec_coarse", "trec_fine", "banking77", "clinc150", "nlu")
RAG = ("nq", "triviaqa", "popqa", "hotpotqa")
SAMPLES = 2
ANY = "(?:.|\n)+?"


def twice(item: str, separator: str) -> str:
    """Return the pattern of two demonstrations, whose content is free."""
    return f"{item}{separator}{item}"


# The clone's templates, filled in by hand: {c} is the context and {q} the question; all else is literal or a pattern.
PAGE = rf"Page \(Head: {ANY}\): {ANY}"
EXPECTED: Mapping[str, str] = {
    "json_kv": (
        r"{c}\n\nGive the value of the name above\.\n\n"
        + twice(r"Name: [0-9a-f-]{{36}}\nIts value: [0-9a-f-]{{36}}", r"\n\n")
        + r"\n\nName: {q}\nIts value:"
    ),
    **dict.fromkeys(
        RAG,
        r"Short answers please\.\nReply: \[reply\]\n\n"
        + twice(rf"{PAGE}\n\nAsked: {ANY}\nReply: {ANY}", r"\n\n")
        + r"\n\n{c}\n\nAsked: {q}\nReply:",
    ),
    **dict.fromkeys(
        ("asqa", "qampari"),
        twice(
            rf"Cite {{{{pages}}}} like this: \[1\]\.\n\nAsked: {ANY}\n\nPage \[1\]\(Head: {ANY}\n\nReply: {ANY}",
            r"\n\n\n",
        )
        + r"\n\n\nCite {{pages}} like this: \[1\]\.\n\nAsked: {q}\n\n{c}\n\nReply:",
    ),
    "msmarco": (
        r"Put all pages in order\.\nOrder: ID3 > ID1 > ID2\n\n"
        + twice(rf"<\d+> Page: {ANY}\n\nSought: {ANY}\nOrder: [\d> ]+\n\n", "")
        + r"{c}\n\nSought: {q}\nOrder:"
    ),
    **dict.fromkeys(CLASSES, r'Number the text\. Write "number: {{label}}" only\. \n\n{c}\n\n{q}\nnumber:'),
    "narrativeqa": (
        r"A tale and a question follow\.\n\nSuch as {{this}}:\n\n"
        + twice(rf"Asked: {ANY}\nReply: {ANY}", r"\n\n")
        + r"\n\nAnd now:\n\n{c}\n\nAsked: {q}\nReply:"
    ),
    "infbench_qa": (
        r"A book and a question\.\n\nSuch as:\n\n"
        + twice(rf"\[tale\]\nAsked: {ANY}\nReply: {ANY}", r"\n\n")
        + r"\n\nAnd now:\n\n{c}\n\nAsked: {q}\n\nReply:"
    ),
    "infbench_mc": (
        r"A book and a choice\.\n\nSuch as:\n\n"
        + twice(rf"\[tale\]\nAsked: {ANY}\nChoices:\nA\. {ANY}\nReply: [A-D]", r"\n\n")
        + rf"\n\nAnd now:\n\n{{c}}\n\nAsked: {{q}}\nChoices:\nA\. {ANY}\n\nReply:"
    ),
    "infbench_sum": (
        r"Sum up the book\.\n\nSuch as:\n\n"
        + twice(rf"\[tale\]\nIn short: {ANY}", r"\n\n")
        + r"\n\nAnd now:\n\n{c}\n\nSum it up\.\n\nIn short:"
    ),
    "multi_lexsum": (
        r"Sum up the case\.\n\nOthers:\n\n"
        + twice(rf"In short: {ANY}", r"\n\n")
        + r"\n\nNow this one\.\nPapers:\n{c}\n\nSum it up\.\n\nIn short:"
    ),
    "ruler_niah_multikey_2": r"Mind the number in this text\.\n{c}\nThe number for {q}\?\nThe number for {q} is",
    "ruler_niah_multikey_3": r"Mind the uuid in this text\.\n{c}\nThe uuid for {q}\?\nThe uuid for {q} is",
    "ruler_niah_multivalue": r"Mind the numbers in this text\.\n{c}\nAll numbers for {q}\?\nAll numbers for {q} are",
}


@pytest.fixture(scope="module")
def prompt_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("clone")
    file = directory / "helmet.toml"
    clone = make_helmet_clone(directory / "HELMET")
    assert main(["helmet-prompts", "--from", str(clone), "--to", str(file)]) == 0
    return file


@pytest.fixture(scope="module")
def published(prompt_file: Path) -> Mapping[str, Task]:
    return load_tasks(str(prompt_file), "paper")


def sample_of(task: Task, index: int, chosen: PromptFormatter) -> Sample:
    length = 16384 if task.category == "rerank" else 8192
    return task.sample(length, index, seed=0, tokenizer=chosen, corpora=GENERATED)


@pytest.mark.parametrize("name", HELMET)
def test_a_prompt_is_what_the_clones_templates_give(name: str, published: Mapping[str, Task]) -> None:
    for index in range(SAMPLES):
        sample = sample_of(published[name], index, formatter())
        question = sample.question
        if name.startswith("ruler_"):
            question = sample.answer_prefix.removesuffix(" is").removesuffix(" are").partition(" for ")[2]
        pattern = EXPECTED[name].format(c=re.escape(sample.context), q=re.escape(question))
        assert re.fullmatch(pattern, sample.prompt.text), sample.prompt.text[:2000] + sample.prompt.text[-600:]
        assert sample.context in sample.prompt.text


def test_shots_and_passages_have_the_clones_form(published: Mapping[str, Task]) -> None:
    shots = sample_of(published["nlu"], 0, formatter()).context.split("\n\n")
    assert all(re.fullmatch(r".+\nnumber: \d+", shot) for shot in shots)
    for name, form in (("nq", PAGE), ("msmarco", rf"<\d+> Page: {ANY}"), ("asqa", rf"Page \[\d+\]\(Head: {ANY}\n?")):
        passages = re.split(r"\n\n+(?=Page|<)", sample_of(published[name], 0, formatter()).context)
        assert all(re.fullmatch(form, passage) for passage in passages), name


@pytest.fixture(scope="module")
def chat() -> PromptFormatter:
    tokenizer = byte_level()
    tokenizer.chat_template = "{% for message in messages %}<user>{{ message.content }}</user>{% endfor %}<assistant>"
    return PromptFormatter(tokenizer)


def test_chat_templates_are_used_as_in_the_clones_configurations(
    published: Mapping[str, Task], chat: PromptFormatter
) -> None:
    for name in ("json_kv", "ruler_niah_multikey_2", "nq", "msmarco", "nlu"):
        assert "<user>" not in sample_of(published[name], 0, chat).prompt.text
    for name in ("asqa", "infbench_qa", "multi_lexsum"):
        text = sample_of(published[name], 0, chat).prompt.text
        assert text.startswith("<user>")
        assert text.rstrip().endswith("<assistant>")


@pytest.mark.parametrize("name", ["nq", "asqa", "multi_lexsum"])
def test_samples_of_the_clones_prompts_are_sound(
    name: str, published: Mapping[str, Task], chat: PromptFormatter
) -> None:
    for chosen in (chat, formatter()):
        assert sample_problems(sample_of(published[name], 0, chosen), published[name], chosen) == []


def test_strict_scoring_and_other_files_keep_the_chat_template(prompt_file: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[nq]\nanswer_prefix = "So:"\n', encoding="utf-8")
    for tasks in (load_tasks(str(prompt_file)), load_tasks(str(own), "paper"), load_tasks(scoring="paper")):
        assert {task.turns for task in tasks.values()} == {"prefix"}


def test_the_clones_prompts_end_no_answer_at_a_line_end(prompt_file: Path) -> None:
    for scoring in ("strict", "paper"):
        tasks = load_tasks(str(prompt_file), scoring)
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


def test_answers_are_judged_by_the_clones_rubric(published: Mapping[str, Task]) -> None:
    judge: Any = RecordingJudge({"fluency": 1, "correctness": 2})
    task = published["narrativeqa"]
    sample = replace(published_sample(task), question="Who?", references=("Ida", "Ida Berg"))
    assert task.assisted_grade is not None
    score = task.assisted_grade(sample, "I think.\nAnswer: Ida\nBerg", Assistants(judge=judge))
    assert score.value == pytest.approx(2 / 3)
    (question,) = judge.questions
    form = '{"fluency": 0, "correctness": 1}'
    expected = f"\nMark it as {form}.\nAsked: Who?\nRight: ['Ida', 'Ida Berg']\nSaid: Ida Berg\n".lstrip()
    assert (question.text, question.temperature) == (expected, 0.1)
    assert read_verdict('So {"fluency": 1, "correctness": 3}', question.limits) == {"fluency": 1, "correctness": 3}


def test_summaries_are_judged_by_the_clones_rubrics(published: Mapping[str, Task]) -> None:
    verdicts = ({"fluency": 1}, {"recall": 1}, {"precision": 1, "sentence_count": 2})
    for name in ("infbench_sum", "multi_lexsum"):
        judge: Any = RecordingJudge(*verdicts)
        task = published[name]
        sample = published_sample(task)
        truth = replace(sample.truth, key_points=("One.", "Two."), reference="Both.")
        assert task.assisted_grade is not None
        score = task.assisted_grade(replace(sample, truth=truth), " It is one. ", Assistants(judge=judge))
        assert score.value == pytest.approx(0.5)
        assert [question.text.partition("}. ")[2] for question in judge.questions] == [
            "It is one.", "1. One.\n2. Two. / It is one.", "Both. / It is one.",
        ]  # fmt: skip


def test_strict_scoring_and_older_files_keep_our_rubrics(prompt_file: Path) -> None:
    assert load_tasks(str(prompt_file))["narrativeqa"].assisted_grade is TASKS["narrativeqa"].assisted_grade
    assert has_published_rubrics(str(prompt_file), "paper")
    assert not has_published_rubrics(str(prompt_file), "strict")
    assert not has_published_rubrics(None, "paper")


def test_without_a_file_no_prompt_changes() -> None:
    assert all("answer_separator" not in task.prompts for task in TASKS.values())


def move_templates_to_modules(clone: Path) -> None:
    """Give a clone the form of HELMET's later commits."""
    (clone / "data_module").mkdir()
    (clone / "data.py").rename(clone / "data_module" / "qa.py")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda clone: (clone / "data.py").unlink(), "cannot read"),
        (move_templates_to_modules, "at a commit that has data.py"),
        (lambda clone: (clone / "data.py").write_text("def load_qa(:"), "is not Python"),
        (lambda clone: (clone / "data.py").write_text("x = 1"), "has no load_json_kv"),
        (lambda clone: (clone / "prompts" / "asqa_revised.json").write_text("{}"), "has no instruction"),
        (lambda clone: (clone / "prompts" / "asqa_revised.json").write_text("{"), "is not JSON"),
    ],
)
def test_a_directory_that_is_no_clone_is_refused_in_one_line(
    spoil: object, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clone = make_helmet_clone(tmp_path / "HELMET")
    assert callable(spoil)
    spoil(clone)
    assert main(["helmet-prompts", "--from", str(clone), "--to", str(tmp_path / "out.toml")]) == 4
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out.toml").exists()
