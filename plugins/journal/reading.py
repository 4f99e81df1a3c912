"""Incremental reading of all files of a subject while workers append to them."""

from __future__ import annotations

import errno
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from longctx.plugins.journal.file_system import JournalError, journal_error
from longctx.plugins.journal.lines import (
    Entry,
    Facts,
    FailedCase,
    LikelihoodEntry,
    Line,
    LostClaim,
    complete_lines,
    decode_line,
    line_problem,
)

SUFFIX = ".jsonl"
# Large enough that reading a large file is no matter of system calls.
BUFFER_BYTES = 1 << 18


class IndexedEntry(msgspec.Struct, frozen=True, gc=False):
    """The part of an entry that stays in memory, and the position of the rest."""

    key: str
    prompt: str
    case: str
    score: float
    computed_tokens: int | None
    file: str
    offset: int

    @property
    def position(self) -> tuple[str, int]:
        """File name and offset; of two results for one sample, the one with the smaller position counts."""
        return self.file, self.offset


@dataclass(slots=True)
class _FileState:
    """What was read of one worker's file, beside its results."""

    offset: int = 0
    """The end of the last line that was read."""
    stamp: tuple[int, int] = (-1, 0)
    """The file's size and time of change when it was read."""
    facts: list[dict[str, Any]] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    lost_claims: set[tuple[str, str]] = field(default_factory=set)
    """The keys of samples and the workers that died over them."""
    lines: int = 0
    """The number of lines that were read."""
    unreadable_lines: int = 0
    first_problem: str = ""
    """The first unreadable line with its number, and what is wrong with it."""


