"""A merged adapter answers as peft's own merge does; an adapter that cannot be merged is one line that says why."""

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig

from longctx.fixtures.checkpoints.checkpoint import read_checkpoint, read_source
from longctx.fixtures.checkpoints.safetensors import CheckpointError
from longctx.fixtures.conversion import ConversionError, Converter, adapter, make_checkpoint
from tests.helpers.checkpoints import edit_json
from tests.helpers.tiny_models import save_model

peft = pytest.importorskip("peft")

LINEAR = ["q_proj", "down_proj"]
IDS = torch.arange(2, 40)[None]
WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"


def make_base(folder: Path, *, tied: bool) -> Path:
    config = LlamaConfig(
        vocab_size=300, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=256, tie_word_embeddings=tied,
    )  # fmt: skip
    return save_model(config, folder)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    root = tmp_path_factory.mktemp("bases")
    return {tied: make_base(root / f"tied-{tied}", tied=tied) for tied in (False, True)}


def lora(**settings: Any) -> Any:
    return peft.LoraConfig(r=4, lora_alpha=8, task_type="CAUSAL_LM", **{"target_modules": LINEAR} | settings)


def save_adapter(folder: Path, base: Path, config: Any, tokens: int | None = None) -> Any:
    """Save an adapter with random weights, and return the logits of peft's own merge and those beside the base."""
    model = AutoModelForCausalLM.from_pretrained(base)
    if tokens is not None:
        model.resize_token_embeddings(tokens)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapped = peft.get_peft_model(model, config)
        torch.manual_seed(1)
        for weights in wrapped.parameters():
            if weights.requires_grad:
                weights.data.add_(torch.randn_like(weights) / 20)
        wrapped.eval()
        with torch.no_grad():
            beside = wrapped(IDS).logits
            wrapped.save_pretrained(str(folder))
            return wrapped.merge_and_unload()(IDS).logits, beside


def merge(folder: Path, scratch: Path, base: str | None = None) -> Path:
    source = read_source(folder)
    assert source is not None
    assert source.kind == "adapter"
    return make_checkpoint(source, Converter(command=None, base_model=base, scratch=scratch))


