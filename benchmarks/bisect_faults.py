"""Bisect chains of a pretrained checkpoint with a fault from a random step on, with the real command.

    python -m benchmarks.bisect_faults CKPT --work out/faulty --faults rope_theta:1,rope_interleaved:0.25,int4_weights:1

All checkpoints of a chain differ by small noise on one layer, so each is measured on its own. The chains share their
sound checkpoints, and no journal. The same command continues; a finished chain is a file in --work. Exit code 1 if a
step is named wrongly.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from benchmarks.bisect_checkpoints import usage_by_checkpoint
from benchmarks.faults.checkpoint_faults import CHECKPOINT_FAULTS, CheckpointContent, CheckpointFault, write_faulty
from longctx.ci.suite_process import read_report
from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.checkpoints.checkpoint import Checkpoint, read_checkpoint
from longctx.fixtures.installation import SUITE as REPOSITORY

TASK = "niah_multikey_1"
NOISE = 1e-3
"""The standard deviation of the noise relative to that of each weight matrix."""
NOISY_LAYER = ".layers.0."
SOUND = CheckpointFault(
    name="sound", summary="", threads=(), scale="", usual=1.0, change=lambda content, strength: None
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStep:
    """The result of one chain; the field names are keys of its file."""

    fault: str
    edge: int
    """The first step with the fault."""
    named: int | None
    """The first bad step by the search; None if it named none."""
    checkpoints: int
    """Checkpoints of the chain."""
    measured: int
    """Checkpoints that were measured."""
    samples: int
    """Answers of the most that a comparison needed of each of them, and samples whose gold answers were scored."""


def write_step(checkpoint: Checkpoint, out: Path, fault: CheckpointFault, strength: float, step: int) -> Path:
    """Write one step of a chain, unless it is there already."""

    def change(content: CheckpointContent, strength: float) -> None:
        _add_noise(content, step)
        fault.change(content, strength)

    if not (out / "fault.json").is_file():
        write_faulty(checkpoint, out, replace(fault, change=change, needs_weights=True), strength)
    return out


def link_chain(checkpoint: Checkpoint, work: Path, row: str, *, edge: int, steps: int) -> Path:
    """Return a directory with links to sound checkpoints before `edge` and to faulty ones from there on."""
    name, _, strength = row.partition(":")
    fault = CHECKPOINT_FAULTS[name]
    chain = work / "chains" / name
    chain.mkdir(parents=True, exist_ok=True)
    for step in range(1, steps + 1):
        kind, level = (fault, float(strength or fault.usual)) if step >= edge else (SOUND, 1.0)
        link = chain / f"step-{step:04}"
        if not link.is_symlink():
            link.symlink_to(write_step(checkpoint, work / "pool" / f"{kind.name}-{step:04}", kind, level, step))
    return chain


def search(checkpoint: Checkpoint, work: Path, row: str, options: argparse.Namespace) -> FoundStep:
    """Return the step that the command names; raises RuntimeError if the command cannot search."""
    fault = row.partition(":")[0]
    edge = random.Random(f"{options.seed} {fault}").randint(2, options.checkpoints)
    chain = link_chain(checkpoint, work, row, edge=edge, steps=options.checkpoints)
    out = work / "out" / fault
    command = [
        sys.executable, "-m", "longctx", "bisect", "--good", f"{chain}/step-0001", "--bad",
        f"{chain}/step-{options.checkpoints:04}", "--checkpoints", f"{chain}/step-*", "--case",
        f"test_ruler[{TASK}-{options.length}]", "--out", str(out), "--samples", str(options.samples), "--suite",
        "ruler", "--lengths", options.length, "--batch-size", "32", "--journal", str(work / f"journal-{fault}"),
    ]  # fmt: skip
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    process = subprocess.run(command, cwd=REPOSITORY, env=inherited, capture_output=True, text=True, check=False)
    if process.returncode > 1:
        raise RuntimeError(f"{row}: ended with code {process.returncode}: {process.stderr or process.stdout}")
    result = json.loads((out / "bisect.json").read_text(encoding="utf-8"))
    reports = [report for path in out.glob("*.json") if (report := read_report(path)) is not None]
    usages = usage_by_checkpoint(reports)
    return FoundStep(
        fault=row, edge=edge, named=result.get("first_bad"), checkpoints=options.checkpoints, measured=len(usages),
        samples=sum(usage.samples + usage.telling + usage.likelihoods for usage in usages.values()),
    )  # fmt: skip


def table(found: Iterable[FoundStep]) -> str:
    """Return the results as a Markdown table."""
    lines = ["| fault | checkpoints | first bad step | named | measured | samples |", "|---|---|---|---|---|---|"]
    for one in found:
        named = "-" if one.named is None else str(one.named)
        lines.append(f"| `{one.fault}` | {one.checkpoints} | {one.edge} | {named} | {one.measured} | {one.samples} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Search all chains and print the table; return 1 if a step is named wrongly, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("checkpoint", type=Path, metavar="CKPT")
    add("--work", type=Path, required=True, metavar="DIR", help="folder for checkpoints, journals and reports")
    add("--faults", default="rope_theta:1", metavar="NAME:STRENGTH,NAME", help="faults of a checkpoint's files")
    add("--checkpoints", type=int, default=32, help="checkpoints of a chain (default: 32)")
    add("--length", default="512", help="the length of the samples (default: 512)")
    add("--samples", type=int, default=250, help="samples of the case (default: 250)")
    add("--seed", type=int, default=0, help="seed of the steps (default: 0)")
    options = parser.parse_args(arguments)
    work = options.work.resolve()
    checkpoint = read_checkpoint(str(options.checkpoint.resolve()))
    found = []
    for row in options.faults.split(","):
        file = work / f"{row.replace(':', '-')}.json"
        if not file.is_file():
            result = search(checkpoint, work, row, options)
            write_file(file, (json.dumps(asdict(result), indent=1) + "\n").encode())
        found.append(FoundStep(**json.loads(file.read_text(encoding="utf-8"))))
        print(f"{row}: edge {found[-1].edge}, named {found[-1].named}", flush=True)
    print(table(found))
    return int(any(one.named != one.edge for one in found))


def _add_noise(content: CheckpointContent, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    for name, stored in content.tensors.items():
        if NOISY_LAYER in name and stored.dim() == 2:
            weights = stored.float()
            noise = torch.randn(weights.shape, generator=generator) * weights.std()
            content.tensors[name] = (weights + NOISE * noise).to(stored.dtype)


if __name__ == "__main__":
    sys.exit(main())
