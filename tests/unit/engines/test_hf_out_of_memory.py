"""Prompts are read in chunks when memory runs out or `--prefill-chunk` asks for it, and the answers do not change."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from fixtures.checkpoints.checkpoint import read_checkpoint
from fixtures.engines import EngineError, execution_settings
from fixtures.engines.hf import prefill
from fixtures.engines.hf.engine import HfEngine, load
from tests.helpers.tiny_engines import TEXT, Ready, counted, own_greedy, questions, ready_in
from tests.helpers.tiny_models import CONFIGS, Ids, random_prompt, save_model


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Ready:
    return ready_in(tmp_path_factory)


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


def test_a_batch_that_needs_too_much_memory_is_halved(ready: Ready, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ready("llama", 4)
    prompts = [random_prompt(30 + number) for number in range(8)]
    expected = [own_greedy(engine, prompt) for prompt in prompts]
    monkeypatch.setattr(engine, "max_batch_tokens", engine.max_batch_tokens)
    sizes = failing_above(engine, monkeypatch, 999, rows=2)
    assert [generation.text for generation in engine.generate(prompts)] == expected
    # The second batch of four is not tried after the first was halved; the longest prompt has 37 tokens.
    assert max(sizes) <= 4 * 37
    assert engine.max_batch_tokens < 4 * 33


def test_a_prompt_that_needs_too_much_memory_is_read_in_smaller_chunks(
    ready: Ready, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ready("llama")
    (prompt,) = questions(1)
    expected = own_greedy(engine, prompt)
    monkeypatch.setattr(engine, "prefill_mode", engine.prefill_mode)
    monkeypatch.setattr(prefill, "LEAST_CHUNK_TOKENS", 8)
    sizes = failing_above(engine, monkeypatch, 50)
    (generation,) = engine.generate([prompt])
    assert generation.text == expected
    assert engine.facts.prefill == "chunks of 40"
    assert [size for size in sizes if size > 1] == [163, 81, 40, 40, 40, 40, 3]


def test_running_out_of_memory_in_the_smallest_chunk_reports_the_missing_memory(
    ready: Ready, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ready("llama")
    monkeypatch.setattr(engine, "prefill_mode", engine.prefill_mode)
    monkeypatch.setattr(prefill, "LEAST_CHUNK_TOKENS", 32)
    failing_above(engine, monkeypatch, 10)
    message = (
        r"out of memory on cpu with a prompt of 163 tokens, alone and chunks of 40: 20.00 MiB more were requested, "
        r"about [0-9.]+ MiB are needed, [0-9.]+ MiB of them for the cache; use shorter --lengths"
    )
    with pytest.raises(EngineError, match=message):
        list(engine.generate(questions(1)))


def test_the_prefix_cache_is_freed_before_a_prompt_fails(ready: Ready, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ready("llama")
    monkeypatch.setattr(engine, "prefill_mode", engine.prefill_mode)
    list(engine.generate(questions(1)))
    failing_above(engine, monkeypatch, 0)
    with pytest.raises(EngineError, match="out of memory"):
        list(engine.generate(questions(2)))
    assert engine.prefix_cache.ids == ()


@pytest.mark.parametrize("batch_size", [1, 3])
def test_another_models_cache_is_freed_before_batches_or_chunks_get_smaller(
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
    mode, max_tokens = engine.prefill_mode, engine.max_batch_tokens
    assert len(list(engine.generate(questions(3)))) == 3
    assert (engine.prefill_mode, engine.max_batch_tokens) == (mode, max_tokens)


@pytest.mark.parametrize(("option", "description"), [("auto", "whole"), ("whole", "whole"), ("32", "chunks of 32")])
def test_the_option_sets_the_prefill_chunk(option: str, description: str, tmp_path: Path, ready: Ready) -> None:
    checkpoint = read_checkpoint(str(save_model(CONFIGS["llama"], tmp_path / "c")))
    engine = load(checkpoint, tokenizer=Ids(), device="cpu", prefill_chunk=option)
    assert engine.facts.prefill == description
    with counted(engine) as pass_sizes:
        list(engine.generate(questions(1)))
    assert max(pass_sizes) == (32 if option == "32" else len(TEXT) + 3)


@pytest.mark.parametrize("family", ["longrope", "jamba"])
def test_a_prefill_chunk_that_changes_answers_is_refused(family: str, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(str(save_model(CONFIGS[family], tmp_path / "c")))
    with pytest.raises(EngineError, match=r"--prefill-chunk: 64, but .* answers differently when it reads in parts"):
        load(checkpoint, tokenizer=Ids(), device="cpu", prefill_chunk="64")


def test_execution_settings_differ_by_prefill_chunk(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(str(save_model(CONFIGS["llama"], tmp_path / "c")))
    variants = [
        execution_settings(
            checkpoint,
            engine="auto",
            device="cpu",
            dtype="auto",
            attention="auto",
            batch_size=0,
            prefill_chunk=chunk,
        )
        for chunk in ("auto", "whole", "512")
    ]
    assert all(one != other for one, other in itertools.combinations(variants, 2))
