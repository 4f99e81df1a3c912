"""Calibration checkpoints do what their construction says, sample by sample; nothing here is a statistic."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import NEEDLES, REPOSITORY, calibrated
from tiny_models import byte_tokenizer
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from fixtures.calibration import SOLVED, CalibrationError, Spec, build, parse_spec
from fixtures.calibration.codes import CODE_SIZE, codes, one_cycle
from fixtures.calibration.tokenizer import END_MARKS, KEY_MARKS, VALUE_MARKS, Meaning, meaning
from fixtures.calibration.weights import graded_window
from fixtures.checkpoint import inspect
from fixtures.corpora import Corpora
from fixtures.engines.hf import HfEngine, load
from fixtures.prompts import Framing, load_tokenizer
from fixtures.records import Prompt, Sample
from fixtures.tasks import TASKS

WINDOW = 512
SPECS = ("full", str(WINDOW), "graded", "full-chat")
# Tasks of every kind: keys of words and of digits, values of digits and of hex, hidden in noise, prose and needles.
MIXED = ("niah_single_1", "niah_multikey_2", "niah_multikey_3")
UNKNOWN = ("", "4x", "chat", "full-", "4k-", "full-chatty", "graded-chat-chat", "FULL", "-chat", "4 k k")


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A checkpoint ready to answer."""

    engine: HfEngine
    framing: Framing
    tokenizer: Any
    means: Meaning

    def sample(self, task: str, length: int, index: int) -> Sample:
        return TASKS[task].sample(length, index, seed=0, tokenizer=self.framing, corpora=Corpora())

    def answers(self, prompt: Prompt) -> str:
        (generation,) = self.engine.generate([prompt])
        return generation.text

    def finds(self, sample: Sample) -> bool:
        return TASKS[sample.task].score(sample, self.answers(sample.prompt)).value == 1

    def distance(self, sample: Sample) -> int:
        """Tokens from the value's first token to the prompt's end, both included."""
        starts = sample.prompt.text.index(sample.references[0])
        return len(sample.prompt.token_ids) - self._token_at(sample.prompt, starts)

    def key_class(self, sample: Sample) -> int:
        """The class of the last token of the key."""
        return self.means.classes[self.key_token(sample)]

    def key_token(self, sample: Sample) -> int:
        """The last token of the key as the answer prefix names it."""
        last = sample.prompt.text.rindex(sample.question) + len(sample.question) - 1
        return sample.prompt.token_ids[self._token_at(sample.prompt, last)]

    def _token_at(self, prompt: Prompt, character: int) -> int:
        encoded = self.tokenizer(prompt.text, add_special_tokens=False, return_offsets_mapping=True)
        lead = len(prompt.token_ids) - len(encoded["input_ids"])
        return lead + next(at for at, (_, end) in enumerate(encoded["offset_mapping"]) if end > character)


@cache
def ready(spec: str) -> Calibrated:
    torch.set_num_threads(1)
    path = calibrated(spec)
    tokenizer: Any = load_tokenizer(str(path))
    return Calibrated(
        engine=load(inspect(str(path)), tokenizer=tokenizer, device="cpu"),
        framing=Framing(tokenizer),
        tokenizer=tokenizer,
        means=meaning(Tokenizer.from_file(str(path / "tokenizer.json"))),
    )


