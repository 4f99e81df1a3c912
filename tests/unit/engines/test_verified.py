"""Replacing a checkpoint during a run is an error before any answer is credited to the wrong checkpoint."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest

from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.engines import Engine, EngineError
from longctx.fixtures.engines.verified import load_verified
from longctx.fixtures.records import Generation, Prompt
from tests.helpers.checkpoints import TENSORS, WEIGHTS, Change, configure, remove, safetensors, sound_checkpoint, write
from tests.helpers.outcomes import generation_of
from tests.helpers.tiny_engines import engine_of
from tests.helpers.tiny_models import CONFIGS, random_prompt, save_model
from tests.helpers.workers import EmptyAnswerEngine

PROMPTS = [
    Prompt(text=text, token_ids=(1, 2), length_tokens=2, generation_tokens=4) for text in ("first", "second", "third")
]
OTHER_WEIGHTS = safetensors(TENSORS)[:-1] + b"\xff"


class Echo:
    """An engine that answers with the prompt and calls `before_answer` first."""

    facts = EmptyAnswerEngine.facts

    def __init__(self, before_answer: Callable[[str], object]):
        self.before_answer = before_answer
        self.verify: Callable[[], None] = lambda: None

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Generation]:
        for prompt in prompts:
            self.before_answer(prompt.text)
            self.verify()
            yield generation_of(prompt.text, 2, computed_tokens=3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return sound_checkpoint(tmp_path / "step_1000")


overwrite, remove_the_weights = write(WEIGHTS, OTHER_WEIGHTS), remove(WEIGHTS)


def replace_the_file(folder: Path) -> None:
    (folder / "new").write_bytes(OTHER_WEIGHTS)
    (folder / "new").replace(folder / "model.safetensors")


def replace_the_directory(folder: Path) -> None:
    folder.rename(folder.with_name("old"))
    sound_checkpoint(folder)
    overwrite(folder)


def keeping_the_time(change: Change) -> Change:
    """Return a change after which the file of weights has its time, and its size."""

    def change_and_restore(folder: Path) -> None:
        file = folder / "model.safetensors"
        status = file.stat()
        change(folder)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))

    return change_and_restore


def link_to_another_file(folder: Path) -> None:
    folder.with_name("blob").write_bytes(OTHER_WEIGHTS)
    (folder / "new").symlink_to(folder.with_name("blob"))
    (folder / "new").replace(folder / "model.safetensors")


CHANGES: dict[str, Change] = {
    "overwritten": overwrite, "replaced": replace_the_file, "directory": replace_the_directory,
    "equal size and time": keeping_the_time(replace_the_file), "linked": link_to_another_file,
    "in place": keeping_the_time(overwrite), "removed": remove_the_weights,
    "config": lambda folder: configure(folder, rope_theta=5.0), "tokenizer": write("tokenizer.json", '{"a": 1}'),
    "chat template": write("chat_template.jinja", "{{ messages }}"),
}  # fmt: skip
every_change = pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))


def loaded(folder: Path, load: Callable[[], Engine]) -> Engine:
    """Load the current checkpoint of a directory as a run does."""
    return load_verified(read_checkpoint(str(folder)), load, option="--model", trust_remote_code=False)


def test_a_checkpoint_answers_while_other_files_change(folder: Path) -> None:
    engine = loaded(folder, lambda: Echo(lambda text: (folder / f"optimizer-{text}.pt").touch()))
    assert [generation.text for generation in engine.generate(PROMPTS)] == ["first", "second", "third"]
    assert engine.facts is Echo.facts


@every_change
def test_a_change_between_the_start_and_loading_is_an_error(folder: Path, change: Change) -> None:
    checkpoint = read_checkpoint(str(folder))
    change(folder)
    with pytest.raises(
        EngineError, match=r"--baseline: \S*step_1000 was replaced during the run \(.+\); .*start again"
    ):
        load_verified(checkpoint, lambda: Echo(lambda text: None), option="--baseline", trust_remote_code=False)


@every_change
def test_a_change_while_the_model_is_loaded_is_an_error(folder: Path, change: Change) -> None:
    def load() -> Engine:
        change(folder)
        return Echo(lambda text: None)

    with pytest.raises(EngineError, match="was replaced during the run"):
        loaded(folder, load)


@every_change
def test_a_change_between_answers_stops_the_next_answer(folder: Path, change: Change) -> None:
    engine = loaded(folder, lambda: Echo(lambda text: change(folder) if text == "second" else None))
    answers = engine.generate(PROMPTS)
    assert next(answers).text == "first"
    with pytest.raises(EngineError, match="was replaced during the run"):
        next(answers)


@pytest.mark.parametrize("is_scored", [False, True])
def test_a_change_stops_the_answers_and_scores_of_a_model(tmp_path: Path, is_scored: bool) -> None:
    engine = engine_of(save_model(CONFIGS["llama"], tmp_path / "c"))
    prompts = [random_prompt(20), random_prompt(30)]
    results: Iterator[object] = engine.score(prompts, [(5,), (6,)]) if is_scored else engine.generate(prompts)
    next(results)
    engine.verify = Mock(side_effect=EngineError("was replaced"))
    with pytest.raises(EngineError, match="was replaced"):
        next(results)


def test_a_failure_to_load_a_replaced_checkpoint_names_the_replacement(folder: Path) -> None:
    def load() -> Engine:
        remove_the_weights(folder)
        raise ValueError("no weights")

    with pytest.raises(EngineError, match="was replaced during the run"):
        loaded(folder, load)
    with pytest.raises(ZeroDivisionError):
        loaded(sound_checkpoint(folder.with_name("step_2000")), lambda: 1 // 0)  # type: ignore[arg-type,return-value]  # it raises


def test_new_permissions_and_links_of_the_files_are_no_replacement(folder: Path) -> None:
    def change(text: str) -> None:
        (folder / "model.safetensors").chmod(0o600)
        os.link(folder / "model.safetensors", folder.with_name(f"backup-{text}"))

    def load() -> Engine:
        change("loading")
        return Echo(change)

    assert len(list(loaded(folder, load).generate(PROMPTS))) == 3
