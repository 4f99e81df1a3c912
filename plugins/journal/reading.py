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
    decode_head,
    decode_line,
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


@dataclass(slots=True, kw_only=True)
class _FileState:
    """The content of one worker's file, as far as it was read."""

    offset: int = 0
    """The end of the last line that was read."""
    stamp: tuple[int, int] = (-1, 0)
    """The file's size and time of change when it was read."""
    entries: list[IndexedEntry] = field(default_factory=list)
    likelihoods: list[tuple[int, LikelihoodEntry]] = field(default_factory=list)
    """With the offsets of their lines."""
    facts: list[dict[str, Any]] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    lost_claims: set[tuple[str, str]] = field(default_factory=set)
    """The keys of samples and the workers that died over them."""
    unreadable_lines: int = 0


class SubjectReader:
    """The lines of all workers of one subject.

    Of several results for one sample or prompt, all readers choose the first one in the first file by name, in any
    order of reading.
    """

    def __init__(self, folder: Path, run: str | None, own_file: str | None):
        self.folder = folder
        self.run = run
        self.own_file = own_file
        """The file that this process writes and therefore does not read."""
        self.entries: dict[str, IndexedEntry] = {}
        self.entries_by_prompt: dict[str, IndexedEntry] = {}
        self.likelihoods: dict[str, LikelihoodEntry] = {}
        self._likelihood_positions: dict[str, tuple[str, int]] = {}
        self._files: dict[str, _FileState] = {}

    def refresh(self, *, thorough: bool) -> int:
        """Read new lines and return the number of new samples; raises JournalError if that is not possible.

        Opens only files whose size or time of change differs; with `thorough` it opens all files, because a network
        file system guarantees to show the changes of other machines only after a file was opened.
        """
        before = len(self.entries)
        shrank = False
        try:
            for name in self._changed_files(thorough):
                shrank |= self._read(name, self._files.setdefault(name, _FileState()))
        except OSError as error:
            raise journal_error("read", self.folder, error) from error
        if shrank:
            self._rebuild_index()
        return max(0, len(self.entries) - before)

    def read_file(self, name: str) -> None:
        """Read the new lines of one file, if it exists; raises JournalError if that is not possible."""
        try:
            shrank = self._read(name, self._files.setdefault(name, _FileState()))
        except OSError as error:
            raise journal_error("read", self.folder, error) from error
        if shrank:
            self._rebuild_index()

    @property
    def file_count(self) -> int:
        """The number of files known so far."""
        return len(self._files)

    def add(self, offset: int, line: Line) -> None:
        """Add a line that this process has written to its own file."""
        assert self.own_file is not None
        self._add(self.own_file, self._files.setdefault(self.own_file, _FileState()), offset, line)

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
        return [facts for file in self._sorted_files() for facts in file.facts]

    @property
    def failures(self) -> dict[str, str]:
        failures: dict[str, str] = {}
        for file in self._sorted_files():
            failures = {**file.failures, **failures}
        return failures

    @property
    def lost_claims(self) -> Counter[str]:
        lost = set().union(*(file.lost_claims for file in self._files.values()))
        return Counter(key for key, _ in lost)

    @property
    def unreadable_lines(self) -> int:
        return sum(file.unreadable_lines for file in self._files.values())

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

    def _read(self, name: str, state: _FileState) -> bool:
        """Read a file from the last position on; return True if it had to be read again from its start."""
        shrank = False
        try:
            with (self.folder / name).open("rb", buffering=BUFFER_BYTES) as file:
                stamp = _stamp(os.fstat(file.fileno()))
                if stamp == state.stamp:
                    return False
                file.seek(max(0, state.offset - 1))
                # In a file that was truncated and has grown again, no line may start at the last position.
                if state.offset and file.read(1) != b"\n":
                    file.seek(0)
                    self._files[name] = state = _FileState()
                    shrank = True
                state.stamp = stamp
                for line in complete_lines(file):
                    if (head := decode_head(line)) is not None:
                        self._add_entry(state, IndexedEntry(*head, name, state.offset))
                    elif (content := decode_line(line)) is not None:
                        self._add(name, state, state.offset, content)
                    elif line.strip():
                        state.unreadable_lines += 1
                    state.offset += len(line)
        except OSError as error:
            # The file was deleted in the meantime, on this machine or on the file server.
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
        return shrank

    def _add(self, name: str, state: _FileState, offset: int, line: Line) -> None:
        match line:
            case Entry():
                score, generation = line.outcome.score, line.outcome.generation
                entry = IndexedEntry(
                    line.key, line.prompt, sys.intern(line.case), score.value, generation.computed_tokens, name, offset
                )
                self._add_entry(state, entry)
            case LikelihoodEntry():
                state.likelihoods.append((offset, line))
                self._index_likelihood((name, offset), line)
            case Facts():
                state.facts.append(dict(line.facts))
            case FailedCase() if line.run == self.run:
                state.failures.setdefault(line.case, line.reason)
            case LostClaim() if line.run == self.run:
                state.lost_claims.add((line.key, line.worker))

    def _add_entry(self, state: _FileState, entry: IndexedEntry) -> None:
        state.entries.append(entry)
        self._index(entry)

    def _index(self, entry: IndexedEntry) -> None:
        # Almost all entries are the first ones of their keys.
        known = self.entries.setdefault(entry.key, entry)
        if known is not entry and entry.position < known.position:
            self.entries[entry.key] = entry
        known = self.entries_by_prompt.setdefault(entry.prompt, entry)
        if known is not entry and entry.position < known.position:
            self.entries_by_prompt[entry.prompt] = entry

    def _index_likelihood(self, position: tuple[str, int], entry: LikelihoodEntry) -> None:
        if position <= self._likelihood_positions.setdefault(entry.key, position):
            self._likelihood_positions[entry.key] = position
            self.likelihoods[entry.key] = entry

    def _rebuild_index(self) -> None:
        for index in (self.entries, self.entries_by_prompt, self.likelihoods, self._likelihood_positions):
            index.clear()
        for name, file in self._files.items():
            for entry in file.entries:
                self._index(entry)
            for offset, likelihood in file.likelihoods:
                self._index_likelihood((name, offset), likelihood)

    def _sorted_files(self) -> list[_FileState]:
        return [self._files[name] for name in sorted(self._files)]


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns
