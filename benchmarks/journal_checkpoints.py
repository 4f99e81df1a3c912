"""Simulate many checkpoints on one journal with the real claiming code, and measure what the journal becomes.

    python -m benchmarks.journal_checkpoints [--workers 1,8,64,512] [--checkpoints 2]

Every checkpoint gets the samples of six verdicts, one for each length, as docs/scale-figures.md counts them. The
workers measure one checkpoint after another; in turn, each of them claims the next free sample and writes its result,
and no model runs. A few checkpoints are simulated, and sizes and numbers of files are multiplied to 1,000, because no
checkpoint depends on others.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

from msgspec.structs import replace

from benchmarks.file_requests import Requests
from benchmarks.journal_claims import WANTED, renamed
from benchmarks.journal_open import SUBJECT, random_entries
from benchmarks.scale_costs import SAMPLES
from longctx.plugins.journal import Entry, Heartbeat, Journal, Subject

LENGTHS = 6
CHECKPOINTS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The journal of some checkpoints."""

    samples: int
    requests: int
    """Requests to the file system, from the first worker's start to the last one's end."""
    bytes: int
    files: int
    """Entries of all directories."""
    open_seconds: float
    """CPU time to open the last checkpoint's results, as a run that only reads does."""


def simulate(workers: int, checkpoints: int, directory: Path, requests: Requests) -> Figures:
    """Measure so many checkpoints with so many workers."""
    entries = list(islice(random_entries(Random(0)), 100))
    keys = [f"{number:016x}" for number in range(LENGTHS * SAMPLES)]
    subjects = [replace(SUBJECT, fingerprint=f"{number:064x}") for number in range(checkpoints)]
    requests.counts.clear()
    with requests.counting(), ExitStack() as stack:
        heartbeats = [stack.enter_context(Heartbeat(directory, "run")) for _ in range(workers)]
        for subject in subjects:
            work([Journal(directory, subject, heartbeat) for heartbeat in heartbeats], keys, entries)
    written = list(directory.rglob("*"))
    return Figures(
        samples=checkpoints * len(keys),
        requests=requests.counts.total(),
        bytes=sum(path.stat().st_size for path in written if path.is_file()),
        files=len(written),
        open_seconds=open_seconds(directory, subjects[-1], len(keys)),
    )


def work(journals: Sequence[Journal], keys: Sequence[str], entries: Sequence[Entry]) -> None:
    """Let the workers claim and answer all samples in turn."""
    for journal in journals:
        journal.refresh()
    for number in range(len(keys)):
        journal = journals[number % len(journals)]
        (key,) = journal.claim(keys[max(0, number - len(journals)) :][:WANTED], 1)
        journal.append(renamed(entries, int(key, 16)))
        journal.catch_up()
    for journal in journals:
        journal.close()


def open_seconds(directory: Path, subject: Subject, samples: int) -> float:
    """Return the CPU time of opening one checkpoint's results; raises RuntimeError if one is missing."""
    before = time.process_time()
    read = Journal(directory, subject).refresh()
    if read != samples:
        raise RuntimeError(f"{read} of {samples} samples were read")
    return time.process_time() - before


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for every number of workers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workers", default="1,8,64,512", help="numbers of workers (default: 1,8,64,512)")
    parser.add_argument("--checkpoints", type=int, default=2, help="simulated checkpoints (default: 2)")
    args = parser.parse_args(arguments)
    requests = Requests()
    times = CHECKPOINTS / args.checkpoints
    print(
        f"{'workers':>8} {'requests a sample':>18} {'GB of 1,000':>12} {'files of 1,000':>15} {'open one, CPU s':>16}"
    )
    for workers in map(int, args.workers.split(",")):
        with tempfile.TemporaryDirectory(prefix="journal-checkpoints-") as name:
            figures = simulate(workers, args.checkpoints, Path(name, "journal"), requests)
        print(
            f"{workers:>8} {figures.requests / figures.samples:>18.1f} {figures.bytes * times / 1e9:>12.2f} "
            f"{figures.files * times:>15,.0f} {figures.open_seconds:>16.2f}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