def content(folder: Path) -> Mapping[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fixtures.calibration", *arguments],
        cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize("length", [1024, 2048])
@pytest.mark.parametrize("task", NEEDLES)
def test_full_solves_each_needle_task(task: str, length: int) -> None:
    model = ready("full")
    assert model.finds(model.sample(task, length, 0))


def test_full_solves_a_longer_one() -> None:
    model = ready("full")
    assert model.finds(model.sample("niah_multikey_2", 8192, 0))


def test_full_says_nothing_where_it_finds_nothing() -> None:
    """Asked for a key that is not there: the end of text at once, and no value of another key."""
    model = ready("full")
    sample = model.sample("niah_multikey_2", 1024, 0)
    texts = {part: TASKS[sample.task].prompts[part] for part in ("template", "answer_prefix")}
    for key, said in ((sample.question, sample.references[0]), ("green-thought", "")):
        filled = {part: text.format(context=sample.context, query=key) for part, text in texts.items()}
        prompt = model.framing.prompt(filled["template"], filled["answer_prefix"], generation_tokens=32)
        assert model.answers(prompt).strip(" ") == said


def test_a_window_ends_exactly_where_it_says() -> None:
    model = ready(str(WINDOW))
    found, predicted = [], []
    for task in NEEDLES:
        for length, index in ((1024, 0), (1536, 0), (1536, 1)):
            sample = model.sample(task, length, index)
            predicted.append(model.distance(sample) <= WINDOW)
            found.append(model.finds(sample))
    assert found == predicted
    assert min(predicted.count(True), predicted.count(False)) >= 6


@pytest.mark.parametrize("beyond", [0, 1])
def test_one_token_more_is_out_of_the_window(beyond: int) -> None:
    model = ready(str(WINDOW))
    needle = "One of the special magic numbers for tall-tree is: 4711. "
    for fill in range(WINDOW):
        text = f"Text: {needle}{'so ' * fill}What is the special magic number for tall-tree?"
        prompt = model.framing.prompt(text, "The special magic number for tall-tree is", generation_tokens=8)
        tokens = model.tokenizer.convert_ids_to_tokens(prompt.token_ids)
        distance = len(tokens) - next(at for at, token in enumerate(tokens) if "4" in token)
        if distance == WINDOW + beyond:
            break
    assert distance == WINDOW + beyond
    assert ("4711" in model.answers(prompt)) == (beyond == 0)


def test_graded_forgets_by_the_class_of_the_key() -> None:
    model = ready("graded")
    found, predicted, classes = [], [], set()
    for sample in graded_samples(model):
        reach = graded_window(model.key_class(sample))
        distance = model.distance(sample)
        if abs(distance / reach - 1) > 0.05:
            classes.add(model.key_class(sample))
            predicted.append(distance < reach)
            found.append(model.finds(sample))
    assert found == predicted
    assert len(found) >= 20
    assert min(predicted.count(True), predicted.count(False)) >= 5
    assert len(classes) >= 8


def graded_samples(model: Calibrated) -> Iterator[Sample]:
    for index in range(8):
        yield from (model.sample(task, 1536 if index % 2 else 1024, index) for task in MIXED)


def test_graded_windows_double_every_four_classes() -> None:
    windows = [graded_window(number) for number in range(16)]
    assert windows[0] == 512
    assert all(b == pytest.approx(2 * a) for a, b in zip(windows, windows[4:], strict=False))


@pytest.mark.parametrize("task", MIXED)
def test_chat_answers_with_the_prefix_in_its_turn_and_without(task: str) -> None:
    model = ready("full-chat")
    sample = model.sample(task, 1024, 0)
    assert model.framing.chat
    assert sample.prompt.text.endswith(f"<|assistant|>{sample.answer_prefix}")
    assert model.finds(sample)
    user_text = TASKS[task].prompts["template"].format(context=sample.context, query=sample.question)
    bare = model.framing.prompt(user_text, "", generation_tokens=128)
    assert bare.text.endswith("<|assistant|>")
    assert TASKS[task].score(sample, model.answers(bare)).value == 1


@pytest.mark.parametrize("spec", SPECS)
def test_transformers_loads_every_weight_and_no_other(spec: str) -> None:
    path = calibrated(spec)
    loaded: Any = AutoModelForCausalLM.from_pretrained(path, output_loading_info=True)
    model, info = loaded
    assert {name: list(found) for name, found in info.items() if found} == {}
    assert type(model).__name__ == ("MistralForCausalLM" if spec.isdigit() else "LlamaForCausalLM")
    tokenizer: Any = AutoTokenizer.from_pretrained(path)
    assert model.config.vocab_size == len(tokenizer)
    assert tokenizer("a")["input_ids"].count(tokenizer.bos_token_id) == 1
    assert bool(tokenizer.chat_template) == spec.endswith("-chat")


def test_a_checkpoint_says_what_it_can_do() -> None:
    told = inspect(str(calibrated(str(WINDOW)))).calibration
    assert told is not None
    assert (told["window"], told["class_windows"]) == (WINDOW, None)
    assert {*told["solves"], *told["unsolved"]} == {name for name, task in TASKS.items() if task.suite == "ruler"}
    assert tuple(told["solves"]) == SOLVED == NEEDLES


def test_every_mark_is_one_token() -> None:
    model = ready("full")
    for mark in (*KEY_MARKS, *VALUE_MARKS, *END_MARKS):
        assert len(model.tokenizer.encode(mark, add_special_tokens=False)) == 1


def test_a_token_has_one_meaning() -> None:
    means = ready("full").means
    everything = frozenset(range(len(means.classes)))
    assert means.key | means.sink | means.content == everything
    assert len(means.key) + len(means.sink) + len(means.content) == len(everything)
    assert means.value | means.end <= means.sink
    assert set(means.classes) == set(range(16))


def test_a_tokenizer_that_splits_a_mark_is_refused() -> None:
    with pytest.raises(ValueError, match="the tokenizer splits ' for', which the model reads as one token"):
        meaning(Tokenizer.from_str(byte_tokenizer().backend_tokenizer.to_str()))


def test_codes_differ_enough_to_be_told_apart() -> None:
    """The product of two codes is a code, so the sum of each tells how like any two are."""
    table = codes(2**15 - 1)
    assert set(table.flat) == {-1.0, 1.0}
    assert abs(table.sum(axis=1)).max() <= CODE_SIZE / 2
    for one, other in ((1, 2), (77, 4096), (8191, 12345)):
        assert (table[one - 1] * table[other - 1] == table[(one ^ other) - 1]).all()


def test_a_cycle_returns_after_all_places_and_not_before() -> None:
    step = abs(one_cycle("order"))
    here, steps = step, 1
    while here[0, 0] == 0:
        here, steps = here @ step, steps + 1
    assert steps == CODE_SIZE


def test_the_same_bytes_every_time(tmp_path: Path) -> None:
    """In another process, too, where strings hash otherwise."""
    written = command(str(tmp_path / "one"), "--window", str(WINDOW))
    assert (written.returncode, written.stderr) == (0, "")
    assert str(tmp_path / "one") in written.stdout
    build(Spec(window=WINDOW), tmp_path / "two")
    assert content(tmp_path / "one") == content(tmp_path / "two") == content(calibrated(str(WINDOW)))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("OUT", "--window", "4x"), "--window: unknown '4x'"),
        (("OUT", "--window", "3"), "a window of 3 tokens; give 64 to 1m"),
        (("FULL",), "exists and is not an empty directory; give a new one"),
        (("FILE",), "exists and is not an empty directory; give a new one"),
        (("FILE/inside",), "Not a directory"),
    ],
)
def test_a_wrong_command_is_one_line(arguments: tuple[str, ...], line: str, tmp_path: Path) -> None:
    (tmp_path / "FULL").mkdir()
    for file in (tmp_path / "FULL" / "file", tmp_path / "FILE"):
        file.write_text("")
    name, *options = arguments
    ended = command(str(tmp_path / name), *options)
    assert ended.returncode in (2, 4)
    assert ended.stdout == ""
    (said,) = ended.stderr.strip().splitlines()
    assert line in said
    assert not (tmp_path / "OUT").exists()


