"""A merged adapter answers as the base model with the adapter beside it, and unusable adapters are one line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig

from longctx.fixtures.checkpoints.checkpoint import read_checkpoint, read_source
from longctx.fixtures.checkpoints.safetensors import CheckpointError
from longctx.fixtures.conversion import ConversionError, Converter, make_checkpoint
from tests.helpers.tiny_models import save_model

CONFIG: dict[str, Any] = {"peft_type": "LORA", "r": 4, "lora_alpha": 32, "use_rslora": False}
LINEAR = ("model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj")
HEAD = "lm_head.weight"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = LlamaConfig(
        vocab_size=300, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=256,
    )  # fmt: skip
    return save_model(config, tmp_path_factory.mktemp("base") / "model")


def parts(model: Any, **changed: int) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Return random A and B for every adapted module; A reads its input, B writes its output."""
    generator = torch.Generator().manual_seed(1)
    found = {}
    for name in (*LINEAR, "model.embed_tokens"):
        outputs, inputs = model.get_submodule(name).weight.shape
        if name.endswith("embed_tokens"):
            outputs, inputs = inputs, outputs
        rank = changed.get(name.rpartition(".")[2], CONFIG["r"])
        sizes = ((rank, inputs), (outputs, rank))
        found[name] = tuple(torch.randn(size, generator=generator) / 5 for size in sizes)
    return found  # type: ignore[return-value]  # two tensors each


def save_adapter(folder: Path, base: Path, tensors: dict[str, torch.Tensor], **config: Any) -> Path:
    folder.mkdir()
    named = {"base_model_name_or_path": str(base)} | CONFIG | config
    (folder / "adapter_config.json").write_text(json.dumps(named))
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def as_saved(found: dict[str, tuple[torch.Tensor, torch.Tensor]]) -> dict[str, torch.Tensor]:
    tensors = {}
    for name, pair in found.items():
        for letter, tensor in zip("AB", pair, strict=True):
            suffix = f"lora_embedding_{letter}" if "embed" in name else f"lora_{letter}.weight"
            tensors[f"base_model.model.{name}.{suffix}"] = tensor.contiguous()
    return tensors


def logits_beside(model: Any, found: dict[str, tuple[torch.Tensor, torch.Tensor]], scales: dict[str, float]) -> Any:
    """Return the logits of the base model with x A' B' added to the output of every adapted module."""
    for name, (a, b) in found.items():

        def add(module: Any, inputs: Any, output: Any, a: Any = a, b: Any = b, scale: float = scales[name]) -> Any:
            read = torch.nn.functional.embedding(inputs[0], a.T) if a.shape[1] == 300 else inputs[0] @ a.T
            return output + scale * (read @ b.T)

        model.get_submodule(name).register_forward_hook(add)
    return model(torch.arange(2, 40)[None]).logits


def merge(adapter: Path, scratch: Path, base: str | None = None) -> Path:
    source = read_source(adapter)
    assert source is not None
    assert source.kind == "adapter"
    return make_checkpoint(source, Converter(command=None, base_model=base, scratch=scratch))


@pytest.mark.parametrize("rslora", [False, True])
def test_a_merged_adapter_answers_as_the_base_with_the_adapter_beside_it(
    rslora: bool, base: Path, tmp_path: Path
) -> None:
    model = AutoModelForCausalLM.from_pretrained(base)
    found = parts(model, down_proj=2)
    whole = torch.randn(model.lm_head.weight.shape, generator=torch.Generator().manual_seed(2))
    adapter = save_adapter(
        tmp_path / "step-3000", base, as_saved(found) | {f"base_model.model.{HEAD}": whole}, use_rslora=rslora,
        rank_pattern={"down_proj": 2}, alpha_pattern={r"model\.embed_tokens": 8},
    )  # fmt: skip
    merged = merge(adapter, tmp_path / "scratch")
    assert merged.name == "step-3000"
    scales = {LINEAR[0]: 32 / 4, LINEAR[1]: 32 / 2, "model.embed_tokens": 8 / 4}
    if rslora:
        scales = {LINEAR[0]: 32 / 4**0.5, LINEAR[1]: 32 / 2**0.5, "model.embed_tokens": 8 / 4**0.5}
    with torch.no_grad():
        model.lm_head.weight.copy_(whole)
        expected = logits_beside(model, found, scales)
        ours = AutoModelForCausalLM.from_pretrained(merged)(torch.arange(2, 40)[None]).logits
    assert torch.allclose(ours, expected, atol=1e-3, rtol=1e-3)
    fingerprints = {read_checkpoint(str(folder)).fingerprint for folder in (base, merged)}
    assert len(fingerprints) == 2


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"peft_type": "IA3"}, r".*adapter_config.json: 'IA3' is not merged here; merge it with peft .*"),
        ({"use_dora": True}, r".*: 'use_dora' is not merged here; .*"),
        ({"layer_replication": [[0, 2], [0, 2]]}, r".*: 'layer_replication' is not merged here; .*"),
        ({"init_lora_weights": "pissa_niter_4"}, r".*: 'init_lora_weights' is not merged here; .*"),
        ({"r": 0}, r".*: r and lora_alpha must be numbers above 0; .*"),
        ({"base_model_name_or_path": None}, r".*: names no base model; give it with --base-model"),
        ({"base_model_name_or_path": "org/none"}, r"--base-model: 'org/none' is neither a directory nor .*"),
    ],
)
def test_an_adapter_that_cannot_be_merged_is_one_line(
    config: dict[str, Any], message: str, base: Path, tmp_path: Path
) -> None:
    adapter = save_adapter(tmp_path / "adapter", base, {}, **config)
    with pytest.raises(ConversionError) as error:
        merge(adapter, tmp_path / "scratch")
    assert re.fullmatch(message, str(error.value))
    assert list((tmp_path / "scratch").iterdir()) == []


def test_an_adapter_of_another_model_is_one_line(base: Path, tmp_path: Path) -> None:
    tensors = {f"base_model.model.other.lora_{letter}.weight": torch.ones(4, 4) for letter in "AB"}
    with pytest.raises(ConversionError, match=r"has no weight 'other.weight', which the adapter"):
        merge(save_adapter(tmp_path / "other", base, tensors), tmp_path / "scratch")
    tensors = {f"base_model.model.{LINEAR[0]}.lora_{letter}.weight": torch.ones(4, 4) for letter in "AB"}
    with pytest.raises(ConversionError, match=r"has the shape \[32, 32\], and the adapter changes \[4, 4\]"):
        merge(save_adapter(tmp_path / "shape", base, tensors), tmp_path / "scratch")


def test_an_adapter_without_its_weights_is_incomplete(base: Path, tmp_path: Path) -> None:
    adapter = save_adapter(tmp_path / "adapter", base, {})
    (adapter / "adapter_model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"adapter_model\.safetensors: missing"):
        read_source(adapter)
