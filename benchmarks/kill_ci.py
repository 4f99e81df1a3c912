"""Test that a bisect and a watch survive SIGKILL: the same result as an undisturbed run, and no work done twice.

    python -m benchmarks.kill_ci --kills 10

Both commands work on a series of calibration checkpoints at 512 tokens. The benchmark kills them at random moments and
starts the same command again, until it has ended by itself.

Limits: exit code 1 if a result differs from that of an undisturbed run, or if a finished sample was computed again.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longctx.fixtures.calibration import build, parse_spec
from longctx.fixtures.installation import SUITE as REPOSITORY

CASE = "test_ruler[niah_single_2-512]"
GATES = '[[gate]]\nname = "needles"\nkind = "level"\ntasks = ["niah_single_2"]\nabove = 85\n'
TIMEOUT_SECONDS = 900
BISECT_KEYS = ("first_bad", "last_good", "loss", "steps", "edge", "flips")
HISTORY_KEYS = ("step", "word", "failed", "anchor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A command to kill."""

    name: str
    command: Callable[[Path], Sequence[str]]
    """Returns the arguments of `python -m` for a working folder."""
    result: Callable[[Path], Any]
    """Returns the result that the command has left in that folder."""


def build_checkpoints(folder: Path, steps: int) -> Path:
    """Build so many checkpoints, with a loss in the second half of them."""
    for number in range(1, steps + 1):
        loss = "-blind=0.3" if number > steps // 2 else ""
        build(parse_spec(f"full{loss}-step={number}"), folder / f"step-{number}")
    return folder


def targets(steps: Path, last: int, gates: Path, samples: int) -> list[Target]:
    """Return the two commands on the checkpoints up to step `last`."""
    shared = ("--lengths", "512", "--samples", str(samples))

    def bisect(folder: Path) -> Sequence[str]:
        endpoints = ("--good", f"{steps}/step-1", "--bad", f"{steps}/step-{last}")
        folders = ("--out", f"{folder}/out", "--journal", f"{folder}/journal")
        return ("longctx", "bisect", *endpoints, "--checkpoints", f"{steps}/step-*", "--case", CASE, *shared, *folders)

    def watch(folder: Path) -> Sequence[str]:
        folders = ("--out", f"{folder}/out", "--journal", f"{folder}/journal", "--thresholds", str(gates))
        return ("longctx", "watch", str(steps), "--every", "1s", "--once", *shared, "-k", "single_2", *folders)

    def bisect_result(folder: Path) -> Any:
        document = json.loads((folder / "out" / "bisect.json").read_text())
        return {name: document[name] for name in BISECT_KEYS}

    def watch_result(folder: Path) -> Any:
        events = [json.loads(line) for line in (folder / "out" / "history.jsonl").read_text().splitlines()]
        return [[event[name] for name in HISTORY_KEYS] for event in events if event["event"] == "measured"]

    return [
        Target(name="bisect", command=bisect, result=bisect_result),
        Target(name="watch", command=watch, result=watch_result),
    ]


def start(target: Target, folder: Path) -> subprocess.Popen[bytes]:
    """Start the command in a folder; its output is appended to a file there."""
    folder.mkdir(exist_ok=True)
    with (folder / "output").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", *target.command(folder)], cwd=REPOSITORY, stdout=output, stderr=output,
            env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        )  # fmt: skip


def computed_again(folder: Path) -> int:
    """Return how many finished samples of a checkpoint the journal holds a second time."""
    counts: Counter[tuple[str, str]] = Counter()
    for path in (folder / "journal").glob("*/*.jsonl"):
        for line in path.read_bytes().split(b"\n")[:-1]:
            data = json.loads(line)
            if "element" in data:
                counts[path.parent.name, data["element"]] += 1
    return sum(count - 1 for count in counts.values())


def run_with_kills(target: Target, folder: Path, max_kills: int, rng: random.Random, longest_seconds: float) -> int:
    """Start the command until it ends by itself; return how often it was killed, each time within some seconds."""
    kills = 0
    while True:
        process = start(target, folder)
        try:
            process.wait(rng.uniform(1, longest_seconds) if kills < max_kills else TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            time.sleep(rng.random())
        else:
            return kills


def main(arguments: Sequence[str] | None = None) -> int:
    """Kill both commands and print one line for every run; return 1 if a limit is exceeded, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=10, help="kills of either command (default: 10)")
    parser.add_argument("--seconds", type=float, default=30, help="longest time to a kill (default: 30)")
    parser.add_argument("--checkpoints", type=int, default=6, help="checkpoints of the run (default: 6)")
    parser.add_argument("--samples", type=int, default=60, help="samples of the case (default: 60)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=("bisect", "watch"))
    args = parser.parse_args(arguments)
    rng = random.Random(args.seed)
    root = Path(tempfile.mkdtemp(prefix="killed-ci-"))
    gates = root / "gates.toml"
    gates.write_text(GATES)
    faults = 0
    for target in targets(build_checkpoints(root / "run", args.checkpoints), args.checkpoints, gates, args.samples):
        if args.only not in (None, target.name):
            continue
        run_with_kills(target, root / target.name, 0, rng, args.seconds)
        expected = target.result(root / target.name)
        kills, rounds = 0, 0
        while kills < args.kills:
            folder = root / f"{target.name}-{rounds}"
            kills += run_with_kills(target, folder, args.kills - kills, rng, args.seconds)
            rounds += 1
            is_same, again = target.result(folder) == expected, computed_again(folder)
            faults += not is_same or again > 0
            print(
                f"{target.name}: {kills} kills so far, result {'the same' if is_same else 'DIFFERS'}, "
                f"{again} computed again",
                flush=True,
            )
    shutil.rmtree(root)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
