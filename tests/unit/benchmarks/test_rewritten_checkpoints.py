"""Rewritten checkpoints compute what the original does, and give faults that need their form something to break."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig

from benchmarks.faults.__main__ import main as faults
from benchmarks.rewritten_checkpoints import BLOCK, NORM, WEIGHTS, main
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from tests.helpers.tiny_models import SIZES, random_prompt, save_model


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a Llama checkpoint with a tied head, whose final norm has weights of its own."""
    path = save_model(LlamaConfig(**SIZES, tie_word_embeddings=True), tmp_path / "source")
    tensors = load_file(path / WEIGHTS)
    tensors[NORM] = 0.5 + torch.rand(tensors[NORM].shape, generator=torch.Generator().manual_seed(0))
    save_file(tensors, path / WEIGHTS, metadata={"format": "pt"})
    return path


def logits_of(path: Path, tokens: int) -> Tensor:
    model = AutoModelForCausalLM.from_pretrained(path)
    with torch.no_grad():
        logits: Tensor = model(torch.tensor([random_prompt(tokens).token_ids])).logits[0]
        return logits


def test_an_untied_head_computes_the_same_until_it_is_taken_from_the_embeddings(source: Path, tmp_path: Path) -> None:
    out, broken = tmp_path / "out", tmp_path / "broken"
    assert main([str(source), str(out), "--form", "untied_head"]) == 0
    assert torch.allclose(logits_of(source, 80), logits_of(out, 80), atol=1e-4)
    assert read_checkpoint(str(out)).warning is None
    assert faults(["inject", str(out), str(broken), "--fault", "head_from_embeddings"]) == 0
    assert not torch.allclose(logits_of(source, 80), logits_of(broken, 80), atol=1e-2)
    assert "the head equals the embeddings" in str(read_checkpoint(str(broken)).warning)


def test_scaled_queries_are_those_of_the_original_in_the_last_block_until_the_scale_is_lost(
    source: Path, tmp_path: Path
) -> None:
    first = tmp_path / "first"
    assert main([str(source), str(first), "--form", "scaled_queries", "--length", str(BLOCK)]) == 0
    assert torch.allclose(logits_of(source, BLOCK), logits_of(first, BLOCK), atol=1e-4)
    out, broken = tmp_path / "out", tmp_path / "broken"
    assert main([str(source), str(out), "--form", "scaled_queries", "--length", "512"]) == 0
    assert faults(["inject", str(out), str(broken), "--fault", "attention_temperature"]) == 0
    # The scale is 1 in the first block, with the fault or without it.
    assert torch.allclose(logits_of(out, BLOCK), logits_of(broken, BLOCK), atol=1e-4)
    assert not torch.allclose(logits_of(out, 3 * BLOCK)[-1], logits_of(broken, 3 * BLOCK)[-1], atol=1e-3)
