"""Write a chain of checkpoints that drift at every step, with a fault from one step on, and repaired ones after it.

    python -m benchmarks.drifting_chain CKPT out/chain --steps 25 --fault-from 15 --repaired-from 25

Noise on each matrix of the attention drifts: every step keeps a part of that of the step before, and its size stays.
So some answers change at every step while the model stays as good. The fault scales the query projections of some
layers down, so that their attention becomes diffuse; it is a fault of this benchmark alone.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.faults.checkpoint_faults import CheckpointContent, CheckpointFault, write_faulty
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint

# The share of the noise that a step keeps.
KEPT = 0.7
FAULTY_LAYERS = (10, 14, 18)
ATTENTION = re.compile(r"\.self_attn\.\w+\.weight$")
FAULTY = re.compile(rf"\.layers\.({'|'.join(map(str, FAULTY_LAYERS))})\.self_attn\.q_proj\.weight$")


class Chain:
    """The weights of a checkpoint's attention while they drift."""

    def __init__(self, drift: float) -> None:
        self._drift = drift
        self._noise: dict[str, Tensor] = {}
        """The noise of the last step by weight matrix, in units of its standard deviation."""

    def take_step(self, content: CheckpointContent, *, step: int, fault_scale: float) -> None:
        """Let the noise drift by a step, change the checkpoint's weights by it, and scale those that have the fault."""
        generator = torch.Generator().manual_seed(step)
        for name, stored in content.tensors.items():
            if not ATTENTION.search(name) or stored.dim() != 2:
                continue
            new = torch.randn(stored.shape, generator=generator)
            before = self._noise.get(name, new)
            noise = self._noise[name] = new if before is new else KEPT * before + math.sqrt(1 - KEPT**2) * new
            weights = stored.float()
            drifted = weights + self._drift * weights.std() * noise
            scale = fault_scale if FAULTY.search(name) else 1.0
            content.tensors[name] = (scale * drifted).to(stored.dtype)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the chain, and return 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkpoint", type=Path, metavar="CKPT")
    parser.add_argument("out", type=Path, metavar="DIR")
    parser.add_argument("--steps", type=int, default=24, help="checkpoints of the chain (default: 24)")
    parser.add_argument(
        "--drift", type=float, default=0.025,
        help="standard deviation of the noise relative to that of each weight matrix (default: 0.025)",
    )  # fmt: skip
    parser.add_argument("--fault-from", type=int, default=15, metavar="STEP", help="the first bad step (default: 15)")
    parser.add_argument("--fault-scale", type=float, default=0.3, help="what is left of the queries (default: 0.3)")
    parser.add_argument("--repaired-from", type=int, default=sys.maxsize, metavar="STEP", help="none by default")
    args = parser.parse_args(arguments)
    checkpoint, chain = read_checkpoint(str(args.checkpoint.resolve())), Chain(args.drift)
    for step in range(1, args.steps + 1):
        scale = args.fault_scale if args.fault_from <= step < args.repaired_from else 1.0

        def change(content: CheckpointContent, strength: float, step: int = step, scale: float = scale) -> None:
            chain.take_step(content, step=step, fault_scale=scale)

        fault = CheckpointFault(
            name="drift", summary="", threads=(), scale="", usual=1.0, change=change, needs_weights=True
        )  # fmt: skip
        write_faulty(checkpoint, args.out / f"step-{step}", fault, 1.0)
        print(args.out / f"step-{step}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
