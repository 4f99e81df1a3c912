"""Calibration checkpoints answer every sample as their construction predicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from longctx.fixtures.calibration.recipe import SOLVED
from longctx.fixtures.calibration.tokenizer import token_roles
from longctx.fixtures.calibration.weights import graded_window
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.records import Sample
from longctx.fixtures.tasks import TASKS
from tests.helpers.calibrations import Calibrated, ready
from tests.helpers.runs import NEEDLES, calibration_checkpoint
from tests.helpers.tiny_models import byte_tokenizer

WINDOW = 512
SPECS = ("full", str(WINDOW), "graded", "full-chat")
# Tasks with keys of words and of hex digits, values of digits and of hex digits, in noise and among other needles.
MIXED = ("niah_single_1", "niah_multikey_2", "niah_multikey_3")


@pytest.mark.parametrize("task", NEEDLES)
def test_full_solves_every_needle_task(task: str) -> None:
    model = ready("full")
    assert model.solves(model.sample(task, 2048, 0))


def test_full_gives_an_empty_answer_for_an_unknown_key() -> None:
    """The model ends its answer at once and does not give the value of another key."""
    model = ready("full")
    sample = model.sample("niah_multikey_2", 1024, 0)
    texts = {part: TASKS[sample.task].prompts[part] for part in ("template", "answer_prefix")}
    for key, answer in ((sample.question, sample.references[0]), ("green-thought", "")):
        filled = {part: text.format(context=sample.context, query=key) for part, text in texts.items()}
        prompt = model.formatter.prompt(filled["template"], filled["answer_prefix"], generation_tokens=32)
        assert model.answers(prompt).strip(" ") == answer


def test_needles_are_retrieved_exactly_inside_the_window() -> None:
    model = ready(str(WINDOW))
    solved, predicted = [], []
    for task in NEEDLES:
        for length, index in ((1024, 0), (1536, 1)):
            sample = model.sample(task, length, index)
            predicted.append(model.distance(sample) <= WINDOW)
            solved.append(model.solves(sample))
    assert solved == predicted
    assert min(predicted.count(True), predicted.count(False)) >= 4


@pytest.mark.parametrize("beyond", [0, 1])
def test_the_window_ends_after_its_last_token(beyond: int) -> None:
    model = ready(str(WINDOW))
    needle = "One of the special magic numbers for tall-tree is: 4711. "
    for fill in range(WINDOW):
        text = f"Text: {needle}{'so ' * fill}What is the special magic number for tall-tree?"
        prompt = model.formatter.prompt(text, "The special magic number for tall-tree is", generation_tokens=8)
        tokens = model.tokenizer.convert_ids_to_tokens(prompt.token_ids)
        distance = len(tokens) - next(index for index, token in enumerate(tokens) if "4" in token)
        if distance == WINDOW + beyond:
            break
    assert distance == WINDOW + beyond
    assert ("4711" in model.answers(prompt)) == (beyond == 0)


def test_the_window_of_graded_depends_on_the_class_of_the_key() -> None:
    model = ready("graded")
    solved, predicted, classes = [], [], set()
    for sample in graded_samples(model):
        reach = graded_window(model.key_class(sample))
        distance = model.distance(sample)
        if abs(distance / reach - 1) > 0.05:
            classes.add(model.key_class(sample))
            predicted.append(distance < reach)
            solved.append(model.solves(sample))
    assert solved == predicted
    assert len(solved) >= 12
    assert min(predicted.count(True), predicted.count(False)) >= 3
    assert len(classes) >= 6


def graded_samples(model: Calibrated) -> Iterator[Sample]:
    for index in range(5):
        yield from (model.sample(task, 1536 if index % 2 else 1024, index) for task in MIXED)


@pytest.mark.parametrize("task", MIXED)
def test_chat_answers_with_and_without_the_answer_prefix(task: str) -> None:
    model = ready("full-chat")
    sample = model.sample(task, 1024, 0)
    assert model.formatter.chat
    assert sample.prompt.text.endswith(f"<|assistant|>{sample.answer_prefix}")
    assert model.solves(sample)
    user_text = TASKS[task].prompts["template"].format(context=sample.context, query=sample.question)
    bare = model.formatter.prompt(user_text, "", generation_tokens=128)
    assert bare.text.endswith("<|assistant|>")
    assert TASKS[task].score(sample, model.answers(bare)).value == 1


@pytest.mark.parametrize("spec", SPECS)
def test_transformers_loads_every_weight_and_no_other(spec: str) -> None:
    path = calibration_checkpoint(spec)
    loaded: Any = AutoModelForCausalLM.from_pretrained(path, output_loading_info=True)
    model, info = loaded
    assert {name: list(problems) for name, problems in info.items() if problems} == {}
    assert type(model).__name__ == ("MistralForCausalLM" if spec.isdigit() else "LlamaForCausalLM")
    tokenizer: Any = AutoTokenizer.from_pretrained(path)
    assert model.config.vocab_size == len(tokenizer)
    assert tokenizer("a")["input_ids"].count(tokenizer.bos_token_id) == 1
    assert bool(tokenizer.chat_template) == spec.endswith("-chat")


def test_a_checkpoint_describes_its_window_and_its_solved_tasks() -> None:
    description = read_checkpoint(str(calibration_checkpoint(str(WINDOW)))).calibration
    assert description is not None
    assert (description["window"], description["class_windows"]) == (WINDOW, None)
    assert {*description["solves"], *description["unsolved"]} == {
        name for name, task in TASKS.items() if task.suite == "ruler"
    }
    assert tuple(description["solves"]) == SOLVED == NEEDLES


def test_a_tokenizer_that_splits_a_mark_is_refused() -> None:
    with pytest.raises(ValueError, match="the tokenizer splits ' for', which the model reads as one token"):
        token_roles(Tokenizer.from_str(byte_tokenizer().backend_tokenizer.to_str()))
