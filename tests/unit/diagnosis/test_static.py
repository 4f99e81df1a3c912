"""Files of two checkpoints: a fault in one tensor is named with its form, and drift of all tensors names none."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig

from longctx.ci.diagnose.__main__ import main
from longctx.ci.diagnose.report import description, static_lines
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.diagnosis.static import StaticComparison, compare_files
from tests.helpers.checkpoints import edit_json
from tests.helpers.tiny_models import CONFIGS, SIZES, save_model

Weights = dict[str, torch.Tensor]
Q, K, OUT, DOWN = (f"model.layers.3.{name}.weight" for name in
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.o_proj", "mlp.down_proj"))  # fmt: skip
DRIFT = 0.02


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    save_model(LlamaConfig(**SIZES | {"num_hidden_layers": 6}), folder)
    weights = load_file(folder / "model.safetensors")
    for name, tensor in weights.items():
        if "norm" in name:
            weights[name] = tensor + 0.3 * torch.randn_like(tensor)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def broken(good: Path, out: Path, change: Callable[[Weights], None], *, drift: float = 0.0) -> Path:
    """Write a copy of a checkpoint with other weights."""
    out.mkdir()
    for file in good.iterdir():
        (out / file.name).write_bytes(file.read_bytes())
    weights = load_file(good / "model.safetensors")
    torch.manual_seed(3)
    for name, tensor in weights.items():
        weights[name] = tensor + drift * tensor.norm() / tensor.numel() ** 0.5 * torch.randn_like(tensor)
    change(weights)
    stored = {name: tensor.clone().contiguous() for name, tensor in weights.items()}
    save_file(stored, out / "model.safetensors", metadata={"format": "pt"})
    return out


def compared(good: Path, bad: Path) -> StaticComparison:
    checkpoints = [read_checkpoint(str(path)) for path in (good, bad)]
    return compare_files(checkpoints[0], checkpoints[1], lambda _: None)


def nothing(weights: Weights) -> None:
    pass


def zero(weights: Weights) -> None:
    weights[OUT] = torch.zeros_like(weights[OUT])


def scaled(weights: Weights) -> None:
    weights[DOWN] = weights[DOWN] * 3


def transposed(weights: Weights) -> None:
    weights[Q] = weights[Q].T.clone()


def heads_exchanged(weights: Weights) -> None:
    weights[K] = weights[K].reshape(2, 16, -1)[[1, 0]].reshape(32, -1).clone()


def columns_exchanged(weights: Weights) -> None:
    weights[OUT] = weights[OUT][:, [1, 0, *range(2, 64)]].clone()


def one_head_zero(weights: Weights) -> None:
    weights[Q] = torch.cat([weights[Q][:16], torch.zeros(16, 64), weights[Q][32:]])


def other_layer(weights: Weights) -> None:
    weights[DOWN] = weights[DOWN.replace(".3.", ".4.")].clone()


def noisy(weights: Weights) -> None:
    weights[DOWN] = weights[DOWN] + 0.5 * weights[DOWN].std() * torch.randn_like(weights[DOWN])


FORMS: list[tuple[Callable[[Weights], None], str, str]] = [
    (zero, OUT, "all zero"), (scaled, DOWN, "scaled by 3"), (transposed, Q, "transposed"),
    (heads_exchanged, K, "whole heads [0, 1] permuted"), (columns_exchanged, OUT, "columns permuted (2)"),
    (one_head_zero, Q, "whole heads [1] zero"), (other_layer, DOWN, "is GOOD's layer 4"), (noisy, DOWN, ""),
]  # fmt: skip


@pytest.mark.parametrize("drift", [0.0, DRIFT])
@pytest.mark.parametrize(("change", "name", "form"), FORMS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_fault_of_one_tensor_is_named_with_its_form(
    change: Callable[[Weights], None], name: str, form: str, drift: float, good: Path, tmp_path: Path
) -> None:
    found = compared(good, broken(good, tmp_path / "bad", change, drift=drift)).conspicuous
    assert [(tensor.name, tensor.form.replace("2.99", "3").replace("3.01", "3")) for tensor in found] == [(name, form)]


def each(*names: str) -> list[tuple[str, ...]]:
    """Return the names of these tensors in every layer."""
    return [tuple(f"model.layers.{layer}.{name}.weight" for name in names) for layer in range(6)]


def exchanged(weights: Weights) -> None:
    for gate, up in each("mlp.gate_proj", "mlp.up_proj"):
        weights[gate], weights[up] = weights[up], weights[gate]


def split_otherwise(weights: Weights) -> None:
    for gate, up in each("mlp.gate_proj", "mlp.up_proj"):
        fused = torch.cat([weights[gate], weights[up]])
        weights[gate], weights[up] = fused[0::2], fused[1::2]


def scaled_everywhere(weights: Weights) -> None:
    for (name,) in each("self_attn.q_proj"):
        weights[name] = weights[name] * 0.125


def shifted_rows(weights: Weights) -> None:
    for (name,) in each("self_attn.v_proj"):
        weights[name] = weights[name].roll(1, 0)


def clipped(weights: Weights) -> None:
    for (name,) in each("mlp.down_proj"):
        weights[name] = weights[name].clamp(-0.02, 0.02)


def norms_shifted(weights: Weights) -> None:
    for (name,) in each("input_layernorm"):
        weights[name] = weights[name] + 1


def most_rows(weights: Weights) -> None:
    """Move most rows of the embeddings by one, so that the median row has the fault."""
    moved = weights["model.embed_tokens.weight"]
    moved[40:] = moved[40:].roll(1, 0)
    weights["model.embed_tokens.weight"] = moved


UNIFORM: list[tuple[Callable[[Weights], None], str]] = [
    (exchanged, "mlp.gate_proj.weight of 6 layers: is GOOD's model.layers.*.mlp.up_proj.weight"),
    (split_otherwise, "mlp.up_proj.weight of 6 layers: rows of GOOD's gate_proj, up_proj"),
    (scaled_everywhere, "q_proj.weight of 6 layers: scaled by 0.125"),
    (shifted_rows, "v_proj.weight of 6 layers: rows shifted by 1"),
    (clipped, "down_proj.weight of 6 layers: clipped at 0.02"),
    (norms_shifted, "input_layernorm.weight of 6 layers: shifted by 1"),
    (most_rows, "embed_tokens.weight: rows shifted by 1"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "line"), UNIFORM, ids=lambda value: getattr(value, "__name__", ""))
def test_a_fault_of_all_layers_is_one_line_with_its_form(
    change: Callable[[Weights], None], line: str, good: Path, tmp_path: Path
) -> None:
    lines = static_lines(compared(good, broken(good, tmp_path / "bad", change)))
    assert [shown for shown in lines if shown.startswith("stands out") and line in shown], lines


def layers_of(good: Path, out: Path, sources: Sequence[int]) -> Path:
    """Write a copy of a checkpoint whose layers are these of its own."""

    def change(weights: Weights) -> None:
        old = {name: weights.pop(name) for name in list(weights) if ".layers." in name}
        for layer, source in enumerate(sources):
            own = {name: values for name, values in old.items() if f".layers.{source}." in name}
            weights.update({name.replace(f".{source}.", f".{layer}."): values for name, values in own.items()})

    bad = broken(good, out, change)
    config = json.loads((bad / "config.json").read_text()) | {"num_hidden_layers": len(sources)}
    (bad / "config.json").write_text(json.dumps(config))
    return bad


@pytest.mark.parametrize(
    ("sources", "line"),
    [
        ((0, 1, 3, 4, 5), "2 to 4 hold GOOD's 3 to 5; GOOD's 2 missing"),
        ((0, 1, 1, 2, 3, 4, 5), "2 to 5 hold GOOD's 1 to 4"),
        ((0, 2, 1, 3, 4, 5), "1 holds GOOD's 2, 2 holds GOOD's 1"),
    ],
)
def test_layers_that_moved_are_named(sources: Sequence[int], line: str, good: Path, tmp_path: Path) -> None:
    lines = static_lines(compared(good, layers_of(good, tmp_path / "bad", sources)))
    assert f"{'layers':<19}{line}" in lines


@pytest.mark.parametrize(("size", "is_named"), [(0.0, False), (5.0, True)])
def test_rows_beyond_the_vocabulary_stand_out_if_they_can_win(
    size: float, is_named: bool, good: Path, tmp_path: Path
) -> None:
    def pad(weights: Weights) -> None:
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            weights[name] = torch.cat([weights[name], size * torch.ones(8, weights[name].shape[1])])

    bad = broken(good, tmp_path / "bad", pad)
    config = json.loads((bad / "config.json").read_text())
    edit_json(bad / "config.json", vocab_size=config["vocab_size"] + 8)
    found = compared(good, bad)
    assert [bool(change.form) for change in found.conspicuous] == [True, True] * is_named
    assert f"{'rows':<19}lm_head.weight: 8 more in BAD" in static_lines(found)


@pytest.mark.parametrize("drift", [0.01, 0.04, 0.1])
def test_drift_of_every_tensor_names_none(drift: float, good: Path, tmp_path: Path) -> None:
    found = compared(good, broken(good, tmp_path / "bad", nothing, drift=drift))
    assert (found.conspicuous, len(found.changed)) == ((), len(found.tensors))


def test_rows_of_the_embeddings_that_are_exchanged_are_named(good: Path, tmp_path: Path) -> None:
    def exchange(weights: Weights) -> None:
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            if name in weights:
                weights[name][[20, 21, 22]] = weights[name][[21, 22, 20]]

    found = compared(good, broken(good, tmp_path / "bad", exchange, drift=DRIFT)).conspicuous
    assert {(tensor.form, tensor.changed_rows) for tensor in found} == {("rows permuted (3)", (20, 21, 22))}


def test_values_that_are_nan_are_counted(good: Path, tmp_path: Path) -> None:
    def spoil(weights: Weights) -> None:
        weights[DOWN][2, :5] = torch.nan

    (tensor,) = compared(good, broken(good, tmp_path / "bad", spoil)).conspicuous
    assert (tensor.name, tensor.not_finite) == (DOWN, 5)
    assert description(tensor).startswith("5 values NaN or infinite")


def test_a_tensor_that_is_missing_is_named(good: Path, tmp_path: Path) -> None:
    def lose(weights: Weights) -> None:
        del weights[DOWN]

    (tensor,) = compared(good, broken(good, tmp_path / "bad", lose)).conspicuous
    assert (tensor.name, tensor.problem) == (DOWN, "missing in BAD")


def test_settings_that_differ_are_named_by_part(good: Path, tmp_path: Path) -> None:
    bad = broken(good, tmp_path / "bad", nothing)
    config: dict[str, Any] = json.loads((bad / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    config["transformers_version"] = "0"
    (bad / "config.json").write_text(json.dumps(config))
    (bad / "chat_template.jinja").write_text("{{ messages[0].content }}")
    rules = json.loads((bad / "tokenizer.json").read_text())
    rules["pre_tokenizer"] = None
    (bad / "tokenizer.json").write_text(json.dumps(rules))
    (bad / "generation_config.json").write_text('{"eos_token_id": 7}')
    found = {(change.part, change.name) for change in compared(good, bad).settings}
    assert {
        ("config", "rope_parameters"), ("chat template", "chat_template"), ("tokenizer", "pre_tokenizer"),
        ("tokenizer", "ids of a text"), ("generation config", "eos_token_id"),
    } <= found  # fmt: skip
    assert not any(name in ("transformers_version", "dtype") for _, name in found)


def test_the_command_writes_lines_and_json(good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = broken(good, tmp_path / "bad", zero)
    assert main([str(good), str(bad), "--out", str(tmp_path / "out")]) == 0
    assert f"stands out         {OUT}: all zero" in capsys.readouterr().out
    document = json.loads((tmp_path / "out/diagnosis.json").read_text())
    assert document["schema"] == "longctx-diagnosis/1"
    assert [tensor["form"] for tensor in document["tensors"] if "form" in tensor] == ["all zero"]


def test_wrong_use_is_one_line(good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_model(CONFIGS["qwen2"], tmp_path / "other")
    capsys.readouterr()
    assert main([str(good), str(tmp_path / "other"), "--out", str(tmp_path / "out")]) == 4
    assert main([str(good), str(good), "--out", str(tmp_path / "out")]) == 4
    assert main([str(good), str(tmp_path / "none")]) == 4
    lines = capsys.readouterr().err.splitlines()
    expected = ("give two checkpoints of one architecture", "give the one that is worse", "BAD: no such directory")
    assert len(lines) == len(expected)
    assert all(words in line for words, line in zip(expected, lines, strict=True))
