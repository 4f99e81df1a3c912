"""Measure the time until pytest lists the cases, until it prints a plan, and that of a run that is in its journal.

    python -m benchmarks.startup [--model CKPT] [--repeats 5] [--json FILE]

The commands take turns: pytest on one empty test in an empty folder, `--collect-only` on a checkpoint, a plan to 128k,
and a run whose answers are all in its journal, in one process and with two workers. Of the first three, the wall times
of whole processes count, and of the last two the CPU times of all their processes, as medians. Limits: exit code 1 if
listing the cases takes more than 1.5 times the empty run and half a second, if the plan takes more than 3 s, or the
run in its journal more than 2 s of CPU time, or 3 s with two workers.
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
MAX_CPU_SECONDS = {"in its journal": 2.0, "the same, -n 2": 3.0}


def commands(model: str, folder: Path) -> Mapping[str, tuple[str, ...]]:
    """Return the arguments of Python for all commands; the runs in a journal have it below the folder."""
    run = (
        "longctx", "run", "--model", model, "--suite", "ruler", "-k", "niah_single_2", "--lengths", "512",
        "--samples", "12", "--full", "--journal", f"{folder}/journal",
    )  # fmt: skip
    alone, by_two = MAX_CPU_SECONDS
    return {
        EMPTY: ("pytest", "--collect-only", "-q", f"{folder}/test_empty.py"),
        COLLECT: ("pytest", "--collect-only", "-q", "--model", model),
        PLAN: ("pytest", "--plan", "--model", model, "--suite", "all", "--lengths", "4k,8k,16k,32k,64k,128k"),
        alone: run,
        by_two: (*run, "-n", "2"),
    }


def measure(arguments: Sequence[str], folder: Path) -> tuple[float, float]:
    """Return the wall and CPU seconds of one process and its children; raise RuntimeError if it fails."""
    # Without bytecode every process would compile all sources again.
    left_out = ("PYTEST_", "PYTHONDONTWRITEBYTECODE")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    started = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments], cwd=folder, env=inherited, stdout=output, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(process.pid, 0)
        elapsed_seconds = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            raise RuntimeError(output.read().decode(errors="replace")[-2000:])
    return elapsed_seconds, usage.ru_utime + usage.ru_stime


def measure_medians(model: str, repeats: int) -> Mapping[str, float]:
    """Return the median seconds of all commands.

    The first turn builds the checkpoint, answers the samples of the journal and fills caches, so it does not count.
    """
    with tempfile.TemporaryDirectory(prefix="startup-") as name:
        empty = Path(name)
        (empty / "test_empty.py").write_text("def test_nothing():\n    pass\n")
        (empty / "pytest.ini").write_text("[pytest]\n")
        all_commands = commands(model, empty)
        times: dict[str, list[float]] = {command: [] for command in all_commands}
        for turn in range(repeats + 1):
            for command, arguments in all_commands.items():
                wall, cpu = measure(arguments, empty if command == EMPTY else REPOSITORY)
                if turn:
                    times[command].append(cpu if command in MAX_CPU_SECONDS else wall)
    return {command: statistics.median(turns) for command, turns in times.items()}


def limits(empty_seconds: float) -> Mapping[str, float]:
    """Return the limits of the commands in seconds, for an empty run of this duration."""
    listing = MAX_RATIO * empty_seconds + MAX_EXTRA_SECONDS
    return {COLLECT: listing, PLAN: MAX_PLAN_SECONDS, **MAX_CPU_SECONDS}


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
    parser.add_argument("--model", default="calibration:full", metavar="CKPT")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    medians = measure_medians(args.model, args.repeats)
    limit_seconds = limits(medians[EMPTY])
    print("\n".join(table(medians)))
    if args.json:
        results = {"median_seconds": dict(medians), "limit_seconds": dict(limit_seconds)}
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    return int(any(medians[command] > limit for command, limit in limit_seconds.items()))


if __name__ == "__main__":
    sys.exit(main())
