"""Kills a search and a watch with SIGKILL at random moments, gives the same command again: same answer, no work lost?

    python -m benchmarks.kill_ci --kills 10

Both work on calibration checkpoints of one chain, at 512 tokens. Exit code 1 where an answer differs from
that of an undisturbed run, or a finished sample was computed again.
"""

from __future__ import annotations

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

from ci.suite_process import REPOSITORY
from fixtures.calibration import build, parse_spec

CASE = "test_ruler[niah_single_2-512]"
STEPS, EDGE = 6, 4
GATES = '[[gate]]\nname = "needles"\nkind = "level"\ntasks = ["niah_single_2"]\nabove = 85\n'
PATIENCE_SECONDS = 900
LONGEST_SECONDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A command whose last part depends on the folder it works in, and what it has found there."""

    name: str
    command: Callable[[Path], Sequence[str]]
    found: Callable[[Path], Any]


def chain(folder: Path) -> Path:
    for number in range(1, STEPS + 1):
        loss = "-blind=0.3" if number >= EDGE else ""
        build(parse_spec(f"full{loss}-step={number}"), folder / f"step-{number}")
    return folder


def tasks(steps: Path, gates: Path) -> list[Task]:
    shared = ("--lengths", "512", "--samples", "60")

    def bisect(folder: Path) -> Sequence[str]:
        ends = ("--good", f"{steps}/step-1", "--bad", f"{steps}/step-{STEPS}", "--checkpoints", f"{steps}/step-*")
        return (
            "ci.bisect",
            *ends,
            "--case",
            CASE,
            *shared,
            "--out",
            f"{folder}/out",
            "--journal",
            f"{folder}/journal",
        )

    def watch(folder: Path) -> Sequence[str]:
        where = ("--out", f"{folder}/out", "--journal", f"{folder}/journal", "--thresholds", str(gates))
        return ("ci.watch", str(steps), "--every", "1s", "--once", *shared, "-k", "single_2", *where)

    def edge(folder: Path) -> Any:
        written = json.loads((folder / "out" / "bisect.json").read_text())
        return {name: written[name] for name in ("first_bad", "last_good", "lost", "looks", "edge", "flips", "ended")}

    def history(folder: Path) -> Any:
        lines = [json.loads(line) for line in (folder / "out" / "history.jsonl").read_text().splitlines()]
        names = ("step", "word", "failed", "baseline")
        return [[line[name] for name in names] for line in lines if line["event"] == "measured"]

    return [Task(name="bisect", command=bisect, found=edge), Task(name="watch", command=watch, found=history)]


def start(task: Task, folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir(exist_ok=True)
    with (folder / "said").open("ab") as said:
        return subprocess.Popen(
            [sys.executable, "-m", *task.command(folder)], cwd=REPOSITORY, stdout=said, stderr=said,
            env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        )  # fmt: skip


def computed_twice(folder: Path) -> int:
    """Finished samples that stand in the journal more than once, per checkpoint."""
    found: Counter[tuple[str, str]] = Counter()
    for path in (folder / "journal").glob("*/*.jsonl"):
        for line in path.read_bytes().split(b"\n")[:-1]:
            data = json.loads(line)
            if "element" in data:
                found[path.parent.name, data["element"]] += 1
    return sum(count - 1 for count in found.values())


def disturbed(task: Task, folder: Path, kills: int, chance: random.Random) -> int:
    """Starts it until it has ended by itself; how often it was killed."""
    done = 0
    while True:
        process = start(task, folder)
        try:
            process.wait(chance.uniform(1, LONGEST_SECONDS) if done < kills else PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            done += 1
            time.sleep(chance.random())
        else:
            return done


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=("bisect", "watch"))
    asked = parser.parse_args(arguments)
    chance = random.Random(asked.seed)
    root = Path(tempfile.mkdtemp(prefix="killed-ci-"))
    gates = root / "gates.toml"
    gates.write_text(GATES)
    wrong = 0
    for task in tasks(chain(root / "run"), gates):
        if asked.only not in (None, task.name):
            continue
        disturbed(task, root / task.name, 0, chance)
        expected = task.found(root / task.name)
        kills, rounds = 0, 0
        while kills < asked.kills:
            place = root / f"{task.name}-{rounds}"
            kills += disturbed(task, place, asked.kills - kills, chance)
            rounds += 1
            same, twice = task.found(place) == expected, computed_twice(place)
            wrong += not same or twice > 0
            print(f"{task.name}: {kills} kills so far, answer {'the same' if same else 'DIFFERS'}, "
                  f"{twice} computed twice", flush=True)  # fmt: skip
    shutil.rmtree(root)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
