"""Prompts are read in the chunks that `--prefill-chunk` asks for; where memory runs out, one line says what to do."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.engines import EngineError, execution_settings
from longctx.fixtures.engines.hf.engine import HfEngine
from longctx.fixtures.engines.hf.settings import HfSettings
from tests.helpers.tiny_engines import TEXT, Ready, counted, engine_of, questions
from tests.helpers.tiny_models import CONFIGS, random_prompt, save_model


def failing_above(engine: HfEngine, monkeypatch: pytest.MonkeyPatch, positions: int, *, rows: int = 99) -> list[int]:
    """Make larger forward passes run out of memory; return a list that collects the positions of every pass."""
    forward = engine.forward.model.forward
    sizes: list[int] = []

    def limited(*_: Any, **inputs: Any) -> Any:
        sizes.append(inputs["input_ids"].numel())
        if sizes[-1] > positions or inputs["input_ids"].shape[0] > rows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total ...")
        return forward(**inputs)

    monkeypatch.setattr(engine.forward.model, "forward", limited)
    return sizes


def test_a_batch_that_needs_too_much_memory_fails_with_the_size_to_use(
    ready: Ready, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A smaller batch may answer differently at near ties, so it must be chosen for the whole run."""
    engine = ready("llama", 4)
    failing_above(engine, monkeypatch, 999, rows=2)
    message = r"out of memory on cpu with 3 prompts of up to 32 tokens, in a batch of 4 .*; use --batch-size 2, shorter"
    with pytest.raises(EngineError, match=message):
        list(engine.generate([random_prompt(30 + number) for number in range(3)]))


def test_a_prompt_that_needs_too_much_memory_fails_with_the_missing_memory(
    ready: Ready, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ready("llama")
    failing_above(engine, monkeypatch, 10)
    message = (
        r"out of memory on cpu with a prompt of 163 tokens, alone and chunks of 16: 20.00 MiB more were requested; use "
        r"shorter --lengths"
    )
    with pytest.raises(EngineError, match=message):
        list(engine.generate(questions(1)))


def test_a_whole_prompt_that_needs_too_much_memory_fails_with_the_chunk_to_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(save_model(CONFIGS["llama"], tmp_path / "c"), prefill_chunk="whole")
    failing_above(engine, monkeypatch, 520)
    with pytest.raises(EngineError, match=r"alone and whole: .*; use --prefill-chunk 512, shorter --lengths"):
        list(engine.generate([random_prompt(600)]))


@pytest.mark.parametrize("batch_size", [1, 3])
def test_another_models_cache_is_freed_before_a_batch_fails(
    batch_size: int, ready: Ready, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, other = ready("llama", batch_size), ready("qwen2")
    list(other.generate(questions(1)))
    forward = engine.forward.model.forward

    def fail_while_the_other_cache_exists(*_: Any, **inputs: Any) -> Any:
        if other.prefix_cache.ids:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return forward(**inputs)

    monkeypatch.setattr(engine.forward.model, "forward", fail_while_the_other_cache_exists)
    assert len(list(engine.generate(questions(3)))) == 3


@pytest.mark.parametrize(
    ("option", "description", "largest"),
    [("auto", "chunks of 128 to 1024", 128), ("whole", "whole", len(TEXT) + 3), ("32", "chunks of 32", 32)],
)
def test_the_option_sets_the_prefill_chunk(option: str, description: str, largest: int, tmp_path: Path) -> None:
    engine = engine_of(save_model(CONFIGS["llama"], tmp_path / "c"), prefill_chunk=option)
    assert engine.facts.prefill == description
    with counted(engine) as pass_sizes:
        list(engine.generate(questions(1)))
    assert max(pass_sizes) == largest


@pytest.mark.parametrize("family", ["longrope", "jamba"])
def test_a_prefill_chunk_that_changes_answers_is_refused(family: str, tmp_path: Path) -> None:
    path = save_model(CONFIGS[family], tmp_path / "c")
    with pytest.raises(EngineError, match=r"--prefill-chunk: 64, but .* answers differently when it reads in parts"):
        engine_of(path, prefill_chunk="64")


def test_execution_settings_differ_by_prefill_chunk(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(str(save_model(CONFIGS["llama"], tmp_path / "c")))
    variants = [
        execution_settings(checkpoint, HfSettings(device="cpu", prefill_chunk=chunk))
        for chunk in ("auto", "whole", "512")
    ]
    assert all(one != other for one, other in itertools.combinations(variants, 2))
