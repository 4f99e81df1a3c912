"""Chains of real checkpoints with a planted loss: does `python -m ci.bisect` name its step, and what does it take?

    python -m benchmarks.bisect_checkpoints --chains 20 --work out/chains

Calibration checkpoints are built once: good ones, of as many steps as a chain has, each with noise of its own, and
for each planted loss as many bad ones, blind to a share of all keys. A chain is a directory of links to them, good
before its edge and bad from there on. Each chain is searched by the real command in a process of its own.

Chains share one journal, to save time: what a checkpoint has answered in one chain it would answer in the next. So
what a search takes is counted from the reports of its own runs, each of which says at how many samples it looked,
and not from what was computed. Samples are looked at in one order: a checkpoint's are as many as in its longest
look, and its weights are loaded, had the chain a journal of its own, in every look that goes on behind those before.
A single chain (`--chains 1 --points 30`, a new --work) has such a journal.

Given again, the command goes on where it was stopped. Exit code 1 where an edge is missed more often than promised,
a search takes more than a tenth of a linear scan in the mean, or a checkpoint is loaded too often. For thousands of
chains, and answers that flip besides, `benchmarks.bisect_chains` draws the scores.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ci.suite_process import REPOSITORY, read_report
from fixtures.atomic_files import write_file
from fixtures.calibration import cached, parse_spec

CASE = "test_ruler[niah_single_2-512]"
LENGTH = "512"
# Points lost; the share of keys not seen that loses them (10.0, 29.6 and 100 on 250 samples); how often right.
PLANTED = {10: ("0.09", 0.97), 30: ("0.31", 1.0), 100: ("0.999999", 1.0)}
MOST_LOADS = 8


class ChainError(RuntimeError):
    """A search that did not come to its end; one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What one checkpoint was asked in a search."""

    samples: int = 0
    loads: int = 0

    def looked(self, samples: int) -> Taken:
        """After a look at the first so many samples."""
        if samples <= self.samples:
            return self
        return Taken(samples=samples, loads=self.loads + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """One chain: its first bad step and the one named; `lost` points were measured between the ends.

    `loads` are those of the checkpoint that was loaded most, `processes` the runs of the suite.
    """

    points: int
    number: int
    edge: int
    named: int
    right: bool
    lost: float
    samples: int
    checkpoints: int
    loads: int
    processes: int


def taken(reports: Iterable[Mapping[str, Any]]) -> dict[str, Taken]:
    """By fingerprint, from the reports of a search's comparisons."""
    found: dict[str, Taken] = {}
    for report in sorted(reports, key=lambda report: str(report["run"]["started"])):
        samples = sum(case["samples"] for case in report["cases"])
        for print_ in (report["model"]["fingerprint"], report["regression"]["baseline"]["fingerprint"]):
            found[print_] = found.get(print_, Taken()).looked(samples)
    return found


def lay_out(chain: Path, pool: Path, blind: str, *, checkpoints: int, edge: int) -> None:
    """Links to good checkpoints before step `edge` and to bad ones from there on."""
    chain.mkdir(parents=True, exist_ok=True)
    for step in range(1, checkpoints + 1):
        loss = f"-blind={blind}" if step >= edge else ""
        link = chain / f"step-{step:04}"
        if not link.is_symlink():
            link.symlink_to(cached(parse_spec(f"full{loss}-step={step}"), pool).resolve())


