"""Checkpoints whose weights were changed a little: noise, which costs a model some ability, and a scaled last norm.

The norm's scale changes every probability and no greedy answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch

from benchmarks.faults.checkpoint_faults import CheckpointContent, CheckpointFault, write_faulty
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint

NORM = "norm-0.9"
NOISE: Mapping[str, float] = {"noise-0.025": 0.025, "noise-0.05": 0.05, "noise-0.1": 0.1}
"""The standard deviation of the noise relative to that of each weight matrix, by the name of the change."""
CHANGES = (NORM, *NOISE)
LAST_NORM = re.compile(r"(?:^|\.)model\.norm\.weight$")
SEED = 0


def write_changed(checkpoint: Path, out: Path, name: str) -> Path:
    """Write the checkpoint with one of `CHANGES` to `out`, unless it is there already, and return `out`."""
    if (out / "fault.json").is_file():
        return out
    change = _scale_last_norm if name == NORM else _add_noise
    fault = CheckpointFault(
        name=name, summary="", threads=(), scale="", usual=1.0, change=change, needs_weights=True
    )  # fmt: skip
    return write_faulty(read_checkpoint(str(checkpoint)), out, fault, 0.1 if name == NORM else NOISE[name])


def _add_noise(content: CheckpointContent, strength: float) -> None:
    random = torch.Generator().manual_seed(SEED)
    for name, stored in content.tensors.items():
        if stored.dim() == 2:
            weights = stored.float()
            noise = torch.randn(weights.shape, generator=random) * weights.std()
            content.tensors[name] = (weights + strength * noise).to(stored.dtype)


def _scale_last_norm(content: CheckpointContent, strength: float) -> None:
    (name,) = filter(LAST_NORM.search, content.tensors)
    # In bfloat16 every weight would be rounded on its own, and answers would change.
    content.tensors[name] = (1 - strength) * content.tensors[name].float()
