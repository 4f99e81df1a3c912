"""Measure the speed of two workers against one, and the cost of a token at longer lengths.

    python -m benchmarks.scaling [--pairs 1] [--samples 100] [--length 2k] [--json FILE]

Runs the needle tasks on a calibration checkpoint in full, with one worker and with two workers in turn, one thread for
a worker and an empty journal for every run. Wall times of whole processes count: users wait for the start-up too.
Limit: exit code 1 if two workers are less than 1.7 times as fast as one.
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
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
MIN_RATIO = 1.7


def seconds(workers: int, length: str, samples: int) -> tuple[float, int]:
    """Return the wall time of one run, and the tokens it computed; raise RuntimeError if it fails."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    with tempfile.TemporaryDirectory(prefix="scaling-") as folder:
        report = Path(folder, "report.json")
        command = [
            sys.executable, "-m", "pytest", "--model", "calibration:full", "--suite", "ruler", "--lengths", length,
            "--full", "--samples", str(samples), "-k", "single or multikey", "-n", str(workers), "-q",
            "--journal", f"{folder}/journal", "--report-json", str(report),
        ]  # fmt: skip
        started = time.monotonic()
        ended = subprocess.run(
            command, cwd=REPOSITORY, env=inherited | {"OMP_NUM_THREADS": "1"}, capture_output=True, check=False
        )
        elapsed_seconds = time.monotonic() - started
        if ended.returncode:
            raise RuntimeError(ended.stdout.decode(errors="replace")[-2000:])
        return elapsed_seconds, int(json.loads(report.read_text())["run"]["tokens"]["computed"])


def main() -> int:
    """Print the ratios and the costs; return 1 if two workers are too slow, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--length", default="2k")
    parser.add_argument("--longer", default="4k,8k", help="lengths at which the cost of a token is compared")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    ratios = []
    print(f"{'pair':>4} {'one worker':>11} {'two workers':>12} {'ratio':>6}")
    for pair in range(args.pairs):
        one, _ = seconds(1, args.length, args.samples)
        two, _ = seconds(2, args.length, args.samples)
        ratios.append(one / two)
        print(f"{pair:>4} {one:>9.1f} s {two:>10.1f} s {ratios[-1]:>6.2f}", flush=True)
    ratio = statistics.median(ratios)
    print(f"median {ratio:.2f}, required {MIN_RATIO}: {'ok' if ratio >= MIN_RATIO else 'NOT ok'}")
    costs = {}
    for length in filter(None, (args.length, *args.longer.split(","))):
        elapsed_seconds, tokens = seconds(2, length, max(2, args.samples // 16))
        costs[length] = 1e6 * elapsed_seconds / tokens
        print(f"{length:>6} {costs[length]:>8.0f} s for a million tokens, start-up included", flush=True)
    if args.json:
        args.json.write_text(json.dumps({"ratios": ratios, "seconds_per_million_tokens": costs}, indent=1) + "\n")
    return 0 if ratio >= MIN_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