def searched(work: Path, points: int, number: int, *, checkpoints: int, samples: int, seed: int) -> Searched:
    """Lays the chain out and searches it, unless that is done; raises ChainError."""
    edge = random.Random(f"{seed} {points} {number}").randint(2, checkpoints)
    chain = work / f"lost-{points}" / f"chain-{number:02}-of-{checkpoints}"
    out = chain / "out"
    lay_out(chain, work / "pool", PLANTED[points][0], checkpoints=checkpoints, edge=edge)
    command = [
        sys.executable, "-m", "ci.bisect", "--good", f"{chain}/step-0001", "--bad", f"{chain}/step-{checkpoints:04}",
        "--checkpoints", f"{chain}/step-*", "--case", CASE, "--out", str(out), "--samples", str(samples),
        "--suite", "ruler", "--lengths", LENGTH, "--journal", f"{work}/journal",
    ]  # fmt: skip
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ran = subprocess.run(command, cwd=REPOSITORY, env=inherited, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise ChainError(f"{chain}: ended with code {ran.returncode}: {(ran.stderr or ran.stdout).strip()}")
    told = json.loads((out / "bisect.json").read_text(encoding="utf-8"))
    reports = [report for path in out.glob("*.json") if (report := read_report(path)) is not None]
    each = taken(reports).values()
    return Searched(
        points=points,
        number=number,
        edge=edge,
        named=told["first_bad"],
        right=(told["last_good"], told["first_bad"]) == (edge - 1, edge),
        lost=told["lost"],
        samples=sum(one.samples for one in each),
        checkpoints=len(each),
        loads=max(one.loads for one in each),
        processes=len(reports),
    )


def keeps(chains: Sequence[Searched], linear_samples: int) -> bool:
    """Whether chains of one loss are as promised."""
    right = sum(each.right for each in chains) / len(chains)
    samples = sum(each.samples for each in chains) / len(chains)
    loads = max(each.loads for each in chains)
    return right >= PLANTED[chains[0].points][1] and samples <= linear_samples / 10 and loads <= MOST_LOADS


def line(one: Searched) -> str:
    return (
        f"lost {one.points}, chain {one.number}: edge {one.edge}, named {one.named}, {one.samples} samples, "
        f"{one.checkpoints} checkpoints, one loaded {one.loads} times, {one.processes} runs"
    )


def table(found: Sequence[Searched], linear_samples: int) -> list[str]:
    """A line for each loss, with all its chains."""
    lines = [
        f"{'lost':>5} {'measured':>8} {'chains':>6} {'right':>6} {'samples':>7} {'most':>5} {'of a scan':>9} "
        f"{'checkpoints':>11} {'loads of one, most':>18} {'promises':>8}"
    ]
    for points in dict.fromkeys(each.points for each in found):
        chains = [each for each in found if each.points == points]
        samples = sum(each.samples for each in chains) / len(chains)
        lines.append(
            f"{points:>5} {sum(each.lost for each in chains) / len(chains):>8.1f} {len(chains):>6} "
            f"{sum(each.right for each in chains) / len(chains):>6.0%} {samples:>7.0f} "
            f"{max(each.samples for each in chains):>5} {f'1/{linear_samples / samples:.1f}':>9} "
            f"{max(each.checkpoints for each in chains):>11} {max(each.loads for each in chains):>18} "
            f"{'kept' if keeps(chains, linear_samples) else 'BROKEN':>8}"
        )
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--chains", type=int, default=20, help="of each loss (default: 20)")
    add("--checkpoints", type=int, default=64, help="in a chain (default: 64); each takes 24 MB for each loss")
    add("--samples", type=int, default=250, help="of the case (default: 250)")
    add("--points", type=int, nargs="+", default=list(PLANTED), choices=PLANTED, help="losses (default: all)")
    add("--seed", type=int, default=0, help="of the edges (default: 0)")
    add("--jobs", type=int, default=1, help="chains at once (default: 1)")
    add("--minutes", type=float, default=float("inf"), help="begin no other chain after so many")
    add("--work", type=Path, required=True, metavar="DIR", help="checkpoints, journal, reports, found.json")
    asked = parser.parse_args(arguments)
    work, linear, deadline = asked.work.resolve(), asked.checkpoints * asked.samples, time.time() + 60 * asked.minutes

    def one(number: int, points: int) -> Searched | None:
        if time.time() > deadline:
            return None
        size = {"checkpoints": asked.checkpoints, "samples": asked.samples}
        return searched(work, points, number, seed=asked.seed, **size)

    # Chain by chain and not loss by loss: stopped early, there are as many of each.
    order = [(number, points) for number in range(asked.chains) for points in asked.points]
    found: list[Searched] = []
    try:
        with ThreadPoolExecutor(asked.jobs) as pool:
            for each in pool.map(one, *zip(*order, strict=True)):
                if each is not None:
                    found.append(each)
                    print(line(each), flush=True)
                    text = json.dumps([asdict(each) for each in found], indent=1)
                    write_file(work / "found.json", f"{text}\n".encode())
    except ChainError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    found.sort(key=lambda each: asked.points.index(each.points))
    print("\n".join(table(found, linear)))
    kept = all(keeps([each for each in found if each.points == points], linear) for points in {e.points for e in found})
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
