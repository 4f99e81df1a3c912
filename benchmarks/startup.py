"""How long a user waits before anything is measured: for the list of cases, and for a plan.

    python -m benchmarks.startup [--repeats 5] [--json FILE]

Whole processes, in turns with pytest on one empty test in an empty folder, medians. Exits with 1 when listing the
cases of a checkpoint takes more than 1.5 times the empty run and half a second, or a plan to 128k more than 3 s.
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
MOST_RATIO, MOST_MORE_SECONDS = 1.5, 0.5
MOST_PLAN_SECONDS = 3.0
EMPTY, COLLECT, PLAN = "empty run", "--collect-only", "--plan"
COMMANDS = {
    EMPTY: ("--collect-only", "-q", "test_empty.py"),
    COLLECT: ("--collect-only", "-q", "--model", "calibration:full"),
    PLAN: ("--plan", "--model", "calibration:full", "--suite", "all", "--lengths", "4k,8k,16k,32k,64k,128k"),
}


def seconds(arguments: Sequence[str], folder: Path) -> float:
    """Wall time of one pytest in the folder, from start to end; raises RuntimeError for a failed one."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    started = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments], cwd=folder, env=inherited, capture_output=True, check=False
    )
    taken = time.monotonic() - started
    if ended.returncode:
        raise RuntimeError((ended.stdout + ended.stderr).decode(errors="replace")[-2000:])
    return taken


def medians(repeats: int) -> Mapping[str, float]:
    """Seconds of each command; a first turn, which builds the checkpoint and fills caches, is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory(prefix="startup-") as name:
        empty = Path(name)
        (empty / "test_empty.py").write_text("def test_nothing():\n    pass\n")
        (empty / "pytest.ini").write_text("[pytest]\n")
        for turn in range(repeats + 1):
            for command, arguments in COMMANDS.items():
                found = seconds(arguments, empty if command == EMPTY else REPOSITORY)
                if turn:
                    taken[command].append(found)
    return {command: statistics.median(each) for command, each in taken.items()}


def limits(empty_seconds: float) -> Mapping[str, float]:
    """The most seconds that each command may take where an empty run takes so many."""
    return {COLLECT: MOST_RATIO * empty_seconds + MOST_MORE_SECONDS, PLAN: MOST_PLAN_SECONDS}


def table(found: Mapping[str, float]) -> list[str]:
    lines = [f"{'':<16} {'median':>9} {'at most':>9}", f"{EMPTY:<16} {found[EMPTY]:>7.2f} s"]
    for command, most in limits(found[EMPTY]).items():
        kept = "ok" if found[command] <= most else "NOT ok"
        lines.append(f"{command:<16} {found[command]:>7.2f} s {most:>7.2f} s  {kept}")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(arguments)
    found = medians(asked.repeats)
    most = limits(found[EMPTY])
    print("\n".join(table(found)))
    if asked.json:
        asked.json.write_text(json.dumps({"median_seconds": dict(found), "limit_seconds": dict(most)}, indent=1) + "\n")
    return int(any(found[command] > most[command] for command in most))


if __name__ == "__main__":
    sys.exit(main())
