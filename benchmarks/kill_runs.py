"""Test that runs of the suite survive SIGKILL: the same report as an undisturbed run, and no work done twice.

    python -m benchmarks.kill_runs --rounds 20

Every round begins with an empty journal, kills a worker, the controller or all processes while samples are being
answered, starts the same command again, and compares the report with that of an undisturbed run. Limits: exit code 1
if a report differs, or if a finished sample was computed again.
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
TIMEOUT_SECONDS = 240


def start(journal: Path, report: Path) -> subprocess.Popen[bytes]:
    """Start the suite in a process group of its own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", *RUN, "--journal", str(journal), "--report-json", str(report)]
    return subprocess.Popen(
        command, cwd=REPOSITORY, env=inherited, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip


def workers_of(controller: int) -> list[int]:
    """Return the process ids of a run's workers."""
    workers = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent == controller:
            workers.append(int(status.parent.name))
    return sorted(workers)


def finished_samples(journal: Path) -> Counter[str]:
    """Return how often the journal holds every finished sample."""
    lines = (line for path in journal.glob("*/*.jsonl") for line in path.read_bytes().split(b"\n")[:-1])
    return Counter(data["element"] for line in lines if "element" in (data := json.loads(line)))


def kill(process: subprocess.Popen[bytes], journal: Path, target: str, rng: random.Random, at_least: int) -> int:
    """Kill processes soon after `at_least` samples are finished; return the number of finished samples."""
    while process.poll() is None and len(finished_samples(journal)) < at_least:
        time.sleep(0.02)
    time.sleep(rng.random() * 0.3)
    done = len(finished_samples(journal))
    workers = workers_of(process.pid)
    victims = {"worker": workers[:1], "controller": [process.pid], "all": [process.pid, *workers]}[target]
    for victim in victims:
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return done


def comparable(report: Path) -> dict[str, Any]:
    """Return the part of a report that is about the model, without the facts about the run."""
    written = json.loads(report.read_text())
    return {name: written[name] for name in ("cases", "gates", "ruler", "regression")} | {
        # Computed tokens depend, like times, on the prompts that a worker had read before.
        "tokens": {name: written["run"]["tokens"][name] for name in ("prompt", "generated")},
        "model": written["model"],
    }


def strip_seconds(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report without the seconds of its cases, which differ from run to run."""
    return report | {"cases": [{name: case[name] for name in case if name != "seconds"} for case in report["cases"]]}


def run_with_kill(folder: Path, target: str, rng: random.Random, most: int) -> tuple[dict[str, Any], int, int]:
    """Run one round; return the report, the samples finished before the kill, and the samples computed again.

    The kill follows a random number of finished samples below `most`.
    """
    journal, report = folder / "journal", folder / "report.json"
    process = start(journal, report)
    try:
        done = kill(process, journal, target, rng, rng.randrange(1, most))
        if target == "worker":
            process.wait(TIMEOUT_SECONDS)
        else:
            time.sleep(rng.random())
            again = start(journal, report)
            again.wait(TIMEOUT_SECONDS)
    finally:
        for leftover in (process.pid, *workers_of(process.pid)):
            try:
                os.killpg(leftover, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        process.wait()
    computed_again = sum(count - 1 for count in finished_samples(journal).values())
    return strip_seconds(comparable(report)), done, computed_again


def main() -> int:
    """Print one line for every round; return 1 if a limit is exceeded, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    folder = Path(tempfile.mkdtemp(prefix="killed-"))
    start(folder / "journal", folder / "report.json").wait(TIMEOUT_SECONDS)
    expected = strip_seconds(comparable(folder / "report.json"))
    samples = sum(case["samples"] for case in expected["cases"])
    print(f"undisturbed: {samples} samples counted, {len(finished_samples(folder / 'journal'))} computed")
    print(f"{'round':>5} {'killed':>11} {'finished then':>14} {'computed again':>15} {'same report':>12}")
    faults = 0
    for number in range(args.rounds):
        target = TARGETS[number % len(TARGETS)]
        round_folder = folder / str(number)
        round_folder.mkdir()
        report, done, again = run_with_kill(round_folder, target, rng, samples)
        faults += report != expected or again > 0
        print(
            f"{number:>5} {target:>11} {done:>14} {again:>15} {'yes' if report == expected else 'NO':>12}", flush=True
        )
    shutil.rmtree(folder)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
