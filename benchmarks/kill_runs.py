"""Kills runs of the suite with SIGKILL at random moments and starts them again: is the report the same, is work lost?

    python -m benchmarks.kill_runs --rounds 20

Each round begins with an empty journal, kills a worker, the controller or all of it while samples are
being answered, gives the same command again, and compares with a run that nobody disturbed. Exit code 1
when a report differs or a finished sample was computed again.
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
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
TARGETS = ("worker", "controller", "all")
RUN = (
    "--model", "calibration:1k", "--suite", "ruler", "--lengths", "512,2k", "--samples", "10",
    "-k", "single or multikey", "--thresholds", "ci/demo.toml", "-n", "2", "-p", "no:cacheprovider",
)  # fmt: skip
PATIENCE_SECONDS = 240


def start(journal: Path, report: Path) -> subprocess.Popen[bytes]:
    """The suite in a process group of its own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", *RUN, "--journal", str(journal), "--report-json", str(report)]
    return subprocess.Popen(
        command, cwd=REPOSITORY, env=inherited, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip


def workers_of(controller: int) -> list[int]:
    """Process ids of a run's workers."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent == controller:
            found.append(int(status.parent.name))
    return sorted(found)


def finished(journal: Path) -> Counter[str]:
    """How often each sample stands in the journal."""
    lines = (line for path in journal.glob("*/*.jsonl") for line in path.read_bytes().split(b"\n")[:-1])
    return Counter(data["element"] for line in lines if "element" in (data := json.loads(line)))


def kill(process: subprocess.Popen[bytes], journal: Path, target: str, chance: random.Random, at_least: int) -> int:
    """Kill while samples are being answered, after `at_least` of them; how many were finished then."""
    while process.poll() is None and len(finished(journal)) < at_least:
        time.sleep(0.02)
    time.sleep(chance.random() * 0.3)
    done = len(finished(journal))
    workers = workers_of(process.pid)
    victims = {"worker": workers[:1], "controller": [process.pid], "all": [process.pid, *workers]}[target]
    for victim in victims:
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return done


def comparable(report: Path) -> dict[str, Any]:
    """What a report says of the model, without what only says how the run went."""
    written = json.loads(report.read_text())
    return {name: written[name] for name in ("cases", "gates", "ruler", "regression")} | {
        # What was computed depends, like time, on what each worker had read just before.
        "tokens": {name: written["run"]["tokens"][name] for name in ("prompt", "generated")},
        "model": written["model"],
    }


def strip_seconds(said: dict[str, Any]) -> dict[str, Any]:
    """Without the time that answers took, which is another one in each run."""
    return said | {"cases": [{name: case[name] for name in case if name != "seconds"} for case in said["cases"]]}


def disturbed(folder: Path, target: str, chance: random.Random, most: int) -> tuple[dict[str, Any], int, int]:
    """One round: what the report says, samples finished before the kill, samples computed twice."""
    journal, report = folder / "journal", folder / "report.json"
    process = start(journal, report)
    try:
        done = kill(process, journal, target, chance, chance.randrange(1, most))
        if target == "worker":
            process.wait(PATIENCE_SECONDS)
        else:
            time.sleep(chance.random())
            again = start(journal, report)
            again.wait(PATIENCE_SECONDS)
    finally:
        for leftover in (process.pid, *workers_of(process.pid)):
            try:
                os.killpg(leftover, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        process.wait()
    twice = sum(count - 1 for count in finished(journal).values())
    return strip_seconds(comparable(report)), done, twice


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    folder = Path(tempfile.mkdtemp(prefix="killed-"))
    start(folder / "journal", folder / "report.json").wait(PATIENCE_SECONDS)
    expected = strip_seconds(comparable(folder / "report.json"))
    samples = sum(case["samples"] for case in expected["cases"])
    print(f"undisturbed: {samples} samples counted, {len(finished(folder / 'journal'))} computed")
    print(f"{'round':>5} {'killed':>11} {'finished then':>14} {'computed twice':>15} {'same report':>12}")
    wrong = 0
    for number in range(asked.rounds):
        target = TARGETS[number % len(TARGETS)]
        place = folder / str(number)
        place.mkdir()
        said, done, twice = disturbed(place, target, chance, samples)
        wrong += said != expected or twice > 0
        print(f"{number:>5} {target:>11} {done:>14} {twice:>15} {'yes' if said == expected else 'NO':>12}", flush=True)
    shutil.rmtree(folder)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
