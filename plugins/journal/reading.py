"""Incremental reading of all files of a subject while workers append to them."""

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

from longctx.plugins.journal.file_system import journal_errors
from longctx.plugins.journal.lines import Entry, Facts, FailedCase, LikelihoodEntry, Line, LostClaim, decode_line

SUFFIX = ".jsonl"
_Content = TypeVar("_Content")
_Line = TypeVar("_Line", Entry, LikelihoodEntry)
# Large enough that reading a large file is no matter of system calls.
BUFFER_BYTES = 1 << 18


@dataclass(slots=True)
class ReadLines:
    """The part of a growing file that was read."""

    offset: int = 0
    """The end of the last line that was read."""
    lines: int = 0
    unreadable_lines: int = 0
    first_unreadable: int = 0
    """The number of the first unreadable line."""

    def read(self, file: IO[bytes], decode: Callable[[bytes], _Content | None]) -> Iterator[tuple[int, _Content]]:
        """Yield the content and the offset of every further line, but not of one that is still being written."""
        file.seek(self.offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            content, offset = decode(line), self.offset
            self.offset += len(line)
            self.lines += 1
            if content is not None:
                yield offset, content
            elif line.strip():
                self.unreadable_lines += 1
                self.first_unreadable = self.first_unreadable or self.lines

    def damage(self, path: Path, remedy: str) -> list[str]:
        """Return a line about a file that has unreadable lines; nothing about another one."""
        count = f"{self.unreadable_lines} of {self.lines} lines cannot be read, first line {self.first_unreadable}"
        return [f"{path}: {count}; {remedy}"] if self.unreadable_lines else []


@dataclass(slots=True)
class _FileState(ReadLines):
    """The state of reading one worker's file, beside its results."""

    stamp: tuple[int, int] = (-1, 0)
    """The file's size and time of change when it was read."""
    facts: list[dict[str, Any]] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    lost_claims: set[tuple[str, str]] = field(default_factory=set)
    """The keys of samples and the workers that died over them."""


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
        self.entries: dict[str, Entry] = {}
        """The finished samples by key."""
        self.entries_by_prompt: dict[str, Entry] = {}
        """The finished samples by prompt key: two samples with the same prompt have the same answer."""
        self.likelihoods: dict[str, LikelihoodEntry] = {}
        """The likelihoods of gold answers by key (`likelihood_key`)."""
        self._positions: dict[tuple[int, str], tuple[str, int]] = {}
        """The file and offset of every line in these three, by the id of its dict and its key there."""
        self._files: dict[str, _FileState] = {}

    def refresh(self, *, thorough: bool = False) -> None:
        """Read the lines appended since the last call.

        Opens only files whose size or time of change differs; with `thorough` it opens all files, because a network
        file system guarantees to show the changes of other machines only after a file was opened. Raises JournalError.
        """
        with journal_errors("read", self.folder):
            for name in self._changed_files(thorough):
                self._read(name)

    def has_result(self, worker: str, key: str) -> bool:
        """Return True if a worker has finished a sample, after a look at its file; raises JournalError."""
        with journal_errors("read", self.folder):
            self._read(worker + SUFFIX)
        return self.is_finished(key)

    def is_finished(self, key: str) -> bool:
        return key in self.entries or key in self.likelihoods

    def add(self, offset: int, line: Line) -> None:
        """Add a line that this process has written to its own file."""
        assert self.own_file is not None
        self._add(self.own_file, offset, line)

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
    def damage(self) -> list[str]:
        lines = list[str]()
        for name, file in sorted(self._files.items()):
            lines += file.damage(self.folder / name, "samples without another result are computed again")
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
        state = self._files.setdefault(name, _FileState())
        try:
            with (self.folder / name).open("rb", buffering=BUFFER_BYTES) as file:
                stamp = _stamp(os.fstat(file.fileno()))
                if stamp == state.stamp:
                    return
                state.stamp = stamp
                lines: Iterator[tuple[int, Line]] = state.read(file, decode_line)
                for offset, line in lines:
                    self._add(name, offset, line)
        except OSError as error:
            # The file was deleted in the meantime, on this machine or on the file server.
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise

    def _add(self, name: str, offset: int, line: Line) -> None:
        state = self._files.setdefault(name, _FileState())
        match line:
            case Entry():
                self._keep_first(self.entries, line.key, line, (name, offset))
                self._keep_first(self.entries_by_prompt, line.prompt, line, (name, offset))
            case LikelihoodEntry():
                self._keep_first(self.likelihoods, line.key, line, (name, offset))
            case Facts():
                state.facts.append(dict(line.facts))
            case FailedCase() if line.run == self.run:
                state.failures.setdefault(line.case, line.reason)
            case LostClaim() if line.run == self.run:
                state.lost_claims.add((line.key, line.worker))

    def _keep_first(self, index: dict[str, _Line], key: str, line: _Line, position: tuple[str, int]) -> None:
        """Set a key to a line, unless it has one at a smaller file name and offset."""
        if position <= self._positions.setdefault((id(index), key), position):
            self._positions[id(index), key] = position
            index[key] = line

    def _sorted_files(self) -> list[_FileState]:
        return [self._files[name] for name in sorted(self._files)]


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns
