"""A short real fine-tuning on a CPU: a LoRA adapter of all linear layers, trained on generated text and merged."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from longctx.fixtures.seeding import stable_hash

LINEAR = re.compile(r"\.(?:[qkvo]_proj|gate_proj|up_proj|down_proj)$")
RANK, ROWS, TOKENS = 8, 2, 48
PLACES = ("Lisbon", "Osaka", "Quito", "Turku", "Perth", "Leeds", "Accra", "Izmir")
GOODS = ("copper", "tea", "glass", "maps", "wool", "clocks", "salt", "paper")


def write_tuned(source: Path, out: Path, *, steps: int, rate: float) -> Path:
    """Write the checkpoint after some steps of fine-tuning to `out`, unless it is there already, and return `out`."""
    if (out / "config.json").is_file():
        return out
    torch.manual_seed(stable_hash("tuned", out.name) % 2**31)
    tokenizer: Any = AutoTokenizer.from_pretrained(source)
    model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    model.requires_grad_(requires_grad=False)
    adapters = {name: _adapter(module) for name, module in model.named_modules() if LINEAR.search(name)}
    parameters = [weights for pair in adapters.values() for weights in pair]
    optimizer = torch.optim.AdamW(parameters, lr=rate)
    random = Random(stable_hash("texts", out.name))
    for step in range(steps):
        ids = tokenizer([_text(random) for _ in range(ROWS)], return_tensors="pt", padding=True, truncation=True,
            max_length=TOKENS)["input_ids"]  # fmt: skip
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step}: loss {float(loss.detach()):.3f}", flush=True)
    out.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.is_file() and file.suffix != ".safetensors":
            shutil.copyfile(file, out / file.name)
    for file in source.glob("*.safetensors"):
        weights = load_file(file)
        for name, (down, up) in adapters.items():
            if (stored := weights.get(f"{name}.weight")) is not None:
                weights[f"{name}.weight"] = (stored.float() + (up @ down).detach()).to(stored.dtype)
        save_file(weights, out / file.name, metadata={"format": "pt"})
    # The last file, so that a stopped fine-tuning is made again.
    shutil.copyfile(source / "config.json", out / "config.json")
    return out


def _adapter(linear: torch.nn.Linear) -> tuple[torch.nn.Parameter, torch.nn.Parameter]:
    """Add a low-rank product to a linear layer; return its two factors."""
    down = torch.nn.Parameter(torch.randn(RANK, linear.in_features) / linear.in_features**0.5)
    up = torch.nn.Parameter(torch.zeros(linear.out_features, RANK))
    linear.register_forward_hook(lambda _module, inputs, output: output + inputs[0] @ down.T @ up.T)
    return down, up


def _text(random: Random) -> str:
    """Return a few sentences of a fictional trade journal, which no model has seen."""
    sentences = []
    for _ in range(5):
        count, year = random.randint(2, 9000), random.randint(1890, 2030)
        goods, one, other = random.choice(GOODS), random.choice(PLACES), random.choice(PLACES)
        sentences.append(
            random.choice((
                f"In {year} the port of {one} sent {count} crates of {goods} to {other}.",
                f"The price of {goods} in {other} rose to {count} after the winter of {year}.",
                f"Merchants from {one} met in {other} and agreed on {count} bales of {goods}.",
            ))
        )  # fmt: skip
    return " ".join(sentences)