class SubjectReader:
    """The lines of all workers of one subject.

    Of several results for one sample or prompt, all readers choose the first one in the first file by name, in any
    order of reading.
    """

    def __init__(self, folder: Path, run: str | None = None, own_file: str | None = None):
        self.folder = folder
        self.run = run
        """The id of the run whose failures and lost claims are shown."""
        self.own_file = own_file
        """The file that this process writes and therefore does not read."""
        self.entries: dict[str, IndexedEntry] = {}
        """The finished samples by key, in short; `load` reads the rest."""
        self.entries_by_prompt: dict[str, IndexedEntry] = {}
        """The finished samples by prompt key: two samples with the same prompt have the same answer."""
        self.likelihoods: dict[str, LikelihoodEntry] = {}
        """The likelihoods of gold answers by key (`likelihood_key`)."""
        self._likelihood_positions: dict[str, tuple[str, int]] = {}
        self._files: dict[str, _FileState] = {}

    def refresh(self, *, thorough: bool = False) -> int:
        """Read the lines appended since the last call; returns the number of new samples.

        Opens only files whose size or time of change differs; with `thorough` it opens all files, because a network
        file system guarantees to show the changes of other machines only after a file was opened. Raises JournalError.
        """
        before = len(self.entries)
        try:
            for name in self._changed_files(thorough):
                self._read(name)
        except OSError as error:
            raise journal_error("read", self.folder, error) from error
        return len(self.entries) - before

    def has_result(self, worker: str, key: str) -> bool:
        """Return True if a worker has finished a sample, after a look at its file; raises JournalError."""
        try:
            self._read(worker + SUFFIX)
        except OSError as error:
            raise journal_error("read", self.folder, error) from error
        return self.is_finished(key)

    def is_finished(self, key: str) -> bool:
        """Return True if a result for this key was read."""
        return key in self.entries or key in self.likelihoods

    def add(self, offset: int, line: Line) -> None:
        """Add a line that this process has written to its own file."""
        assert self.own_file is not None
        self._add(self.own_file, offset, line)

    def load(self, entries: Iterable[IndexedEntry]) -> list[Entry]:
        """Read entries in full, in the given order; raises JournalError if a file has been deleted or changed."""
        wanted = list(entries)
        loaded: dict[tuple[str, int], Entry] = {}
        try:
            for name, positions in groupby(sorted(entry.position for entry in wanted), key=lambda place: place[0]):
                with (self.folder / name).open("rb") as file:
                    for position in positions:
                        file.seek(position[1])
                        line = decode_line(file.readline())
                        if isinstance(line, Entry):
                            loaded[position] = line
        except OSError as error:
            raise journal_error("read", self.folder, error) from error
        for entry in wanted:
            if entry.position not in loaded or loaded[entry.position].key != entry.key:
                raise JournalError(
                    f"--journal: {self.folder / entry.file} has changed at byte {entry.offset}, which no worker does; "
                    "start again to compute the missing samples"
                )
        return [loaded[entry.position] for entry in wanted]

    @property
    def facts(self) -> list[dict[str, Any]]:
        """The workers' descriptions of their engines, in the order of their files' names."""
        return [facts for file in self._sorted_files() for facts in file.facts]

    @property
    def failures(self) -> dict[str, str]:
        """The errors of this run by case; a new run tries these cases again."""
        failures: dict[str, str] = {}
        for file in self._sorted_files():
            failures = {**file.failures, **failures}
        return failures

    @property
    def lost_claims(self) -> Counter[str]:
        """The number of workers of this run that died while they worked on a sample, by the sample's key."""
        lost = set().union(*(file.lost_claims for file in self._files.values()))
        return Counter(key for key, _ in lost)

    @property
    def unreadable_lines(self) -> int:
        """The number of damaged or unknown lines, which are skipped."""
        return sum(file.unreadable_lines for file in self._files.values())

    @property
    def damage(self) -> list[str]:
        """One line for every file with unreadable lines."""
        lines = []
        for name, file in sorted(self._files.items()):
            if file.unreadable_lines:
                count = f"{file.unreadable_lines} of {file.lines} lines cannot be read, first {file.first_problem}"
                lines.append(f"{self.folder / name}: {count}; samples without another result are computed again")
        return lines

    def _changed_files(self, thorough: bool) -> Iterator[str]:
        try:
            listing = os.scandir(self.folder)
        except FileNotFoundError:
            return
        with listing:
            for item in listing:
                if item.name == self.own_file or not item.name.endswith(SUFFIX) or not item.is_file():
                    continue
                known = self._files.get(item.name)
                try:
                    if thorough or known is None or known.stamp != _stamp(item.stat()):
                        yield item.name
                except FileNotFoundError:
                    continue

    def _read(self, name: str) -> None:
        """Read a file from the last position on."""
        state = self._files.setdefault(name, _FileState())
        try:
            with (self.folder / name).open("rb", buffering=BUFFER_BYTES) as file:
                stamp = _stamp(os.fstat(file.fileno()))
                if stamp == state.stamp:
                    return
                file.seek(state.offset)
                state.stamp = stamp
                for line in complete_lines(file):
                    state.lines += 1
                    content = decode_line(line)
                    if content is not None:
                        self._add(name, state.offset, content)
                    elif line.strip():
                        state.unreadable_lines += 1
                        state.first_problem = state.first_problem or f"line {state.lines} ({line_problem(line)})"
                    state.offset += len(line)
        except OSError as error:
            # The file was deleted in the meantime, on this machine or on the file server.
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise

    def _add(self, name: str, offset: int, line: Line) -> None:
        state = self._files.setdefault(name, _FileState())
        match line:
            case Entry():
                self._add_entry(name, offset, line)
            case LikelihoodEntry():
                position = (name, offset)
                if position <= self._likelihood_positions.setdefault(line.key, position):
                    self._likelihood_positions[line.key] = position
                    self.likelihoods[line.key] = line
            case Facts():
                state.facts.append(dict(line.facts))
            case FailedCase() if line.run == self.run:
                state.failures.setdefault(line.case, line.reason)
            case LostClaim() if line.run == self.run:
                state.lost_claims.add((line.key, line.worker))

    def _add_entry(self, name: str, offset: int, line: Entry) -> None:
        entry = IndexedEntry(
            key=line.key,
            prompt=line.prompt,
            # A case has hundreds of samples, and its id need be in memory only once.
            case=sys.intern(line.case),
            score=line.outcome.score.value,
            computed_tokens=line.outcome.generation.computed_tokens,
            file=name,
            offset=offset,
        )
        for index, key in ((self.entries, entry.key), (self.entries_by_prompt, entry.prompt)):
            if entry.position <= index.setdefault(key, entry).position:
                index[key] = entry

    def _sorted_files(self) -> list[_FileState]:
        return [self._files[name] for name in sorted(self._files)]


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns
