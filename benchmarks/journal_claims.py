"""Count the requests to the file system that a claim and a result cost, with the real journal and many workers.

    python -m benchmarks.journal_claims [--workers 1,8,64,512]

Every worker is a real journal with a heartbeat of its own; no model runs. Each has answered some samples before, and
then a few of them claim and answer one more each, while the others go on with theirs. Requests are calls that a network
file system sends to its server: opening, listing, creating, renaming and removing files, and reading their state.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from msgspec.structs import replace

from benchmarks.journal_open import SUBJECT, random_entries
from plugins.journal import Entry, Heartbeat, Journal

SAMPLES_BEFORE = 2
MEASURED = 8
EVENTS = {
    "open": "open", "os.listdir": "list", "os.scandir": "list", "os.remove": "remove", "os.rename": "rename",
    "os.link": "create", "os.mkdir": "create",
}  # fmt: skip


class Requests:
    """Counts the requests of this thread's calls while it is switched on."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._is_on = False
        sys.addaudithook(self._audit)
        # No audit event tells of these.
        self._scandir = os.scandir
        os.scandir = self._list  # type: ignore[assignment]  # the journal calls it with one path
        for name in ("stat", "lstat", "fstat"):
            setattr(os, name, self._counted(getattr(os, name)))

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the requests of the block."""
        self._is_on = True
        try:
            yield
        finally:
            self._is_on = False

    def _audit(self, event: str, arguments: Any) -> None:
        if self._is_on and event in EVENTS:
            self.counts[EVENTS[event]] += 1

    def _counted(self, function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if self._is_on:
                self.counts["state"] += 1
            return function(*arguments, **options)

        return call

    def _list(self, path: Any) -> Any:
        """List a directory with entries that count how often their state is read."""
        listing = self._scandir(path)
        return _Listing(listing, self._counted) if self._is_on else listing


class _Listing:
    """A listing of `os.scandir` whose entries are `_Item`s."""

    def __init__(self, listing: Any, counted: Callable[[Any], Any]):
        self._listing, self._counted_by = listing, counted

    def __enter__(self) -> _Listing:
        return self

    def __exit__(self, *error: object) -> None:
        self._listing.close()

    def __iter__(self) -> Iterator[_Item]:
        return (_Item(item.name, item.is_file, self._counted_by(item.stat)) for item in self._listing)


class _Item(NamedTuple):
    """The part of an entry that the journal uses; a listing says by itself which entries are files."""

    name: str
    is_file: Callable[[], bool]
    stat: Callable[[], os.stat_result]


def measure(workers: int, directory: Path, requests: Requests) -> tuple[Counter[str], int]:
    """Return the requests of some claims and results among so many workers, and the number of samples."""
    entries, numbers = random_entries(Random(0)), count()
    requests.counts = Counter()
    with ExitStack() as stack:
        heartbeats = [stack.enter_context(Heartbeat(directory, "run")) for _ in range(workers)]
        journals = [Journal(directory, SUBJECT, heartbeat) for heartbeat in heartbeats]
        for journal in journals:
            for _ in range(SAMPLES_BEFORE):
                journal.append(_entry(entries, next(numbers)))
        measured = journals[:: max(1, workers // MEASURED)][:MEASURED]
        for journal in measured:
            journal.refresh()
        for journal in measured:
            entry = _entry(entries, next(numbers))
            with requests.counting():
                assert journal.claim([entry.key], 1) == [entry.key]
                journal.append(entry)
    return requests.counts, len(measured)


def _entry(entries: Iterator[Entry], number: int) -> Entry:
    return replace(next(islice(entries, 1)), key=f"{number:016x}", prompt=f"{number:032x}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the requests of one sample by kind, for every number of workers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workers", default="1,8,64,512", help="numbers of workers (default: 1,8,64,512)")
    args = parser.parse_args(arguments)
    kinds = ("open", "list", "state", "remove", "rename", "create")
    requests = Requests()
    print(f"{'workers':>8}" + "".join(f"{kind:>9}" for kind in (*kinds, "all")))
    for workers in map(int, args.workers.split(",")):
        with tempfile.TemporaryDirectory(prefix="journal-claims-") as name:
            counts, samples = measure(workers, Path(name, "journal"), requests)
        figures = [counts[kind] / samples for kind in kinds]
        print(f"{workers:>8}" + "".join(f"{figure:>9.1f}" for figure in (*figures, sum(figures))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
