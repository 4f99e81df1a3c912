"""Every fault changes what the model computes, in the situation that its thread describes and nowhere else."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, Llama4TextConfig, LlamaConfig

from benchmarks.faults.__main__ import main
from benchmarks.faults.checkpoint_faults import CHECKPOINT_FAULTS
from benchmarks.faults.engine_faults import ENGINE_FAULTS
from longctx.fixtures.engines.hf.engine import HfEngine
from tests.helpers.tiny_engines import engine_of
from tests.helpers.tiny_models import CONFIGS, SIZES, YARN, prompt, random_prompt, save_model

TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
# A checkpoint that each fault of files can break.
SOURCES: dict[str, Any] = {
    "rope_scaling_lost": LlamaConfig(**SIZES, rope_parameters=YARN),
    "head_from_embeddings": LlamaConfig(**SIZES, tie_word_embeddings=False),
    "attention_temperature": Llama4TextConfig(
        **SIZES, num_local_experts=2, intermediate_size_mlp=64, floor_scale=16, no_rope_layers=[1, 0], head_dim=16
    ),
}
TEMPLATES = ("template_lost", "double_bos", "prompt_cut")
# Beyond 256 positions, which bfloat16 still holds exactly.
TEXT = random_prompt(300).token_ids
OTHER = (*TEXT[:220], *random_prompt(50).token_ids)


def logits_of(path: Path) -> Tensor:
    model: Any = AutoModelForCausalLM.from_pretrained(path)
    with torch.no_grad():
        result: Tensor = model(torch.tensor([TEXT])).logits[0, -1]
        return result


def saved(name: str, path: Path) -> Path:
    save_model(SOURCES.get(name, CONFIGS["llama"]), path)
    if name in TEMPLATES:
        (path / "chat_template.jinja").write_text(TEMPLATE)
    return path


@pytest.mark.parametrize("name", [name for name in CHECKPOINT_FAULTS if name not in TEMPLATES])
def test_a_fault_of_the_files_changes_the_logits_of_the_copy_only(name: str, tmp_path: Path) -> None:
    source, out = saved(name, tmp_path / "source"), tmp_path / "out"
    before = {file.name: file.read_bytes() for file in source.iterdir()}
    assert main(["inject", str(source), str(out), "--fault", name, "--strength", "0.99"]) == 0
    assert (logits_of(source) - logits_of(out)).abs().max() > 1e-3
    assert {file.name: file.read_bytes() for file in source.iterdir()} == before
    assert json.loads((out / "fault.json").read_text())["fault"] == name


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_fault_of_the_template_changes_the_template_only(name: str, tmp_path: Path) -> None:
    source, out = saved(name, tmp_path / "source"), tmp_path / "out"
    before = {file.name: file.stat().st_ctime_ns for file in source.iterdir()}
    assert main(["inject", str(source), str(out), "--fault", name]) == 0
    # A hard link changes it too, and a run that reads the source meanwhile would end.
    assert {file.name: file.stat().st_ctime_ns for file in source.iterdir()} == before
    written = out / "chat_template.jinja"
    assert not written.exists() if name == "template_lost" else written.read_text() != TEMPLATE
    assert load_file(out / "model.safetensors").keys() == load_file(source / "model.safetensors").keys()


def loaded(path: Path, **settings: Any) -> HfEngine:
    return engine_of(path, dtype="float32", **settings)


def step_logits(engine: HfEngine, *prompts: tuple[int, ...], tokens: int = 6) -> list[Tensor]:
    """Return the logits of every step of the answers to prompts that are asked one after another."""
    recorded: list[Tensor] = []
    extend = engine.forward.extend

    def recording(*arguments: Any, **settings: Any) -> Tensor:
        logits = extend(*arguments, **settings)
        recorded.append(logits)
        return logits

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.forward, "extend", recording)
        for ids in prompts:
            list(engine.generate([prompt(ids, tokens)]))
    return recorded


def is_equal(one: list[Tensor], other: list[Tensor]) -> bool:
    """Return True if two engines took the same steps with the same logits."""
    return len(one) == len(other) and all((a - b).abs().max() < 1e-4 for a, b in zip(one, other, strict=True))


# The architecture and the chunk size in which each fault of an engine shows.
SITUATIONS = dict.fromkeys(ENGINE_FAULTS, ("llama", "auto")) | {
    "window_off_by_one": ("gemma3", "auto"), "decode_roll": ("gemma3", "auto"),
    "isolated_chunks": ("llama", "64"), "merge_stride": ("llama", "64"),
}  # fmt: skip
STRENGTHS = {"clamped_positions": 0.99, "window_off_by_one": 1.0, "stale_state": 1.0}


@pytest.mark.parametrize("name", ENGINE_FAULTS)
def test_a_fault_of_the_engine_changes_its_logits(name: str, tmp_path: Path) -> None:
    family, chunk = SITUATIONS[name]
    path = save_model(CONFIGS[family], tmp_path / family)
    sound, broken = loaded(path, prefill_chunk=chunk), loaded(path, prefill_chunk=chunk)
    ENGINE_FAULTS[name].inject(broken, STRENGTHS.get(name, 1.0))
    order = (TEXT, OTHER, TEXT)
    assert not is_equal(step_logits(sound, *order), step_logits(broken, *order))


@pytest.mark.parametrize("name", ["isolated_chunks", "merge_stride", "merge_base_two", "stale_state"])
def test_a_fault_of_chunks_or_reuse_leaves_a_whole_cold_prompt_alone(name: str, tmp_path: Path) -> None:
    path = save_model(CONFIGS["llama"], tmp_path / "llama")
    sound, broken = loaded(path, prefill_chunk="whole"), loaded(path, prefill_chunk="whole")
    ENGINE_FAULTS[name].inject(broken, 1.0)
    assert is_equal(step_logits(sound, TEXT), step_logits(broken, TEXT))
