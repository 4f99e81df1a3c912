"""Measure what random layers restore and reproduce when noise on all weights causes a loss.

    python -m benchmarks.diagnosis_null CKPT --noise 0.08 0.12 --work out/null

No layer is at fault there, so whatever shares its sets of layers reach, they reach by chance. The limit of
`longctx.fixtures.diagnosis.cause` for "a part of the loss" lies above the smaller share of each. Every strength is a
checkpoint with noise of its own, whose layers are divided at random into sets of one to three, so that none counts
twice. A set is measured on three samples, as a diagnosis measures each of several candidates, before it confirms the
best one on others. The same command continues after it was stopped, and CKPT answers its samples once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import torch

from benchmarks.diagnosis_faults import add_noise
from benchmarks.faults.checkpoint_faults import CheckpointContent, CheckpointFault, write_faulty
from longctx.ci.diagnose.words import shares
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.diagnosis.cause import BY_CHANCE, SEARCHED, Candidate, Search
from longctx.fixtures.diagnosis.exchange import Exchanger, State
from longctx.fixtures.diagnosis.settings import DiagnosisError
from longctx.fixtures.diagnosis.weights import StoredWeights, layer_of
from longctx.fixtures.seeding import stable_hash
from longctx.fixtures.tasks import TASKS
from longctx.plugins.evidence.statistics import most_probable

LARGEST_SET = 3
# Sets that reproduce less are far from every limit, and what they restore is not measured.
LEAST_REPRODUCED = 0.2


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the sets, and print their shares, the largest ones, and how probable it is that one is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, metavar="CKPT")
    parser.add_argument(
        "--noise", type=float, required=True, nargs="+", metavar="SHARE", help="of each tensor's norm, such as 0.05"
    )
    parser.add_argument("--task", default="niah_multikey_1", metavar="NAME")
    parser.add_argument("--length", type=int, default=512, metavar="TOKENS")
    parser.add_argument("--samples", type=int, default=32, metavar="N", help="most samples to look at (32)")
    parser.add_argument("--sets", type=int, metavar="N", help="most sets of one strength (all layers)")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR")
    given = parser.parse_args(arguments)
    found = [candidate for strength in given.noise for candidate in _measure(given, strength)]
    if not found:
        return 1
    reproduced = sorted(candidate.reproduces.value for candidate in found)
    both = sorted(min(one.restores.value, one.reproduces.value) for one in found if one.restores is not None)
    print(f"{len(found)} sets reproduced {reproduced[len(found) // 2]:.2f} in the median, {reproduced[-1]:.2f} at most")
    print(f"largest smaller shares: {', '.join(f'{share:.2f}' for share in both[:-4:-1]) or 'none measured'}")
    named = sum(candidate.carries != "nothing" for candidate in found)
    print(f"named at the limit {BY_CHANCE:g}: {named} of {len(found)}; with 95 % confidence, at most "
          f"{100 * most_probable(named, len(found), alpha=0.05):.1f} % of such sets are")  # fmt: skip
    return 0


def _measure(given: argparse.Namespace, strength: float) -> Iterator[Candidate]:
    """Yield what each set of layers carries of the loss that noise of this strength causes; nothing without a loss."""
    bad = _noisy(given.checkpoint, strength, given.work / f"noise-{strength:g}")
    settings = {"device": "cpu", "dtype": "auto", "attention": "auto"}
    good, other = (read_checkpoint(str(path)) for path in (given.checkpoint, bad))
    exchanger = Exchanger(
        good, other, TASKS[given.task], given.length, seed=0, chat="auto", folder=given.work, settings=settings
    )
    names = list(StoredWeights(given.checkpoint).tensors)
    search = Search(exchanger, State(weights=frozenset(names)), lambda _: None, least_reproduced=LEAST_REPRODUCED)
    try:
        search.find_samples(range(given.samples), "samples")
    except DiagnosisError as error:
        print(f"noise {strength:g}: {error}", flush=True)
        return
    lost = [sample.good_nats - sample.bad_nats for sample in search.telling()]
    print(f"noise {strength:g}: {len(lost)} samples lost {sum(lost) / len(lost):.2f} nats in the mean", flush=True)
    layers = sorted({layer for name in names if (layer := layer_of(name)) is not None})
    for chosen in _sets(layers, strength)[: given.sets]:
        members = [name for name in names if layer_of(name) in chosen]
        part, samples = State(weights=frozenset(members)), search.samples[:SEARCHED]
        candidate = search.measure("tensors", str(chosen), members, part, samples=samples)
        print(f"layers {', '.join(map(str, chosen)):<12} {shares(candidate)}", flush=True)
        yield candidate


def _sets(layers: list[int], strength: float) -> list[list[int]]:
    """Divide the layers at random."""
    random = Random(stable_hash("sets", strength))
    random.shuffle(layers)
    sets = []
    while layers:
        size = random.randint(1, LARGEST_SET)
        sets.append(sorted(layers[:size]))
        layers = layers[size:]
    return sets


def _noisy(source: Path, strength: float, out: Path) -> Path:
    """Write the checkpoint with noise on every tensor, unless it is there already."""
    if (out / "fault.json").is_file():
        return out

    def change(content: CheckpointContent, _: float) -> None:
        torch.manual_seed(stable_hash("noise", strength) % 2**31)
        add_noise(content, strength)

    fault = CheckpointFault(
        name="noise", summary="", threads=(), scale="", usual=1.0, change=change, needs_weights=True
    )  # fmt: skip
    return write_faulty(read_checkpoint(str(source)), out, fault, 1.0)


if __name__ == "__main__":
    sys.exit(main())
