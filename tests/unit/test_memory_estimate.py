"""The estimate agrees with transformers: with caches of real forward passes and the counted peak of an 8B shape."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    AutoModelForCausalLM,
    DeepseekV2Config,
    DeepseekV3Config,
    FalconH1Config,
    Gemma3nTextConfig,
    GptOssConfig,
    Llama4TextConfig,
    LlamaConfig,
    Qwen3NextConfig,
)

from longctx.fixtures.checkpoints.checkpoint import Checkpoint
from longctx.fixtures.engines.hf.prefill import CachedForward
from longctx.fixtures.memory import MemoryEstimate, estimate_peak_memory
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
    "deepseek_v2": DeepseekV2Config(**LATENT),
    "deepseek_v3": DeepseekV3Config(**LATENT),
    "gpt_oss": GptOssConfig(
        **SIZES, head_dim=16, sliding_window=WINDOW, num_local_experts=2, num_experts_per_tok=1, rope_parameters=None
    ),
    "llama4": Llama4TextConfig(
        **SIZES,
        head_dim=16,
        attention_chunk_size=WINDOW,
        num_local_experts=2,
        intermediate_size_mlp=64,
        layer_types=["chunked_attention", "full_attention"],
    ),
    "qwen3_next": Qwen3NextConfig(
        **SIZES,
        head_dim=16,
        layer_types=["linear_attention", "full_attention"],
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        num_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
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
LLAMA_8B = LlamaConfig(
    vocab_size=128256,
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=4,
    num_attention_heads=32,
    num_key_value_heads=8,
    max_position_embeddings=131072,
)


def checkpoint_of(model: Any) -> Checkpoint:
    return Checkpoint(
        name="m",
        path="m",
        architecture="m",
        model_type=model.config.model_type,
        claimed_length=None,
        dtype=str(model.dtype).removeprefix("torch."),
        parameters=0,
        weight_bytes=sum(parameter.nbytes for parameter in model.parameters()),
        fingerprint="",
        config=model.config.to_diff_dict(),
        calibration=None,
    )


def tensors_of(cache: Any) -> list[torch.Tensor]:
    """Return the keys, values and states of all layers."""
    values = [value for layer in cache.layers for value in vars(layer).values()]
    flat = [inner for value in values for inner in (value.values() if isinstance(value, dict) else [value])]
    # A layer stores the window's size as a tensor too, without dimensions.
    return [value for value in flat if isinstance(value, torch.Tensor) and value.dim()]


def filled(family: str, chunk: int | None) -> tuple[list[torch.Tensor], MemoryEstimate]:
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(FAMILIES[family]).eval()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    length = 100 if family == "gpt2" else 300
    cache, _ = CachedForward(model).prefill(torch.randint(2, 300, (1, length)), chunk_tokens=chunk)
    estimate = estimate_peak_memory(checkpoint_of(model), length, prefill=str(chunk or "whole"))
    assert estimate is not None
    return tensors_of(cache), estimate


@pytest.mark.parametrize("family", FAMILIES)
def test_the_estimated_cache_is_the_one_that_transformers_fills(family: str) -> None:
    tensors, estimate = filled(family, None)
    assert estimate.cache_bytes == sum(tensor.nbytes for tensor in tensors)


@pytest.mark.parametrize("chunk", [None, 150])
@pytest.mark.parametrize("family", ["mistral", "gemma3", "llama4"])
def test_tokens_that_a_window_keeps_in_memory_are_counted(family: str, chunk: int | None) -> None:
    """A window's tensors are views of all tokens of the last pass, which stay in memory until the next one."""
    tensors, estimate = filled(family, chunk)
    held = sum({tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}.values())
    assert estimate.cache_bytes < held <= estimate.cache_bytes + estimate.activation_bytes


class Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Count the memory that operations allocate; workspace inside kernels is not visible."""

    def __init__(self, model: Any):
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.sizes = {tensor.untyped_storage()._cdata: 0 for tensor in (*model.parameters(), *model.buffers())}
        self.now = self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_iter(result):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in self.sizes:
                storage = tensor.untyped_storage()
                self.sizes[storage._cdata] = storage.nbytes()
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self.free, storage._cdata)
        return result

    def free(self, key: int) -> None:
        self.now -= self.sizes.pop(key)


@pytest.mark.parametrize(
    ("attention", "length", "chunk"),
    [
        ("sdpa", 131072, None),
        ("sdpa", 131072, 16384),
        ("sdpa", 32768, 1024),
        ("eager", 32768, 4096),
        ("eager", 8192, None),
    ],
)
def test_the_estimated_peak_is_the_counted_one(attention: str, length: int, chunk: int | None) -> None:
    """Fake tensors have sizes and no content. The estimate is within 10 % of the peak without the weights."""
    with FakeTensorMode():
        model: Any = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]  # transformers leaves it untyped
            LLAMA_8B, dtype=torch.bfloat16, attn_implementation=attention
        ).eval()
        with Allocations(model) as counted:
            held = CachedForward(model).prefill(torch.zeros((1, length), dtype=torch.long), chunk_tokens=chunk)
    del held
    estimate = estimate_peak_memory(checkpoint_of(model), length, attention=attention, prefill=str(chunk or "whole"))
    assert estimate is not None
    assert estimate.cache_bytes + estimate.activation_bytes == pytest.approx(counted.peak, rel=0.1)
