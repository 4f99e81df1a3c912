"""The local error of a layer: that of the whole model, without the whole model."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.diagnosis.local_error import CannotStream, LayerError, local_errors
from longctx.fixtures.diagnosis.weight_changes import StoredWeights
from tests.helpers.tiny_models import CONFIGS, changed_copy, save_model

IDS = [*range(5, 60), 7, 7]


def measured(good: Path, bad: Path, *changed: str) -> list[float]:
    stored = StoredWeights(good), StoredWeights(bad)
    return [layer.error for layer in local_errors(read_checkpoint(str(good)), stored, set(changed), IDS)]


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma3", "gpt2"])
def test_the_error_is_that_of_a_layer_within_the_whole_model(kind: str, tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    save_model(CONFIGS[kind], good)
    model: Any = AutoModelForCausalLM.from_pretrained(good, dtype=torch.float32)
    last = "h.1.mlp.c_proj.weight" if kind == "gpt2" else "layers.1.mlp.down_proj.weight"
    name = next(name for name, _ in model.named_parameters() if name.endswith(last))
    calls: list[Any] = []
    layer = model.get_submodule(name.partition(".mlp")[0])
    layer.register_forward_hook(lambda *call: calls.append(call), with_kwargs=True)
    with torch.no_grad():
        model(input_ids=torch.tensor([IDS]), use_cache=False)
        _, arguments, keywords, output = calls.pop()
        torch.manual_seed(1)
        wrong = model.get_parameter(name) + 0.1 * torch.randn_like(model.get_parameter(name))
        model.get_parameter(name).copy_(wrong)
        changed = layer.forward(*arguments, **keywords)
    before, after = (each[0] if isinstance(each, tuple) else each for each in (output, changed))
    expected = ((after - before).norm(dim=-1) / (before - arguments[0]).norm(dim=-1)).median()
    stored = name if name in StoredWeights(good).tensors else name.removeprefix("transformer.")
    changed_copy(good, bad, lambda weights: weights.update({stored: wrong}))
    assert measured(good, bad, stored) == pytest.approx([0.0, float(expected)], rel=1e-3)


def test_a_layer_that_adds_nothing_any_more_has_an_error_of_1(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    save_model(CONFIGS["llama"], good)
    names = [f"model.layers.0.{part}.weight" for part in ("self_attn.o_proj", "mlp.down_proj")]
    changes = {name: torch.zeros(StoredWeights(good).tensors[name].shape) for name in names}
    changed_copy(good, bad, lambda weights: weights.update(changes))
    assert measured(good, bad, *names) == pytest.approx([1.0, 0.0])


def test_layers_that_the_files_hold_in_another_form_cannot_be_streamed(tmp_path: Path) -> None:
    save_model(CONFIGS["jamba"], tmp_path)
    with pytest.raises(CannotStream, match="cannot be run one by one"):
        measured(tmp_path, tmp_path, "model.layers.0.x")


def test_only_a_layer_far_above_the_others_stands_out() -> None:
    found = [LayerError(layer=0, error=1.0, z=z).is_outlier for z in (None, 2.0, 8.0, -9.0)]
    assert found == [False, False, True, False]
