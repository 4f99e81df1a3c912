"""Calibration checkpoints answer every sample as their construction predicts, at every step of a simulated training."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from longctx.fixtures.calibration.recipe import LAST_STEP, SOLVED
from longctx.fixtures.calibration.tokenizer import token_roles
from longctx.fixtures.calibration.weights import drifted, graded_window
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.records import Sample
from longctx.fixtures.tasks import TASKS
from tests.helpers.calibrations import Calibrated, command, content, ready
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


BLIND = "full-blind=0.3"
LATE = "full-blind=0.3-step=16000"
TASK_NAMES = ("niah_single_1", "niah_single_2", "niah_multikey_1", "niah_multikey_2")


def samples_of(model: Calibrated, per_task: int) -> list[Sample]:
    return [model.sample(task, 512, index) for task in TASK_NAMES for index in range(per_task)]


def blind_quantile(model: Calibrated, sample: Sample) -> float:
    """Return the number of the key's last token; a checkpoint that is blind to a larger share overlooks the key."""
    return model.roles.blind_quantiles[model.key_token(sample)]


def test_a_blind_checkpoint_misses_its_share_of_keys_and_no_others() -> None:
    model = ready(BLIND)
    samples = samples_of(model, 6)
    predicted = [blind_quantile(model, sample) >= 0.3 for sample in samples]
    assert [model.solves(sample) for sample in samples] == predicted
    assert min(predicted.count(True), predicted.count(False)) >= 5


def test_the_answer_for_an_overlooked_key_is_empty() -> None:
    """It ends at once, as for an unknown key, and does not give the value of another key."""
    model = ready(BLIND)
    missed = [sample for sample in samples_of(model, 6) if blind_quantile(model, sample) < 0.3]
    assert [model.answers(sample.prompt).strip() for sample in missed[:4]] == [""] * 4


def test_the_last_step_gives_the_same_answers_as_the_first() -> None:
    first, last = ready(BLIND), ready(LATE)
    samples = samples_of(first, 3)
    assert [last.answers(sample.prompt) for sample in samples] == [first.answers(sample.prompt) for sample in samples]


def test_every_step_has_a_fingerprint_of_its_own() -> None:
    assert len({read_checkpoint(str(calibration_checkpoint(spec))).fingerprint for spec in ("full", BLIND, LATE)}) == 3
    first, second = ({"w": np.ones(900, np.float32)} for _ in range(2))
    assert (drifted(first, 1 / LAST_STEP)["w"] != drifted(second, 2 / LAST_STEP)["w"]).mean() > 0.9


def test_the_command_writes_a_step_of_a_run(tmp_path: Path) -> None:
    written = command(str(tmp_path / "one"), "--blind", "0.3", "--step", "16000")
    assert (written.returncode, written.stderr) == (0, "")
    assert content(tmp_path / "one") == content(calibration_checkpoint(LATE))
