"""Measure the time until pytest lists the cases, and until it prints a plan.

    python -m benchmarks.startup [--repeats 5] [--json FILE]

The three commands take turns: pytest on one empty test in an empty folder, `--collect-only` on a checkpoint, and a
plan to 128k. Wall times of whole processes count, as medians. Limits: exit code 1 if listing the cases takes more than
1.5 times the empty run and half a second, or if the plan takes more than 3 s.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
MAX_RATIO, MAX_EXTRA_SECONDS = 1.5, 0.5
MAX_PLAN_SECONDS = 3.0
EMPTY, COLLECT, PLAN = "empty run", "--collect-only", "--plan"
COMMANDS = {
    EMPTY: ("--collect-only", "-q", "test_empty.py"),
    COLLECT: ("--collect-only", "-q", "--model", "calibration:full"),
    PLAN: ("--plan", "--model", "calibration:full", "--suite", "all", "--lengths", "4k,8k,16k,32k,64k,128k"),
}


def seconds(arguments: Sequence[str], folder: Path) -> float:
    """Return the wall time of one pytest process in the folder; raise RuntimeError if it fails."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    started = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments], cwd=folder, env=inherited, capture_output=True, check=False
    )
    elapsed_seconds = time.monotonic() - started
    if ended.returncode:
        raise RuntimeError((ended.stdout + ended.stderr).decode(errors="replace")[-2000:])
    return elapsed_seconds


def measure_medians(repeats: int) -> Mapping[str, float]:
    """Return the median seconds of all commands.

    The first turn builds the checkpoint and fills caches, so it does not count.
    """
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory(prefix="startup-") as name:
        empty = Path(name)
        (empty / "test_empty.py").write_text("def test_nothing():\n    pass\n")
        (empty / "pytest.ini").write_text("[pytest]\n")
        for turn in range(repeats + 1):
            for command, arguments in COMMANDS.items():
                elapsed_seconds = seconds(arguments, empty if command == EMPTY else REPOSITORY)
                if turn:
                    times[command].append(elapsed_seconds)
    return {command: statistics.median(turns) for command, turns in times.items()}


def limits(empty_seconds: float) -> Mapping[str, float]:
    """Return the limits of the commands in seconds, for an empty run of this duration."""
    return {COLLECT: MAX_RATIO * empty_seconds + MAX_EXTRA_SECONDS, PLAN: MAX_PLAN_SECONDS}


def table(medians: Mapping[str, float]) -> list[str]:
    """Return a heading and one line for every command."""
    lines = [f"{'':<16} {'median':>9} {'at most':>9}", f"{EMPTY:<16} {medians[EMPTY]:>7.2f} s"]
    for command, limit in limits(medians[EMPTY]).items():
        result = "ok" if medians[command] <= limit else "NOT ok"
        lines.append(f"{command:<16} {medians[command]:>7.2f} s {limit:>7.2f} s  {result}")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if a limit is exceeded, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    medians = measure_medians(args.repeats)
    limit_seconds = limits(medians[EMPTY])
    print("\n".join(table(medians)))
    if args.json:
        results = {"median_seconds": dict(medians), "limit_seconds": dict(limit_seconds)}
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    return int(any(medians[command] > limit for command, limit in limit_seconds.items()))


if __name__ == "__main__":
    sys.exit(main())
