"""Files of two checkpoints: a fault in one tensor is named with its form, and drift of all tensors names none."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaConfig

from longctx.ci.diagnose.__main__ import main
from longctx.ci.diagnose.report import description, static_lines
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.diagnosis.static import StaticComparison, compare_files
from tests.helpers.checkpoints import edit_json
from tests.helpers.tiny_models import CONFIGS, SIZES, change_weights, changed_copy, save_model

Weights = dict[str, torch.Tensor]
Change = Callable[[Weights], None]
Q, K, OUT, DOWN = (f"model.layers.3.{name}.weight" for name in
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.o_proj", "mlp.down_proj"))  # fmt: skip
DRIFT = 0.02


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    save_model(LlamaConfig(**SIZES | {"num_hidden_layers": 6}), folder)

    def change_norms(weights: Weights) -> None:
        for name in (name for name in weights if "norm" in name):
            weights[name] += 0.3 * torch.randn_like(weights[name])
        for first, second in each("input_layernorm", "post_attention_layernorm"):
            weights[second] = 1.5 * weights[first] + 0.1 * torch.randn_like(weights[first])

    change_weights(folder, change_norms)
    return folder


def broken(good: Path, out: Path, change: Change, *, drift: float = 0.0) -> Path:
    """Write a copy of a checkpoint whose weights have drifted and are changed."""

    def drift_and_change(weights: Weights) -> None:
        torch.manual_seed(3)
        for name, tensor in weights.items():
            weights[name] = tensor + drift * tensor.norm() / tensor.numel() ** 0.5 * torch.randn_like(tensor)
        change(weights)

    return changed_copy(good, out, drift_and_change)


def compared(good: Path, bad: Path) -> StaticComparison:
    checkpoints = [read_checkpoint(str(path)) for path in (good, bad)]
    return compare_files(checkpoints[0], checkpoints[1], lambda _: None)


def nothing(weights: Weights) -> None:
    pass


def factors(count: int) -> torch.Tensor:
    """Return a factor for every row, as of a scale per channel that was lost."""
    return torch.linspace(-1, 1, count).exp2()


def of_rank(matrix: torch.Tensor, rank: int) -> torch.Tensor:
    """Return the nearest matrix of this rank."""
    left, sizes, right = torch.linalg.svd(matrix, full_matrices=False)
    nearest: torch.Tensor = left[:, :rank] * sizes[:rank] @ right[:rank]
    return nearest


def with_equal_heads(matrix: torch.Tensor) -> torch.Tensor:
    """Return a matrix of which every head is the mean of all."""
    return matrix.reshape(-1, 16, matrix.shape[1]).mean(0).repeat(len(matrix) // 16, 1)


FORMS: dict[str, tuple[str, Callable[[Weights], torch.Tensor]]] = {
    "all zero": (OUT, lambda weights: torch.zeros_like(weights[OUT])),
    "scaled by 3": (DOWN, lambda weights: weights[DOWN] * 3),
    "transposed": (Q, lambda weights: weights[Q].T),
    "whole heads [0, 1] permuted": (K, lambda weights: weights[K].reshape(2, 16, -1)[[1, 0]].reshape(32, -1)),
    "columns permuted (2)": (OUT, lambda weights: weights[OUT][:, [1, 0, *range(2, 64)]]),
    "whole heads [1] zero": (Q, lambda weights: torch.cat([weights[Q][:16], torch.zeros(16, 64), weights[Q][32:]])),
    "whole heads [0, 1] zero": (OUT, lambda weights: weights[OUT].index_fill(1, torch.arange(32), 0)),
    "16 rows zero": (DOWN, lambda weights: torch.cat([weights[DOWN][:-16], torch.zeros_like(weights[DOWN][-16:])])),
    "rows scaled, each by its own factor": (DOWN, lambda weights: weights[DOWN] * factors(64)[:, None]),
    "columns scaled, each by its own factor": (Q, lambda weights: weights[Q] * factors(64)),
    "whole heads [0] scaled, each by its own factor": (
        K,
        lambda weights: torch.cat([weights[K][:16] * torch.tensor([0.4, 2.0]).repeat(8)[:, None], weights[K][16:]]),
    ),
    "values up to 3e+38": (K, lambda weights: weights[K].index_fill(1, torch.tensor(3), 3e38)),
    "is GOOD's layer 4": (DOWN, lambda weights: weights[DOWN.replace(".3.", ".4.")]),
    "cut to rank 8": (DOWN, lambda weights: of_rank(weights[DOWN], 8)),
    "whole heads [0, 1] averaged": (K, lambda weights: with_equal_heads(weights[K])),
    "some of its rows, repeated": (Q, lambda weights: torch.cat([weights[Q][:48], weights[Q][:16]])),
    # Noise has no form.
    "": (DOWN, lambda weights: weights[DOWN] + 0.5 * weights[DOWN].std() * torch.randn_like(weights[DOWN])),
}


@pytest.mark.parametrize("drift", [0.0, DRIFT])
@pytest.mark.parametrize("form", FORMS)
def test_a_fault_of_one_tensor_is_named_with_its_form(form: str, drift: float, good: Path, tmp_path: Path) -> None:
    name, made = FORMS[form]

    def change(weights: Weights) -> None:
        weights[name] = made(weights)

    found = compared(good, broken(good, tmp_path / "bad", change, drift=drift)).conspicuous
    assert [(tensor.name, tensor.form.replace("2.99", "3").replace("3.01", "3")) for tensor in found] == [(name, form)]


def test_small_weights_that_were_drawn_anew_have_no_form(good: Path, tmp_path: Path) -> None:
    def draw(weights: Weights) -> None:
        weights[DOWN] = 0.05 * weights[DOWN].std() * torch.randn_like(weights[DOWN])

    (tensor,) = compared(good, broken(good, tmp_path / "bad", draw)).conspicuous
    assert (tensor.name, tensor.form) == (DOWN, "")


@pytest.mark.parametrize(("name", "made"), [(DOWN, lambda old: of_rank(old, 8)), (K, with_equal_heads)])
def test_what_is_true_of_the_good_tensor_too_is_no_form(
    name: str, made: Callable[[torch.Tensor], torch.Tensor], good: Path, tmp_path: Path
) -> None:
    """The bad tensor has the same low rank, or the same equal heads, with other values."""
    before = changed_copy(good, tmp_path / "before", lambda weights: weights.update({name: made(weights[name])}))
    torch.manual_seed(4)
    drawn = made(torch.randn_like(load_file(before / "model.safetensors")[name]) * 0.2)
    after = changed_copy(before, tmp_path / "after", lambda weights: weights.update({name: drawn}))
    (tensor,) = compared(before, after).conspicuous
    assert (tensor.name, tensor.form) == (name, "")


def test_among_rows_that_all_moved_an_uneven_one_is_not_singled_out(good: Path, tmp_path: Path) -> None:
    def make_uneven(weights: Weights) -> None:
        weights[DOWN][20] *= 8
        weights[DOWN][21] *= 0.1

    before = changed_copy(good, tmp_path / "before", make_uneven)
    after = changed_copy(before, tmp_path / "after", lambda weights: weights.update({DOWN: weights[DOWN].roll(1, 0)}))
    (tensor,) = compared(before, after).conspicuous
    assert (tensor.form, tensor.changed_row_count) == ("rows shifted by 1", 0)


def each(*names: str) -> list[tuple[str, ...]]:
    """Return the names of these tensors in every layer."""
    return [tuple(f"model.layers.{layer}.{name}.weight" for name in names) for layer in range(6)]


def exchanged(weights: Weights) -> None:
    for gate, up in each("mlp.gate_proj", "mlp.up_proj"):
        weights[gate], weights[up] = weights[up], weights[gate]


def exchanged_norms(weights: Weights) -> None:
    for first, second in each("input_layernorm", "post_attention_layernorm"):
        weights[first], weights[second] = weights[second], weights[first]


def split_otherwise(weights: Weights) -> None:
    for gate, up in each("mlp.gate_proj", "mlp.up_proj"):
        fused = torch.cat([weights[gate], weights[up]])
        weights[gate], weights[up] = fused[0::2], fused[1::2]


def everywhere(part: str, made: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    """Return the same change of a tensor of every layer."""

    def change(weights: Weights) -> None:
        for (name,) in each(part):
            weights[name] = made(weights[name])

    return change


def most_rows(weights: Weights) -> None:
    """Move most rows of the embeddings by one, so that the median row has the fault."""
    moved = weights["model.embed_tokens.weight"]
    moved[40:] = moved[40:].roll(1, 0)
    weights["model.embed_tokens.weight"] = moved


UNIFORM: dict[str, Change] = {
    "mlp.gate_proj.weight of 6 layers: is GOOD's model.layers.*.mlp.up_proj.weight": exchanged,
    "mlp.up_proj.weight of 6 layers: rows of GOOD's gate_proj, up_proj": split_otherwise,
    "q_proj.weight of 6 layers: scaled by 0.125": everywhere("self_attn.q_proj", lambda old: old * 0.125),
    "v_proj.weight of 6 layers: rows shifted by 1": everywhere("self_attn.v_proj", lambda old: old.roll(1, 0)),
    "v_proj.weight of 6 layers: rows permuted (32)": everywhere(
        "self_attn.v_proj", lambda old: old.reshape(2, 16, -1).flip(1).reshape(old.shape)
    ),
    "k_proj.weight of 6 layers: some of its rows, repeated": everywhere(
        "self_attn.k_proj", lambda old: old[:16].repeat(2, 1)
    ),
    "down_proj.weight of 6 layers: clipped at 0.02": everywhere("mlp.down_proj", lambda old: old.clamp(-0.02, 0.02)),
    "input_layernorm.weight of 6 layers: shifted by 1": everywhere("input_layernorm", lambda old: old + 1),
    "embed_tokens.weight: rows shifted by 1": most_rows,
    # One norm is nearly a multiple of the other.
    "post_attention_layernorm.weight of 6 layers: is GOOD's model.layers.*.input_layernorm.weight": exchanged_norms,
}


@pytest.mark.parametrize("line", UNIFORM)
def test_a_fault_of_all_layers_is_one_line_with_its_form(line: str, good: Path, tmp_path: Path) -> None:
    lines = static_lines(compared(good, broken(good, tmp_path / "bad", UNIFORM[line])))
    assert [shown for shown in lines if shown.startswith("stands out") and line in shown], lines


def layers_of(good: Path, out: Path, sources: Sequence[int]) -> Path:
    """Write a copy of a checkpoint whose layers are these of its own."""

    def change(weights: Weights) -> None:
        old = {name: weights.pop(name) for name in list(weights) if ".layers." in name}
        for layer, source in enumerate(sources):
            own = {name: values for name, values in old.items() if f".layers.{source}." in name}
            weights.update({name.replace(f".{source}.", f".{layer}."): values for name, values in own.items()})

    bad = broken(good, out, change)
    edit_json(bad / "config.json", num_hidden_layers=len(sources))
    return bad


@pytest.mark.parametrize(
    ("sources", "line"),
    [
        ((0, 1, 3, 4, 5), "2 to 4 hold GOOD's 3 to 5; GOOD's 2 missing"),
        ((0, 1, 1, 2, 3, 4, 5), "2 to 5 hold GOOD's 1 to 4"),
        ((0, 2, 1, 3, 4, 5), "1 holds GOOD's 2, 2 holds GOOD's 1"),
    ],
)
def test_layers_that_moved_are_named(
    sources: Sequence[int], line: str, good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(good), str(layers_of(good, tmp_path / "bad", sources)), "--out", str(tmp_path / "out")]) == 0
    assert f"{'layers':<19}{line}" in capsys.readouterr().out.splitlines()


def test_a_head_of_one_side_is_compared_with_the_embeddings_of_the_other(good: Path, tmp_path: Path) -> None:
    def untie(weights: Weights) -> None:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].roll(1, 0)

    tied = changed_copy(good, tmp_path / "tied", lambda weights: weights.pop("lm_head.weight"))
    edit_json(tied / "config.json", tie_word_embeddings=True)
    bad = changed_copy(tied, tmp_path / "bad", untie)
    edit_json(bad / "config.json", tie_word_embeddings=False)
    (tensor,) = compared(tied, bad).conspicuous
    assert description(tensor) == "missing in GOOD; against the embeddings: rows shifted by 1"


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


def test_a_good_tensor_with_nan_gives_the_sound_one_no_form(good: Path, tmp_path: Path) -> None:
    def spoil(weights: Weights) -> None:
        weights[DOWN][2, :5] = torch.nan

    tensors = compared(broken(good, tmp_path / "bad", spoil), good).tensors
    assert [tensor.form for tensor in tensors if tensor.name == DOWN] == [""]


def test_tensors_without_elements_are_not_compared(good: Path, tmp_path: Path) -> None:
    def add_empty(weights: Weights) -> None:
        weights["extra"] = torch.zeros(0, 5)

    copies = [broken(good, tmp_path / name, add_empty) for name in "ab"]
    assert "extra" not in {tensor.name for tensor in compared(*copies).tensors}


def test_a_number_format_that_cannot_be_compared_is_one_line(
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = broken(good, tmp_path / "bad", nothing)
    file = bad / "model.safetensors"
    tensors = {name: tensor.numpy().tobytes() for name, tensor in load_file(file).items()}
    # Two values a byte.
    tensors[DOWN] = tensors[DOWN][: len(tensors[DOWN]) // 8]
    header, end = {}, 0
    for name, tensor in load_file(file).items():
        place = [end, end := end + len(tensors[name])]
        header[name] = {"dtype": "F4" if name == DOWN else "F32", "shape": [*tensor.shape], "data_offsets": place}
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(tensors.values()))
    assert main([str(good), str(bad), "--out", str(tmp_path / "out")]) == 4
    assert f"{DOWN}, stored as F4: cannot be read (" in capsys.readouterr().err


def test_a_tensor_that_is_missing_is_named(good: Path, tmp_path: Path) -> None:
    def lose(weights: Weights) -> None:
        del weights[DOWN]

    (tensor,) = compared(good, broken(good, tmp_path / "bad", lose)).conspicuous
    assert (tensor.name, tensor.problem) == (DOWN, "missing in BAD")


def test_settings_that_differ_are_named_by_part(good: Path, tmp_path: Path) -> None:
    bad = broken(good, tmp_path / "bad", nothing)
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    edit_json(bad / "config.json", rope_parameters=rope, transformers_version="0")
    (bad / "chat_template.jinja").write_text("{{ messages[0].content }}")
    edit_json(bad / "tokenizer.json", pre_tokenizer=None)
    (bad / "generation_config.json").write_text('{"eos_token_id": 7, "repetition_penalty": 1.0}')
    found = {(change.part, change.name) for change in compared(good, bad).settings}
    assert {
        ("config", "rope_parameters.factor"), ("chat template", "chat template"), ("tokenizer", "ids of a text"),
        ("tokenizer", "tokenizer.json pre_tokenizer.type"), ("generation config", "eos_token_id"),
    } <= found  # fmt: skip
    assert not any(name in ("transformers_version", "dtype", "repetition_penalty") for _, name in found)


def test_the_command_writes_lines_and_json(good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, made = FORMS["all zero"]
    bad = broken(good, tmp_path / "bad", lambda weights: weights.update({name: made(weights)}))
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