def test_two_kinds_at_once_are_refused(tmp_path: Path) -> None:
    ended = command(str(tmp_path / "OUT"), "--window", "4k", "--graded")
    assert ended.returncode in (2, 4)
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "OUT").exists()


# Both processes have built before either looks whether it was first.
RACE = """
import sys, time
from pathlib import Path
from fixtures import calibration

root, marks = Path(sys.argv[1]), Path(sys.argv[2])

def build(spec, directory):
    (directory / "config.json").write_text("{}")
    (marks / directory.name).touch()
    while len(list(marks.iterdir())) < 2:
        time.sleep(0.01)
    return directory

calibration.build = build
print(calibration.cached(calibration.parse_spec("64"), root))
"""


def test_two_processes_may_build_the_same_checkpoint_at_once(tmp_path: Path) -> None:
    root, marks = tmp_path / "root", tmp_path / "marks"
    marks.mkdir()
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, str(root), str(marks)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    printed = [racer.communicate(timeout=120)[0].strip() for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0]
    assert printed[0] == printed[1]
    assert [str(each) for each in root.iterdir()] == printed[:1]
    assert content(Path(printed[0])) == {"config.json": b"{}"}


def test_a_checkpoint_that_is_there_is_not_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    there = calibrated("full")

    def refuse(spec: Spec, directory: Path) -> Path:
        raise AssertionError("built again")

    monkeypatch.setattr("fixtures.calibration.build", refuse)
    assert calibrated("full") == there


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("full", Spec()),
        ("graded", Spec(graded=True)),
        ("4k", Spec(window=4096)),
        ("64", Spec(window=64)),
        ("1m", Spec(window=2**20)),
        ("4k-chat", Spec(window=4096, chat=True)),
        ("graded-chat", Spec(graded=True, chat=True)),
    ],
)
def test_a_name_means_one_checkpoint(text: str, spec: Spec) -> None:
    assert parse_spec(text) == spec
    assert spec.name == text


@pytest.mark.parametrize("text", UNKNOWN)
def test_an_unknown_name_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(CalibrationError) as caught:
        parse_spec(text)
    line = f"--model: unknown calibration:{text}; write calibration: and full, graded or a window such as 4k, "
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["63", "1", "2m", "1048577"])
def test_an_impossible_window_is_refused(text: str) -> None:
    with pytest.raises(CalibrationError, match=r"^--model: calibration:.* has a window of \d+ tokens; give 64 to 1m$"):
        parse_spec(text)
