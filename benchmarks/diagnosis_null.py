"""Measure what random sets of layers restore and reproduce when noise on all weights causes a loss.

    python -m benchmarks.diagnosis_null CKPT --noise 0.05 --sets 50 --work out/null

No layer is at fault there, so whatever shares random sets of one to three layers reach, they reach by chance. The limit
of `longctx.fixtures.diagnosis.cause` for "a part of the loss" lies above the smaller share of each. The same command
continues after it was stopped, and more `--sets` add to those that are measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import torch

from benchmarks.diagnosis_faults import add_noise
from longctx.ci.diagnose.words import shares
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.diagnosis.cause import BY_CHANCE, Search
from longctx.fixtures.diagnosis.exchange import Exchanger, State
from longctx.fixtures.diagnosis.weights import StoredWeights, layer_of
from longctx.fixtures.faults.fault import CheckpointContent, CheckpointFault
from longctx.fixtures.faults.inject import write_faulty
from longctx.fixtures.seeding import stable_hash
from longctx.fixtures.tasks import TASKS

LARGEST_SET = 3
# Sets that reproduce less are far from every limit, and what they restore is not measured.
LEAST_REPRODUCED = 0.2


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the sets, and print the shares and their quantiles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, metavar="CKPT")
    parser.add_argument(
        "--noise", type=float, required=True, metavar="SHARE", help="of each tensor's norm, such as 0.05"
    )
    parser.add_argument("--sets", type=int, default=50, metavar="N")
    parser.add_argument("--length", type=int, default=512, metavar="TOKENS")
    parser.add_argument("--samples", type=int, default=32, metavar="N", help="most samples to look at (32)")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR")
    given = parser.parse_args(arguments)
    bad = _noisy(given.checkpoint, given.noise, given.work / f"noise-{given.noise:g}")
    settings = {"device": "cpu", "dtype": "auto", "attention": "auto"}
    good, other = (read_checkpoint(str(path)) for path in (given.checkpoint, bad))
    exchanger = Exchanger(
        good, other, TASKS["niah_multikey_1"], given.length, seed=0, chat="auto", folder=given.work, settings=settings
    )
    names = list(StoredWeights(given.checkpoint).tensors)
    layers = sorted({layer for name in names if (layer := layer_of(name)) is not None})
    search = Search(exchanger, State(weights=frozenset(names)), lambda _: None, least_reproduced=LEAST_REPRODUCED)
    search.find_samples(range(given.samples), "samples")
    found = []
    for number in range(given.sets):
        random = Random(stable_hash("set", number))
        chosen = sorted(random.sample(layers, 1 + number % LARGEST_SET))
        members = [name for name in names if layer_of(name) in chosen]
        candidate = search.measure("tensors", str(chosen), members, State(weights=frozenset(members)))
        print(f"layers {', '.join(map(str, chosen)):<12} {shares(candidate)}", flush=True)
        found.append(candidate)
    reproduced = sorted(candidate.reproduces.value for candidate in found)
    print(f"reproduced: median {reproduced[len(found) // 2]:.2f}, 95 % below {reproduced[int(0.95 * len(found))]:.2f}, "
          f"largest {reproduced[-1]:.2f}")  # fmt: skip
    both = sorted(min(one.restores.value, one.reproduces.value) for one in found if one.restores is not None)
    print(f"measured in both directions: {len(both)} of {len(found)}; largest of the smaller shares "
          f"{both[-1] if both else 0.0:.2f}")  # fmt: skip
    named = sum(candidate.carries != "nothing" for candidate in found)
    print(f"named at the limit {BY_CHANCE:g}: {named} of {len(found)}")
    return 0


def _noisy(source: Path, strength: float, out: Path) -> Path:
    """Write the checkpoint with noise on every tensor, unless it is there already."""
    if (out / "fault.json").is_file():
        return out

    def change(content: CheckpointContent, _: float) -> None:
        torch.manual_seed(0)
        add_noise(content, strength)

    fault = CheckpointFault(
        name="noise", summary="", threads=(), scale="", usual=1.0, change=change, needs_weights=True
    )  # fmt: skip
    return write_faulty(read_checkpoint(str(source)), out, fault, 1.0)


if __name__ == "__main__":
    sys.exit(main())
