"""The estimate agrees with the caches of real forward passes of transformers."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    FalconH1Config,
    Gemma3nTextConfig,
    Llama4TextConfig,
)

from longctx.fixtures.checkpoints.checkpoint import Checkpoint
from longctx.fixtures.engines.hf.prefill import CachedForward
from longctx.fixtures.memory import estimate_memory
from tests.helpers.reports import CHECKPOINT
from tests.helpers.tiny_models import CONFIGS, HYBRIDS, SIZES, VOCABULARY, WINDOW

LATENT: dict[str, Any] = {
    **SIZES,
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "q_lora_rank": None,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "first_k_dense_replace": 2,
}
MORE: dict[str, Any] = {
    "deepseek_v3": DeepseekV3Config(**LATENT),
    "llama4": Llama4TextConfig(
        **SIZES,
        head_dim=16,
        attention_chunk_size=WINDOW,
        num_local_experts=2,
        intermediate_size_mlp=64,
        layer_types=["chunked_attention", "full_attention"],
    ),
    "falcon_h1": FalconH1Config(**SIZES, mamba_n_heads=4, mamba_d_head=32, mamba_d_state=16, mamba_d_ssm=128),
    "gemma3n": Gemma3nTextConfig(
        **{**SIZES, "num_hidden_layers": 4, "intermediate_size": [128] * 4},
        head_dim=16,
        sliding_window=WINDOW,
        layer_types=["sliding_attention", "full_attention"] * 2,
        num_kv_shared_layers=2,
        vocab_size_per_layer_input=VOCABULARY,
        hidden_size_per_layer_input=16,
        laurel_rank=8,
        activation_sparsity_pattern=[0.0] * 4,
    ),
}
FAMILIES = {**CONFIGS, **HYBRIDS, **MORE}


def checkpoint_of(model: Any) -> Checkpoint:
    return replace(
        CHECKPOINT,
        model_type=model.config.model_type,
        dtype=str(model.dtype).removeprefix("torch."),
        weight_bytes=sum(parameter.nbytes for parameter in model.parameters()),
        config=model.config.to_diff_dict(),
    )


def tensors_of(cache: Any) -> list[torch.Tensor]:
    """Return the keys, values and states of all layers."""
    values = [value for layer in cache.layers for value in vars(layer).values()]
    flat = [inner for value in values for inner in (value.values() if isinstance(value, dict) else [value])]
    # A layer stores the window's size as a tensor too, without dimensions.
    return [value for value in flat if isinstance(value, torch.Tensor) and value.dim()]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_estimated_cache_is_the_one_that_transformers_fills(family: str) -> None:
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(FAMILIES[family]).eval()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    length = 100 if family == "gpt2" else 300
    cache, _ = CachedForward(model).prefill(torch.randint(2, 300, (1, length)), chunk_tokens=None)
    estimate = estimate_memory(checkpoint_of(model), length)
    assert estimate is not None
    assert estimate.cache_bytes == sum(tensor.nbytes for tensor in tensors_of(cache))
