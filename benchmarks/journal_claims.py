"""Count the requests to the file system that a sample costs, with the real journal and many workers.

    python -m benchmarks.journal_claims [--workers 1,8,64,512]

Every worker is a real journal with a heartbeat of its own; no model runs. All workers share one queue: in turn, each of
them claims the next free sample, writes its result, and looks for new results as often as a worker does. Requests are
calls that a network file system sends to its server: opening, listing, creating, renaming and removing files, reading
their state, and writing. The end of all workers, which removes the claims of finished samples, is counted too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from random import Random

from msgspec.structs import replace

from benchmarks.file_requests import KINDS, Requests
from benchmarks.journal_open import SUBJECT, random_entries
from longctx.plugins.journal import Entry, Heartbeat, Journal

SAMPLES_PER_WORKER = 16
# So many samples are wanted at a time: a panel hands out those up to the soonest possible verdict.
WANTED = 600


def measure(workers: int, directory: Path, requests: Requests) -> tuple[Counter[str], Counter[str]]:
    """Return the requests of one sample, and those of them that belong to its claim and its result."""
    entries = random_entries(Random(0))
    # Texts repeat, because only their number matters.
    some = list(islice(entries, 100))
    keys = [f"{number:016x}" for number in range(workers * SAMPLES_PER_WORKER)]
    claims: Counter[str] = Counter()
    requests.counts = Counter()
    with requests.counting(), ExitStack() as stack:
        heartbeats = [stack.enter_context(Heartbeat(directory, "run")) for _ in range(workers)]
        journals = [Journal(directory, SUBJECT, heartbeat) for heartbeat in heartbeats]
        for journal in journals:
            journal.refresh()
        for number in range(len(keys)):
            journal = journals[number % workers]
            wanted = keys[max(0, number - workers) :][:WANTED]
            before = requests.counts.copy()
            (key,) = journal.claim(wanted, 1)
            journal.append(renamed(some, int(key, 16)))
            claims += requests.counts - before
            journal.catch_up()
        for journal in journals:
            journal.close()
    return _divided(requests.counts, len(keys)), _divided(claims, len(keys))


def renamed(entries: Sequence[Entry], number: int) -> Entry:
    """Return one of the entries as the result of the sample with this number."""
    return replace(entries[number % len(entries)], key=f"{number:016x}", prompt=f"{number:032x}")


def _divided(counts: Counter[str], samples: int) -> Counter[str]:
    return Counter({kind: count / samples for kind, count in counts.items()})


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the requests of one sample by kind, for every number of workers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workers", default="1,8,64,512", help="numbers of workers (default: 1,8,64,512)")
    args = parser.parse_args(arguments)
    requests = Requests()
    print(f"{'workers':>8} {'part':>14}" + "".join(f"{kind:>8}" for kind in (*KINDS, "all")))
    for workers in map(int, args.workers.split(",")):
        with tempfile.TemporaryDirectory(prefix="journal-claims-") as name:
            measured = measure(workers, Path(name, "journal"), requests)
        for part, counts in zip(("all", "claim, result"), measured, strict=True):
            figures = [counts[kind] for kind in KINDS]
            print(f"{workers:>8} {part:>14}" + "".join(f"{figure:>8.1f}" for figure in (*figures, sum(figures))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
