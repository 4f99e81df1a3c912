"""The estimate follows the config's layers and windows, and the way in which prompts are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from longctx.fixtures.checkpoints.checkpoint import Checkpoint, read_checkpoint
from longctx.fixtures.memory import estimate
from longctx.fixtures.memory.estimate import estimate_peak_memory
from tests.helpers.checkpoints import configure, sound_checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return sound_checkpoint(tmp_path / "step_1000")


def with_config(folder: Path, **values: Any) -> Checkpoint:
    configure(folder, **values)
    return read_checkpoint(str(folder))


@pytest.mark.parametrize(
    ("values", "tokens_times_elements"),
    [
        ({}, 4 * 1000 * 2 * 2 * 8),
        ({"head_dim": 32}, 4 * 1000 * 2 * 2 * 32),
        ({"num_key_value_heads": None}, 4 * 1000 * 2 * 8 * 8),
        ({"sliding_window": 100}, 4 * 99 * 2 * 2 * 8),
        ({"sliding_window": 5000}, 4 * 1000 * 2 * 2 * 8),
        ({"sliding_window": 100, "use_sliding_window": False}, 4 * 1000 * 2 * 2 * 8),
        ({"sliding_window": 100, "max_window_layers": 3}, 3099 * 2 * 2 * 8),
        ({"sliding_window": 100, "sliding_window_pattern": 2}, 2198 * 2 * 2 * 8),
        ({"sliding_window": 100, "model_type": "gemma2"}, 2198 * 2 * 2 * 8),
        ({"sliding_window": 100, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]}, 1297 * 2 * 2 * 8),
        ({"attention_chunk_size": 10, "layer_types": ["chunked_attention", "full_attention"] * 2}, 2018 * 2 * 2 * 8),
        ({"layer_types": ["linear_attention"] * 3 + ["full_attention"]}, 1000 * 2 * 2 * 8),
        ({"num_kv_shared_layers": 3}, 1000 * 2 * 2 * 8),
        # Configs as published, without the layer types that their classes derive.
        ({"hybrid_override_pattern": "M-*E"}, 1000 * 2 * 2 * 8),
        ({"full_attn_idxs": [1, 3]}, 2000 * 2 * 2 * 8),
        ({"full_attention_interval": 4}, 1000 * 2 * 2 * 8),
        ({"model_type": "llama4_text", "attention_chunk_size": 10, "no_rope_layers": []}, 1027 * 2 * 2 * 8),
        ({"model_type": "llama4_text", "attention_chunk_size": 10, "no_rope_layers": [1, 0] * 2}, 2018 * 2 * 2 * 8),
        (
            {"model_type": "bamba", "mamba_d_state": 0, "layers_block_type": ["mamba", "attention"] * 2},
            2000 * 2 * 2 * 8,
        ),
        ({"kv_lora_rank": 512, "qk_rope_head_dim": 64}, 4 * 1000 * 576),
        ({"num_attention_heads": None}, 0),
        ({"text_config": {"num_hidden_layers": 2}}, 2 * 1000 * 2 * 2 * 8),
    ],
)
def test_the_cache_is_estimated_from_the_layers(
    values: dict[str, Any], tokens_times_elements: int, folder: Path
) -> None:
    checkpoint = with_config(folder, **values)
    assert estimate_peak_memory(checkpoint, 1000, "auto").cache_bytes == 2 * tokens_times_elements


@pytest.mark.parametrize(
    ("options", "larger"),
    [
        ({"attention": "eager"}, {"attention": "eager", "prefill": "whole"}),
        ({"attention": "flash_attention_2"}, {"attention": "sdpa"}),
        ({"attention": "sdpa"}, {"attention": "eager", "prefill": "4096"}),
    ],
)
def test_activations_depend_on_attention_and_chunks(
    options: dict[str, Any], larger: dict[str, Any], folder: Path
) -> None:
    checkpoint = read_checkpoint(str(folder))
    less, more = (estimate_peak_memory(checkpoint, 131072, **chosen) for chosen in (options, larger))
    assert less.cache_bytes == more.cache_bytes
    assert 2 * less.activation_bytes < more.activation_bytes


@pytest.mark.parametrize(
    ("options", "prefill"),
    [
        ({"device": "cpu"}, "256"),
        ({"device": "cuda", "attention": "sdpa"}, "512"),
    ],
)
def test_an_estimate_takes_the_chunks_that_the_engine_chooses_on_a_device(
    options: dict[str, Any], prefill: str, folder: Path
) -> None:
    checkpoint = read_checkpoint(str(folder))
    chosen = {"dtype": "bfloat16"} | options
    assert estimate_peak_memory(checkpoint, 4096, **chosen) == estimate_peak_memory(
        checkpoint, 4096, **chosen, prefill=prefill
    )


def test_automatic_attention_is_flash_attention_if_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    checkpoint = read_checkpoint(str(folder))
    without = estimate_peak_memory(checkpoint, 131072)
    monkeypatch.setattr(estimate, "version", lambda _: "2.8.3")
    assert estimate_peak_memory(checkpoint, 131072).activation_bytes < without.activation_bytes / 2
    others: tuple[dict[str, Any], ...] = ({"device": "cpu"}, {"dtype": "float32", "attention": "sdpa"})
    for other in others:
        assert estimate_peak_memory(checkpoint, 131072, **other).activation_bytes >= without.activation_bytes


def test_values_that_a_published_config_omits_are_the_defaults_of_its_class(folder: Path) -> None:
    """Gemma 3's configs name no heads; 5 of 6 layers have a window."""
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 6, "sliding_window": 1024}
    (folder / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": text}))
    cache = estimate_peak_memory(read_checkpoint(str(folder)), 10000).cache_bytes
    assert cache == (10000 + 5 * 1023) * 2 * 4 * 256 * 2


def test_memory_grows_with_dtype_rows_and_length(folder: Path) -> None:
    checkpoint = read_checkpoint(str(folder))
    base = estimate_peak_memory(checkpoint, 1000, "bfloat16", 1)
    assert base.total_bytes == base.weight_bytes + base.cache_bytes + base.activation_bytes
    assert base.weight_bytes == checkpoint.weight_bytes
    half, full = (estimate_peak_memory(checkpoint, 1000, name, prefill="whole") for name in ("bfloat16", "float32"))
    assert full.total_bytes == 2 * half.total_bytes
    # The prompts of a batch are read one at a time, and copied into their rows.
    rows = estimate_peak_memory(checkpoint, 1000, "bfloat16", 2)
    assert (rows.weight_bytes, rows.cache_bytes, rows.activation_bytes) == (
        base.weight_bytes,
        3 * base.cache_bytes,
        base.activation_bytes,
    )
    assert estimate_peak_memory(checkpoint, 2000, "bfloat16", 1).cache_bytes == 2 * base.cache_bytes