KINDS: dict[str, tuple[bool, Callable[[], Any], int | None]] = {
    "linear layers": (False, lora, None),
    "ranks by module": (
        False,
        lambda: lora(rank_pattern={"down_proj": 2}, alpha_pattern={"q_proj": 3}),
        None,
    ),
    "rslora": (False, lambda: lora(use_rslora=True), None),
    "dora": (False, lambda: lora(use_dora=True), None),
    "pissa": (False, lambda: lora(init_lora_weights="pissa"), None),
    "head": (False, lambda: lora(target_modules=[*LINEAR, "lm_head"]), None),
    "embeddings": (False, lambda: lora(target_modules=[*LINEAR, "embed_tokens"]), None),
    "whole head and embeddings": (False, lambda: lora(modules_to_save=["lm_head", "embed_tokens"]), None),
    "whole head of a tied base": (True, lambda: lora(modules_to_save=["lm_head"]), None),
    "whole embeddings of a tied base": (True, lambda: lora(modules_to_save=["embed_tokens"]), None),
    "more tokens": (False, lambda: lora(modules_to_save=["lm_head", "embed_tokens"]), 310),
    "more tokens, by low rank": (False, lambda: lora(target_modules=[*LINEAR, "lm_head", "embed_tokens"]), 310),
    "more tokens of a tied base": (True, lambda: lora(modules_to_save=["embed_tokens"]), 310),
    "single tokens": (False, lambda: lora(trainable_token_indices=[3, 5]), None),
    "single tokens of a tied base": (True, lambda: lora(trainable_token_indices=[3, 5]), None),
    "single new tokens": (False, lambda: lora(trainable_token_indices={"embed_tokens": [301]}), 310),
    "parameters": (False, lambda: lora(target_modules=[], target_parameters=["q_proj.weight"]), None),
    "ia3": (False, lambda: peft.IA3Config(target_modules=LINEAR, feedforward_modules=["down_proj"]), None),
    "loha": (False, lambda: peft.LoHaConfig(r=4, target_modules=LINEAR), None),
    "nothing but single tokens": (True, lambda: peft.TrainableTokensConfig(token_indices=[3, 5]), None),
    "a bank that layers share": (
        False,
        lambda: peft.VBLoRAConfig(r=4, num_vectors=20, vector_length=8, target_modules=["q_proj"]),
        None,
    ),
    "layers by a pattern": (
        False,
        lambda: lora(target_modules=r".*\.1\..*_proj", exclude_modules=r".*(o|up)_proj", use_rslora=True),
        None,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_merged_adapter_answers_as_the_merge_of_peft(kind: str, bases: dict[bool, Path], tmp_path: Path) -> None:
    tied, config, tokens = KINDS[kind]
    expected, beside = save_adapter(tmp_path / "step-3000", bases[tied], config(), tokens)
    merged = merge(tmp_path / "step-3000", tmp_path / "scratch")
    assert merged.name == "step-3000"
    assert read_checkpoint(str(merged)).config.get("vocab_size") == (tokens or 300)
    with torch.no_grad():
        ours = AutoModelForCausalLM.from_pretrained(merged)(IDS).logits
    assert torch.allclose(ours, expected, atol=1e-3, rtol=0)
    assert torch.allclose(ours, beside, atol=1e-3, rtol=0)


def change(**settings: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        edit_json(folder / CONFIG, **settings)

    return write


def rename(old: str, new: str) -> Callable[[Path], None]:
    """Return a change of the names of an adapter's tensors."""

    def write(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        save_file({key.replace(old, new): tensor for key, tensor in tensors.items()}, folder / WEIGHTS)

    return write


REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "prompts": (change(peft_type="PROMPT_TUNING"), r".*: peft_type 'PROMPT_TUNING' changes no weights; measure .*"),
    "prompts in layers": (change(peft_type="ADAPTION_PROMPT"), r".*: peft_type 'ADAPTION_PROMPT' changes no .*"),
    "a part of the prompt": (
        change(alora_invocation_tokens=[3]),
        r".*: alora_invocation_tokens changes no weights; .*",
    ),
    "a router": (change(arrow_config={"arrow_top_k": 1}), r".*: arrow_config changes no weights; .*"),
    "a later setting": (
        change(later_scale=2.0, other=None),
        r".*: later_scale is unknown to peft \d.*; upgrade peft,.*",
    ),
    "a setting of another kind": (change(use_dora=True), r".*: lacks .*lora_magnitude_vector.*; save the .* again, .*"),
    "a longer list of layers": (change(target_modules=[*LINEAR, "k_proj"]), r".*: lacks .*k_proj.*; save the .*"),
    "a layer without weights": (
        lambda folder: save_file(dict([*load_file(folder / WEIGHTS).items()][1:]), folder / WEIGHTS),
        r".*: lacks .*lora_A.*; save the .*",
    ),
    "an unknown kind": (change(peft_type="NEW"), r".*: peft cannot merge it into .*"),
    "layers twice": (change(layer_replication=[[0, 2], [0, 2]]), r".*: layer_replication is not merged here; .*"),
    "code of a package": (
        change(megatron_config={"a": 1}, megatron_core="os"),
        r".*: megatron_config is not merged here; .*",
    ),
    "a random start": (change(init_lora_weights="pissa_niter_4"), r".*: init_lora_weights is not merged here; .*"),
    "no rank": (change(r=0), r".*: peft cannot merge it into .*"),
    "no base": (change(base_model_name_or_path=None), r".*: names no base model; give it with --base-model"),
    "a missing base": (
        change(base_model_name_or_path="org/none"),
        r"--base-model: 'org/none' is neither a directory .*",
    ),
    "another model": (
        rename("self_attn", "attention"),
        r".*: the base has no place for .*attention.*; give the .*",
    ),
    "a part of another model": (
        rename("layers.1.mlp", "layers.1.moe"),
        r".*: the base has no place for .*\.moe.*",
    ),
    "another setting": (rename("down_proj.lora_A", "down_proj.lora_C"), r".*: the base has no place for .*lora_C.*"),
}


@pytest.fixture(scope="module")
def plain(bases: dict[bool, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapter") / "plain"
    save_adapter(folder, bases[False], lora())
    return folder


def copy(folder: Path, out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    for name in (CONFIG, WEIGHTS):
        (out / name).write_bytes((folder / name).read_bytes())
    return out


@pytest.mark.parametrize("kind", REFUSED)
def test_an_adapter_that_cannot_be_merged_is_one_line(kind: str, plain: Path, tmp_path: Path) -> None:
    damage, message = REFUSED[kind]
    folder = copy(plain, tmp_path / "adapter")
    damage(folder)
    with pytest.raises(ConversionError) as error:
        merge(folder, tmp_path / "scratch")
    assert re.fullmatch(message, str(error.value))
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize("target", ["lm_head", "embed_tokens"])
def test_a_low_rank_change_of_tied_weights_has_no_one_meaning(
    target: str, bases: dict[bool, Path], tmp_path: Path
) -> None:
    merged, beside = save_adapter(tmp_path / "adapter", bases[True], lora(target_modules=[target]))
    assert not torch.allclose(merged, beside, atol=0.1)
    with pytest.raises(ConversionError, match="base ties embeddings and head"):
        merge(tmp_path / "adapter", tmp_path / "scratch")


def test_a_base_that_does_not_fit_its_config_is_refused(plain: Path, bases: dict[bool, Path], tmp_path: Path) -> None:
    base = make_base(tmp_path / "base", tied=False)
    tensors = load_file(base / "model.safetensors")
    save_file({key: tensor for key, tensor in tensors.items() if key != "lm_head.weight"}, base / "model.safetensors")
    with pytest.raises(ConversionError, match=r"--base-model: \S+ does not fit its config.json: lm_head.weight"):
        merge(plain, tmp_path / "scratch", base=str(base))


def test_a_quantized_base_is_refused_by_its_name(plain: Path, bases: dict[bool, Path], tmp_path: Path) -> None:
    packed = make_base(tmp_path / "packed", tied=False)
    edit_json(packed / "config.json", quantization_config={"quant_method": "bitsandbytes"})
    with pytest.raises(ConversionError, match=r"packed: the base is quantized, .* before its quantization with --base"):
        merge(plain, tmp_path / "scratch", base=str(packed))


def test_new_tokens_without_their_weights_are_refused(bases: dict[bool, Path], tmp_path: Path) -> None:
    save_adapter(tmp_path / "adapter", bases[False], lora(modules_to_save=["embed_tokens"]), 310)
    tensors = load_file(tmp_path / "adapter" / WEIGHTS)
    save_file({key: value for key, value in tensors.items() if "lm_head" not in key}, tmp_path / "adapter" / WEIGHTS)
    with pytest.raises(ConversionError, match=r"trained with 310 tokens, the base has 300, and .* of the head"):
        merge(tmp_path / "adapter", tmp_path / "scratch")


@pytest.mark.parametrize("name", ["../bases/tied-False", "bases/tied-False"])
def test_a_relative_base_is_found_around_the_adapter(
    name: str, plain: Path, bases: dict[bool, Path], tmp_path: Path
) -> None:
    (tmp_path / "bases").symlink_to(bases[False].parent)
    # A folder of that name with other things is no base.
    (tmp_path / "adapter" / "bases" / "tied-False").mkdir(parents=True)
    folder = copy(plain, tmp_path / "adapter")
    change(base_model_name_or_path=name)(folder)
    assert (merge(folder, tmp_path / "scratch") / "model.safetensors").is_file()


def test_without_peft_the_line_names_it(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    with pytest.raises(ConversionError, match=r"adapters are merged by peft, which is missing; run pip install peft"):
        merge(plain, tmp_path / "scratch")


def test_a_base_that_memory_cannot_hold_is_refused(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "machine_memory_bytes", lambda: 1000)
    with pytest.raises(ConversionError, match=r"merging takes \d+ GiB of memory, and this machine has 0"):
        merge(plain, tmp_path / "scratch")


def test_an_adapter_without_its_weights_is_incomplete(plain: Path, tmp_path: Path) -> None:
    folder = copy(plain, tmp_path / "adapter")
    (folder / WEIGHTS).unlink()
    with pytest.raises(CheckpointError, match=r"adapter_model\.safetensors: missing"):
        read_source(folder)
