"""Measure whether `longctx diagnose` names the right part of a checkpoint with a known fault, and nothing without one.

    python -m benchmarks.diagnosis_faults smollm2=CKPT gemma3=CKPT --work out/diagnosed

Every row writes a checkpoint with one fault, alone, with noise on every tensor ("drift") or on top of a real
fine-tuning ("tuned": a LoRA adapter of all linear layers, trained on generated text and merged), and runs the command
of a user against the sound checkpoint. Rows without a fault have noise, fine-tuning, a merge or a quantization alone;
nothing may be named there. Finished rows are kept in `results.jsonl`, and the same command continues; `--only` chooses
rows, and `--table` prints what is finished.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

import torch

from benchmarks.faults.checkpoint_faults import CHECKPOINT_FAULTS, CheckpointContent, CheckpointFault, write_faulty
from benchmarks.fine_tuning import write_tuned
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.diagnosis.weights import layer_of
from longctx.fixtures.seeding import stable_hash

# The case of each model: the largest one gets the shortest that shows the faults.
CASES = {
    "smollm2": "test_ruler[niah_multikey_1-512]",
    "gemma3": "test_ruler[niah_multikey_1-512]",
    "qwen": "test_ruler[niah_single_2-256]",
}
# Noise on every tensor, as a share of its norm, of which the answers alone lose little.
DRIFTS = {"smollm2": 0.015, "gemma3": 0.005, "qwen": 0.01}
Component = Literal["weights", "config", "tokenizer", ""]
Change = Callable[[CheckpointContent, "Place"], None]
FAULTS: dict[str, tuple[Component, Change]] = {}


@dataclass(slots=True)
class Place:
    """Where a fault is put, and what it touched."""

    layer: int
    strength: float
    touched: set[str]
    sound: dict[str, torch.Tensor]
    """The tensors of the sound checkpoint."""

    def change(self, content: CheckpointContent, part: str, change: Callable[[torch.Tensor], torch.Tensor],
               layer: int | None = None) -> None:  # fmt: skip
        """Replace the tensor of a part of a layer."""
        name = next(
            name for name in content.tensors if f".layers.{self.layer if layer is None else layer}.{part}." in name
        )
        stored = content.tensors[name]
        content.tensors[name] = change(stored.float()).to(stored.dtype).contiguous()
        self.touched.add(name)


def _fault(component: Component) -> Callable[[Change], Change]:
    def enter(change: Change) -> Change:
        FAULTS[change.__name__] = component, change
        return change

    return enter


# Faults of one tensor or one layer.


@_fault("weights")
def zero_matrix(content: CheckpointContent, place: Place) -> None:
    place.change(content, "self_attn.q_proj", torch.zeros_like)


@_fault("weights")
def transposed(content: CheckpointContent, place: Place) -> None:
    place.change(content, "self_attn.q_proj", lambda w: w.T if w.shape[0] == w.shape[1] else w.T.reshape(w.shape))


@_fault("weights")
def heads_exchanged(content: CheckpointContent, place: Place) -> None:
    """Exchange the first two key heads, or the halves of a single one."""
    count = max(2, content.text_config.get("num_key_value_heads") or 2)
    place.change(
        content, "self_attn.k_proj",
        lambda w: w.reshape(count, -1, w.shape[1])[[1, 0, *range(2, count)]].reshape(w.shape),
    )  # fmt: skip


@_fault("weights")
def layers_exchanged(content: CheckpointContent, place: Place) -> None:
    one, other = f".layers.{place.layer}.", f".layers.{place.layer + 1}."
    for name in [name for name in content.tensors if one in name]:
        twin = name.replace(one, other)
        content.tensors[name], content.tensors[twin] = content.tensors[twin], content.tensors[name]
        place.touched |= {name, twin}


@_fault("weights")
def layer_copied(content: CheckpointContent, place: Place) -> None:
    """Load a layer twice, the second time in place of the next one."""
    one, other = f".layers.{place.layer}.", f".layers.{place.layer + 1}."
    for name in [name for name in content.tensors if other in name]:
        content.tensors[name] = content.tensors[name.replace(other, one)].clone()
        place.touched.add(name)


@_fault("weights")
def matrix_scaled(content: CheckpointContent, place: Place) -> None:
    place.change(content, "mlp.down_proj", lambda w: w * place.strength * 4)


@_fault("weights")
def sign_flipped(content: CheckpointContent, place: Place) -> None:
    place.change(content, "self_attn.o_proj", torch.neg)


@_fault("weights")
def matrix_noisy(content: CheckpointContent, place: Place) -> None:
    place.change(content, "mlp.down_proj", lambda w: w + place.strength * w.std() * torch.randn_like(w))


@_fault("weights")
def rows_rolled(content: CheckpointContent, place: Place) -> None:
    """Read a matrix one row too late."""
    place.change(content, "mlp.up_proj", lambda w: w.roll(1, 0))


@_fault("weights")
def heads_rolled(content: CheckpointContent, place: Place) -> None:
    """Join the heads' outputs in another order than their queries."""
    heads = content.text_config["num_attention_heads"]
    place.change(content, "self_attn.o_proj", lambda w: w.roll(w.shape[1] // heads, 1))


@_fault("weights")
def shard_lost(content: CheckpointContent, place: Place) -> None:
    """Lose the second of two shards of a matrix."""
    place.change(content, "mlp.down_proj", lambda w: torch.cat([w[: len(w) // 2], torch.zeros_like(w[len(w) // 2 :])]))


@_fault("weights")
def shards_exchanged(content: CheckpointContent, place: Place) -> None:
    place.change(content, "mlp.gate_proj", lambda w: w.roll(len(w) // 2, 0))


@_fault("weights")
def gate_and_up_exchanged(content: CheckpointContent, place: Place) -> None:
    one, other = (
        next(n for n in content.tensors if f".layers.{place.layer}.mlp.{p}." in n) for p in ("gate_proj", "up_proj")
    )
    content.tensors[one], content.tensors[other] = content.tensors[other], content.tensors[one]
    place.touched |= {one, other}


@_fault("weights")
def keys_and_values_exchanged(content: CheckpointContent, place: Place) -> None:
    one, other = (
        next(n for n in content.tensors if f".layers.{place.layer}.self_attn.{p}.weight" in n)
        for p in ("k_proj", "v_proj")
    )
    content.tensors[one], content.tensors[other] = content.tensors[other], content.tensors[one]
    place.touched |= {one, other}


@_fault("weights")
def norm_scaled(content: CheckpointContent, place: Place) -> None:
    place.change(content, "input_layernorm", lambda w: w * 4 * place.strength)


@_fault("weights")
def norm_lost(content: CheckpointContent, place: Place) -> None:
    """Leave a norm as it is initialized: ones, or zeros where the model adds 1."""
    fill = 0.0 if content.text_config.get("model_type", "").startswith("gemma") else 1.0
    place.change(content, "post_attention_layernorm", lambda w: torch.full_like(w, fill))


@_fault("weights")
def bit_flipped(content: CheckpointContent, place: Place) -> None:
    """Set one weight to a value that a flipped bit of its exponent gives."""

    def flip(weights: torch.Tensor) -> torch.Tensor:
        weights = weights.clone()
        weights[len(weights) // 3, 7] = 3e4 * place.strength
        return weights

    place.change(content, "mlp.down_proj", flip)


@_fault("weights")
def three_layers_noisy(content: CheckpointContent, place: Place) -> None:
    for layer in range(place.layer, place.layer + 3):
        for part in ("self_attn.q_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj"):
            place.change(
                content, part, lambda w: w + 0.5 * place.strength * w.std() * torch.randn_like(w), layer=layer
            )  # fmt: skip


@_fault("weights")
def biases_lost(content: CheckpointContent, place: Place) -> None:
    for name in content.tensors:
        if name.endswith(("q_proj.bias", "k_proj.bias")):
            content.tensors[name] = torch.zeros_like(content.tensors[name])
            place.touched.add(name)


@_fault("weights")
def digit_rows_lost(content: CheckpointContent, place: Place) -> None:
    """Lose the embeddings of the digits, as of rows that an optimizer reset."""
    name = next(name for name in content.tensors if name.endswith("embed_tokens.weight"))
    weights = content.tensors[name].clone()
    weights[content.config["digit_ids"]] = 0
    content.tensors[name] = weights
    place.touched.add(name)


@_fault("weights")
def rope_interleaved(content: CheckpointContent, place: Place) -> None:
    before = dict(content.tensors)
    CHECKPOINT_FAULTS["rope_interleaved"].change(content, 0.25 * place.strength)
    place.touched |= {name for name, tensor in content.tensors.items() if tensor is not before[name]}


# Settings.


@_fault("config")
def rope_theta(content: CheckpointContent, place: Place) -> None:
    CHECKPOINT_FAULTS["rope_theta"].change(content, place.strength)


@_fault("config")
def linear_factor(content: CheckpointContent, place: Place) -> None:
    CHECKPOINT_FAULTS["linear_factor"].change(content, place.strength)


@_fault("config")
def norm_epsilon(content: CheckpointContent, place: Place) -> None:
    content.text_config["rms_norm_eps"] = 0.3 * place.strength


@_fault("config")
def activation(content: CheckpointContent, place: Place) -> None:
    key = "hidden_activation" if "hidden_activation" in content.text_config else "hidden_act"
    content.text_config[key] = "relu"


@_fault("config")
def short_window(content: CheckpointContent, place: Place) -> None:
    content.text_config["sliding_window"] = 24


@_fault("config")
def attention_scale(content: CheckpointContent, place: Place) -> None:
    content.text_config["query_pre_attn_scalar"] = 4096


# Tokenizer and chat template.


@_fault("tokenizer")
def template_lost(content: CheckpointContent, place: Place) -> None:
    content.template = None


@_fault("tokenizer")
def prompt_cut(content: CheckpointContent, place: Place) -> None:
    CHECKPOINT_FAULTS["prompt_cut"].change(content, 0.9)


@_fault("tokenizer")
def double_bos(content: CheckpointContent, place: Place) -> None:
    CHECKPOINT_FAULTS["double_bos"].change(content, 1.0)


@_fault("tokenizer")
def bos_lost(content: CheckpointContent, place: Place) -> None:
    content.tokenizer_config["add_bos_token"] = False
    content.config["tokenizer_rules"] = {"post_processor": None}


@_fault("tokenizer")
def digit_ids_exchanged(content: CheckpointContent, place: Place) -> None:
    content.config["tokenizer_rules"] = {"roll_digits": True}


# Changes without a local cause.


@_fault("")
def drift(content: CheckpointContent, place: Place) -> None:
    add_noise(content, place.strength)


@_fault("")
def tuning(content: CheckpointContent, place: Place) -> None:
    """Leave the fine-tuned checkpoint as it is."""


@_fault("")
def merge(content: CheckpointContent, place: Place) -> None:
    """Take six times what the fine-tuning changed: task arithmetic with too large a weight."""
    sound = place.sound
    for name, stored in content.tensors.items():
        before = sound[name].float()
        content.tensors[name] = (before + 6 * place.strength * (stored.float() - before)).to(stored.dtype)


@_fault("")
def quantized(content: CheckpointContent, place: Place) -> None:
    CHECKPOINT_FAULTS["int4_weights"].change(content, place.strength)


def add_noise(content: CheckpointContent, strength: float) -> None:
    """Add noise to every tensor, of this share of its norm."""
    for name, stored in content.tensors.items():
        weights = stored.float()
        noise = torch.randn_like(weights) * weights.norm() / weights.numel() ** 0.5
        content.tensors[name] = (weights + strength * noise).to(stored.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One checkpoint to diagnose."""

    model: str
    background: Literal["", "drift", "tuned"]
    fault: str
    layer: int = 0
    strength: float = 1.0

    @property
    def name(self) -> str:
        """Return the name that `--only` takes."""
        number = "" if self.strength == 1 else f"{self.strength:g}"
        return "-".join(filter(None, (self.model, self.fault, f"{self.layer or ''}", number, self.background)))


def _rows() -> list[Row]:
    """Return all rows: 37 faults, and 20 checkpoints without one."""
    lines = """
        smollm2        zero_matrix 14 1
        smollm2 drift  transposed 12 1
        smollm2        heads_exchanged 14 1
        smollm2 drift  layers_exchanged 14 1
        smollm2        layer_copied 8 1
        smollm2 tuned  matrix_scaled 6 1
        smollm2 drift  sign_flipped 10 1
        smollm2 tuned  matrix_noisy 4 1
        smollm2 drift  shard_lost 16 1
        smollm2        gate_and_up_exchanged 5 1
        smollm2 drift  rope_interleaved 0 1
        smollm2        digit_rows_lost 0 1
        smollm2 drift  norm_scaled 9 1
        smollm2 drift  three_layers_noisy 20 1
        smollm2 drift  linear_factor 0 0.3
        smollm2 tuned  rope_theta 0 1.3
        smollm2        template_lost 0 1
        smollm2 drift  digit_ids_exchanged 0 1
        smollm2 tuned  zero_matrix 20 1
        smollm2 tuned  rows_rolled 18 1
        smollm2 drift  keys_and_values_exchanged 7 1
        smollm2 drift  rows_rolled 11 1
        smollm2 drift  prompt_cut 0 1
        gemma3         shards_exchanged 7 1
        gemma3  drift  keys_and_values_exchanged 11 1
        gemma3  drift  bit_flipped 9 1
        gemma3  drift  heads_rolled 5 1
        gemma3  drift  norm_epsilon 0 1
        gemma3  drift  attention_scale 0 1
        gemma3         short_window 0 1
        gemma3         bos_lost 0 1
        qwen           biases_lost 0 1
        qwen    drift  bit_flipped 14 1
        qwen           digit_rows_lost 0 1
        qwen           norm_lost 10 1
        qwen           activation 0 1
        qwen           linear_factor 0 0.5
        smollm2        drift 0 0.06
        smollm2        drift 0 0.07
        smollm2        drift 0 0.08
        smollm2        drift 0 0.09
        smollm2        drift 0 0.1
        smollm2        drift 0 0.11
        smollm2        drift 0 0.12
        smollm2        drift 0 0.13
        smollm2        drift 0 0.15
        smollm2        drift 0 0.2
        smollm2        drift 0 0.25
        gemma3         drift 0 0.015
        gemma3         drift 0 0.02
        gemma3         drift 0 0.03
        smollm2 tuned  tuning 0 1
        smollm2 tuned  merge 0 0.5
        smollm2 tuned  merge 0 1
        smollm2 tuned  merge 0 2
        smollm2        quantized 0 1
        gemma3         quantized 0 1
    """
    rows = []
    for line in filter(None, map(str.strip, lines.splitlines())):
        words = line.split()
        background: Any = words[1] if len(words) == len(("model", "background", "fault", "layer", "strength")) else ""
        fault, layer, strength = words[-3:]
        rows.append(
            Row(model=words[0], background=background, fault=fault, layer=int(layer), strength=float(strength))
        )  # fmt: skip
    return rows


TUNING_STEPS, TUNING_RATE = 200, 2e-4


def _write_bad(row: Row, good: Path, work: Path) -> tuple[Path, set[str]]:
    """Write the checkpoint of a row, and return it with the tensors that its fault touched."""
    _, change = FAULTS[row.fault]
    source = good
    if row.background == "tuned":
        source = write_tuned(good, work / f"{row.model}-tuned-0", steps=TUNING_STEPS, rate=TUNING_RATE)
    place = Place(layer=row.layer, strength=row.strength, touched=set(), sound={})
    if row.fault == "merge":
        place.sound = _tensors(good)

    def break_it(content: CheckpointContent, _: float) -> None:
        torch.manual_seed(stable_hash(row.name) % 2**31)
        if row.background == "drift":
            add_noise(content, DRIFTS[row.model])
        content.config["digit_ids"] = _digit_ids(good)
        change(content, place)
        del content.config["digit_ids"]

    fault = CheckpointFault(
        name=row.fault, summary="", threads=(), scale="", usual=1.0, change=break_it, needs_weights=True
    )  # fmt: skip
    bad = work / "bad" / row.name
    shutil.rmtree(bad, ignore_errors=True)
    write_faulty(read_checkpoint(str(source)), bad, fault, 1.0)
    _change_tokenizer(bad)
    return bad, place.touched


def _change_tokenizer(bad: Path) -> None:
    """Change the tokenizer as the config's `tokenizer_rules` says, and remove them from it."""
    config = json.loads((bad / "config.json").read_text())
    rules = config.pop("tokenizer_rules", None)
    (bad / "config.json").write_text(json.dumps(config, indent=2))
    if rules is None:
        return
    file = bad / "tokenizer.json"
    content = json.loads(file.read_text())
    if rules.pop("roll_digits", False):
        vocabulary = content["model"]["vocab"]
        digits = [str(digit) for digit in range(10)]
        ids = [vocabulary[digit] for digit in digits]
        vocabulary |= dict(zip(digits, [*ids[1:], ids[0]], strict=True))
    content |= rules
    file.write_text(json.dumps(content))


def _digit_ids(folder: Path) -> list[int]:
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    return [vocabulary[str(digit)] for digit in range(10)]


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}


def _measure(row: Row, good: Path, work: Path, samples: int) -> dict[str, Any]:
    """Diagnose one row and return what is kept of it."""
    # In a process of its own, because the peak memory of a new process includes that of the one that starts it.
    with ProcessPoolExecutor(1) as writer:
        bad, touched = writer.submit(_write_bad, row, good, work).result()
    # One folder for all rows of a model: the good checkpoint is scored once.
    out, printed = work / row.model, work / "printed" / f"{row.name}.txt"
    out.mkdir(parents=True, exist_ok=True)
    printed.parent.mkdir(exist_ok=True)
    with printed.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "longctx", "diagnose", str(good), str(bad), "--case", CASES[row.model],
             "--samples", str(samples), "--device", "cpu", "--out", str(out)],
            stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        _, status, used = os.wait4(process.pid, 0)
    shutil.rmtree(bad)
    document = json.loads((out / "diagnosis.json").read_text())
    return {
        "row": row.name,
        "code": os.waitstatus_to_exitcode(status),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_mb": round(used.ru_maxrss / 1000),
        "touched": sorted(touched),
        "words": document.get("conclusion", "") if "cause" in document else printed.read_text()[-400:],
        "culprits": [
            [found["kind"], found["members"], found["restores"]["value"], found["reproduces"]["value"]]
            for found in document.get("cause", {}).get("culprits", ())
        ],
        "tokens": document.get("computed_tokens"),
    }


def _component(row: Row, result: dict[str, Any]) -> str:
    """Return the component that a diagnosis names; empty if it names none."""
    kinds = {"weights" if kind == "tensors" else kind for kind, *_ in result["culprits"]}
    if not kinds and result["words"].startswith("cause: spread"):
        return "weights"
    return kinds.pop() if len(kinds) == 1 else ", ".join(sorted(kinds))


def _is_right_place(result: dict[str, Any]) -> bool:
    """Return True if tensors are named and all of them were touched, or are in a layer of one that was."""
    named = {name for kind, members, *_ in result["culprits"] if kind == "tensors" for name in members}
    touched = set(result["touched"])
    layers = {layer_of(name) for name in touched} - {None}
    return bool(named & touched) and all(name in touched or layer_of(name) in layers for name in named)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the rows that are not finished and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="NAME=DIR", help="smollm2, gemma3 or qwen and their directories")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="folder for checkpoints and results")
    parser.add_argument("--only", default="", metavar="NAMES", help="rows whose names contain one of these words")
    parser.add_argument("--again", action="store_true", help="measure these rows again")
    parser.add_argument("--samples", type=int, default=32, metavar="N", help="most samples of a diagnosis (32)")
    parser.add_argument("--table", action="store_true", help="only print what is finished")
    given = parser.parse_args(arguments)
    models = {name: Path(folder) for name, _, folder in (entry.partition("=") for entry in given.models)}
    given.work.mkdir(parents=True, exist_ok=True)
    file = given.work / "results.jsonl"
    words = [word for word in given.only.split(",") if word]
    for row in [] if given.table else ROWS:
        is_wanted = row.model in models and (not words or any(word in row.name for word in words))
        if not is_wanted or (row.name in _results(file) and not given.again):
            continue
        result = _measure(row, models[row.model], given.work, given.samples)
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(result) + "\n")
        print(row.name, result["cpu_seconds"], result["words"], flush=True)
    results = _results(file)
    _print_table([(row, results[row.name]) for row in ROWS if row.name in results])
    return 0


def _results(file: Path) -> dict[str, dict[str, Any]]:
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return {result["row"]: result for result in map(json.loads, lines)}


def _print_table(rows: Sequence[tuple[Row, dict[str, Any]]]) -> None:
    print("| model, change | component | place | restores, reproduces | CPU s | tokens |")
    print("|---|---|---|---|---|---|")
    for row, result in rows:
        expected, named = FAULTS[row.fault][0], _component(row, result)
        place = ""
        if expected == "weights":
            place = "right" if _is_right_place(result) else "wrong" if result["culprits"] else "none"
        elif not expected:
            place = "wrong" if result["culprits"] else "none"
        shares = "; ".join(f"{restores:.2f}, {reproduces:.2f}" for _, _, restores, reproduces in result["culprits"])
        shown = named or ("no loss" if "no loss to explain" in result["words"] else "none")
        print(f"| {row.name} | {shown} | {place} | {shares} | {result['cpu_seconds']:.0f} | {result['tokens'] or ''} |")
    faults = [(row, result) for row, result in rows if FAULTS[row.fault][0]]
    placed = [(row, result) for row, result in faults if FAULTS[row.fault][0] == "weights"]
    right = sum(FAULTS[row.fault][0] == _component(row, result) for row, result in faults)
    sound = [result for row, result in rows if not FAULTS[row.fault][0]]
    print(f"right component: {right} of {len(faults)}")
    print(f"right tensors or layers: {sum(_is_right_place(result) for _, result in placed)} of {len(placed)}")
    print(f"something named without a fault: {sum(bool(result['culprits']) for result in sound)} of {len(sound)}")
    if costs := [result for _, result in rows if result["tokens"]]:
        seconds, tokens = (median(result[key] for result in costs) for key in ("cpu_seconds", "tokens"))
        print(f"median: {seconds:.0f} CPU seconds, {tokens:,.0f} computed tokens")


ROWS = _rows()

if __name__ == "__main__":
    sys.exit(main())
