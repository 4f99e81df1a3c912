"""The estimate follows the config's layers and windows."""

import json
from pathlib import Path
from typing import Any

import pytest

from longctx.fixtures.checkpoints.checkpoint import Checkpoint, read_checkpoint
from longctx.fixtures.memory import MemoryEstimate, estimate_memory
from tests.helpers.checkpoints import configure, sound_checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return sound_checkpoint(tmp_path / "step_1000")


def estimated(checkpoint: Checkpoint, length: int, dtype: str = "auto") -> MemoryEstimate:
    found = estimate_memory(checkpoint, length, dtype)
    assert found is not None
    return found


# Configs as published, without the layer types that their classes derive.
@pytest.mark.parametrize(
    ("values", "cached_tokens"),
    [
        ({}, 4 * 1000),
        ({"model_type": "mistral", "sliding_window": 100}, 4 * 99),
        ({"model_type": "mistral", "sliding_window": 5000}, 4 * 1000),
        ({"model_type": "qwen2", "sliding_window": 100, "use_sliding_window": False}, 4 * 1000),
        ({"model_type": "gemma2", "sliding_window": 100, "head_dim": 8}, 2 * 99 + 2 * 1000),
    ],
)
def test_the_cache_is_estimated_from_the_layers(values: dict[str, Any], cached_tokens: int, folder: Path) -> None:
    configure(folder, **values)
    # Keys and values of two heads of eight elements in bfloat16.
    assert estimated(read_checkpoint(str(folder)), 1000).cache_bytes == cached_tokens * 2 * 2 * 8 * 2


def test_an_architecture_that_transformers_does_not_know_has_no_estimate(folder: Path) -> None:
    configure(folder, model_type="llama99")
    assert estimate_memory(read_checkpoint(str(folder)), 1000) is None


def test_values_that_a_published_config_omits_are_the_defaults_of_its_class(folder: Path) -> None:
    """Gemma 3's configs name no heads; 5 of 6 layers have a window."""
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 6, "sliding_window": 1024}
    (folder / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": text}))
    cache = estimated(read_checkpoint(str(folder)), 10000).cache_bytes
    assert cache == (10000 + 5 * 1023) * 2 * 4 * 256 * 2


def test_memory_grows_with_dtype_and_length(folder: Path) -> None:
    checkpoint = read_checkpoint(str(folder))
    half, full = (estimated(checkpoint, 1000, name) for name in ("bfloat16", "float32"))
    assert half.weight_bytes == checkpoint.weight_bytes
    assert full.total_bytes == 2 * half.total_bytes
    assert estimated(checkpoint, 2000, "bfloat16").cache_bytes == 2 * half.cache_bytes
