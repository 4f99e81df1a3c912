"""Watch histories of real checkpoints, end to end: how soon a loss is failed, and what a checkpoint costs.

    python -m benchmarks.watch_checkpoints --histories 20

Each history is a directory of calibration checkpoints, whose scores are known by construction, and each is watched by
`longctx watch DIR --once` with the shipped thresholds: two needle tasks at one length.
All steps have different weights. A loss makes a checkpoint blind to a share of all keys; how many of the planned
samples that hits depends on the history's seed. Unchanged checkpoints are blind to 4.5 to 5.5 % of all keys, another
share at every step: their answers flip, and their mean stays.

Everything is the user's command but for one thing: the watch and its runs of pytest are forked, as those of the tests,
from a process that has imported torch and transformers already, which would otherwise take most of the time.

Limits: exit code 1 unless a loss of 5 points at a random step is failed at this step or the next in 95 % of histories,
one of 10 points in all, a decay of 1 point a step before it has lost 6 points in 95 %, and no step of 50 unchanged ones
in 95 %.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longctx.ci.watch.history import History
from longctx.fixtures.calibration.recipe import Spec, build
from tests.helpers.preloaded import preloaded, start_server

EDGES = range(2, 5)
DECAY_STEPS, UNCHANGED_STEPS = 7, 50
# Needles with numbers: short answers, which are the cheapest to compute.
TASKS = "niah_single_1 or niah_single_2"
LIMITS = {"-5": 0.95, "-10": 1.0, "decay": 0.95, "unchanged": 0.95}


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One watched history."""

    kind: str
    seed: int
    edge: int
    """The first step with the loss."""
    verdicts: list[str]
    scores: list[float]
    """The mean score of each measured step, in points, on the samples that its verdict rests on."""
    samples: int
    """Answers that the watch computed, those of baselines included."""

    @property
    def failed(self) -> int | None:
        """The first failed step; None without one."""
        return self.verdicts.index("fail") + 1 if "fail" in self.verdicts else None

    @property
    def is_right(self) -> bool:
        """True if the first failed step, if there is any, is one that had to fail."""
        if self.kind == "unchanged":
            return self.failed is None and "error" not in self.verdicts
        if self.failed is None:
            return False
        if self.kind == "decay":
            return self.failed - 1 < 6
        return self.failed in (self.edge, self.edge + 1)


def blind_share(kind: str, step: int, *, edge: int, seed: int) -> float:
    """Return the share of keys that a step does not find."""
    if kind == "unchanged":
        return round(0.05 + random.Random(f"{seed} {step}").uniform(-0.005, 0.005), 6)
    if kind == "decay":
        return 0.01 * (step - 1)
    return -int(kind) / 100 if step >= edge else 0.0


def watch(kind: str, seed: int, *, samples: int, length: str) -> Watched:
    """Build a history, and watch it until a step fails or all steps that count are measured."""
    edge = random.Random(seed).choice(EDGES)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "run").mkdir()
        arguments = [
            "-m", "longctx", "watch", str(folder / "run"), "--once", "--every=1s", f"--out={folder / 'out'}",
            "--suite=ruler", "-k", TASKS, "--lengths", length, "--samples", str(samples), "--seed", str(seed),
            "--batch-size=32", f"--journal={folder / 'journal'}",
        ]  # fmt: skip
        begins, ends = {"unchanged": (UNCHANGED_STEPS, UNCHANGED_STEPS), "decay": (3, DECAY_STEPS)}.get(
            kind, (edge, edge + 1)
        )
        log, history = folder / "log", []
        for step in range(1, ends + 1):
            blind = blind_share(kind, step, edge=edge, seed=seed)
            build(Spec(blind=blind, step=100 * step), folder / "run" / f"step-{step}")
            if step < begins:
                continue
            _execute(arguments, log)
            history = History(folder / "out").by_step
            if len(history) != step:
                raise RuntimeError(f"the watch measured {len(history)} of {step} steps:\n{log.read_text()}")
            if any(measured.verdict == "fail" for measured in history):
                break
        reports = [json.loads(Path(measured.report).read_text()) for measured in history]
        return Watched(
            kind=kind, seed=seed, edge=edge, verdicts=[measured.verdict for measured in history],
            scores=[_mean(report) for report in reports], samples=_answers(folder / "journal"),
        )  # fmt: skip


def _execute(arguments: Sequence[str], log: Path) -> None:
    with log.open("w") as output:
        subprocess.run([str(preloaded("python")), *arguments], stdout=output, stderr=output, check=False)


def _mean(report: dict[str, Any]) -> float:
    scores: list[float] = [case["score"] for case in report["cases"] if case["score"] is not None]
    return sum(scores) / len(scores)


def _answers(journal: Path) -> int:
    """Return the number of answers in a journal."""
    files = [path for path in journal.rglob("*.jsonl") if path.parent != journal / "workers"]
    return sum(line.startswith("{") for path in files for line in path.read_text().splitlines())


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for every history and every kind; return 1 if a limit is exceeded, else 0."""
    args = _parse(arguments)
    start_server()
    is_kept = True
    for kind in args.only or LIMITS:
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            jobs = [
                pool.submit(watch, kind, seed, samples=args.samples, length=args.length)
                for seed in range(args.seed, args.seed + args.histories)
            ]
            watched = [_shown(job.result()) for job in concurrent.futures.as_completed(jobs)]
        is_kept &= _print_kind(kind, watched)
    return 0 if is_kept else 1


def _shown(history: Watched) -> Watched:
    scores = " ".join(f"{score:.1f}" for score in history.scores)
    print(
        f"  {history.kind} seed {history.seed} edge {history.edge}: {' '.join(history.verdicts)} ({scores}), "
        f"{history.samples} samples{'' if history.is_right else '  WRONG'}",
        flush=True,
    )
    return history


def _print_kind(kind: str, watched: Sequence[Watched]) -> bool:
    """Print the figures of a kind of history and return True if its limit is kept."""
    right = sum(history.is_right for history in watched) / len(watched)
    steps = sum(len(history.verdicts) for history in watched)
    inconclusive = sum(history.verdicts.count("inconclusive") for history in watched)
    print(
        f"{kind:<10} right {right:.0%} of {len(watched)}, inconclusive {inconclusive} of {steps} steps, "
        f"{sum(history.samples for history in watched) / steps:.0f} samples a checkpoint: "
        f"{'ok' if right >= LIMITS[kind] else 'EXCEEDED'}",
        flush=True,
    )
    return right >= LIMITS[kind]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--histories", type=int, default=20, help="histories of every kind (default: 20)")
    add("--samples", type=int, default=300, help="samples of each task (default: 300)")
    add("--length", default="256", help="the length of all samples (default: 256)")
    add("--only", nargs="+", choices=LIMITS, help="only these kinds of history")
    add("--seed", type=int, default=0, help="the first history's seed (default: 0)")
    add("--jobs", type=int, default=1, help="histories at the same time (default: 1)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
