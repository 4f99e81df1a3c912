"""What all workers of a subject wrote, read as it grows."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plugins.journal.errors import journal_error
from plugins.journal.lines import Entry, Facts, Failure, Line, Loss, decode

SUFFIX = ".jsonl"
Place = tuple[str, int]


@dataclass(slots=True, kw_only=True)
class _File:
    """What was read of one worker's file, up to `offset`; `stamp` says how it looked then."""

    offset: int = 0
    stamp: tuple[int, int] = (-1, 0)
    entries: list[tuple[int, Entry]] = field(default_factory=list)
    facts: list[dict[str, Any]] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)
    unreadable: int = 0


class Reading:
    """Everything read so far of a subject's directory. `own` is the file that this worker writes itself.

    Of several results for one element, or for one prompt, the one in the first file by name counts, and
    in it the first: so all readers choose the same, in whatever order they came to know them.
    """

    def __init__(self, folder: Path, run: str | None, own: str | None):
        self.folder = folder
        self.run = run
        self.own = own
        self.entries: dict[str, Entry] = {}
        self.generations: dict[str, Entry] = {}
        self._files: dict[str, _File] = {}
        self._element_places: dict[str, Place] = {}
        self._prompt_places: dict[str, Place] = {}

    def refresh(self, *, thorough: bool) -> int:
        """Read what was appended; the number of new elements. JournalError where that is not allowed.

        A file is opened when its size or time changed; when `thorough`, always: a network file system
        promises to show what another machine wrote to those only who open the file after that.
        """
        before = len(self.entries)
        shrank = False
        try:
            for name in self._names(thorough):
                shrank |= self._read(name, self._files.setdefault(name, _File()))
        except OSError as error:
            raise journal_error("read", self.folder, error) from error
        if shrank:
            self._arrange_anew()
        return max(0, len(self.entries) - before)

    def add(self, place: int, line: Line) -> None:
        """A line that this worker wrote itself, at this offset of its file."""
        assert self.own is not None
        self._take_in(self.own, self._files.setdefault(self.own, _File()), place, line)

    @property
    def facts(self) -> list[dict[str, Any]]:
        return [facts for file in self._in_order() for facts in file.facts]

    @property
    def failures(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for file in self._in_order():
            found = {**file.failures, **found}
        return found

    @property
    def lost(self) -> Counter[str]:
        return sum((file.lost for file in self._in_order()), Counter())

    @property
    def unreadable(self) -> int:
        return sum(file.unreadable for file in self._files.values())

    def _names(self, thorough: bool) -> Iterator[str]:
        try:
            listing = os.scandir(self.folder)
        except FileNotFoundError:
            return
        with listing:
            for found in listing:
                name = found.name
                if name == self.own or not name.endswith(SUFFIX) or not found.is_file():
                    continue
                known = self._files.get(name)
                try:
                    if thorough or known is None or known.stamp != _stamp(found.stat()):
                        yield name
                except FileNotFoundError:
                    continue

    def _read(self, name: str, known: _File) -> bool:
        """Read a file from where it was left, whole lines only; whether it had to be read again from its start."""
        shrank = False
        try:
            with (self.folder / name).open("rb") as file:
                stamp = _stamp(os.fstat(file.fileno()))
                if stamp == known.stamp:
                    return False
                file.seek(max(0, known.offset - 1))
                # A file that was cut and has grown again may have no line begin where we stopped.
                if known.offset and file.read(1) != b"\n":
                    file.seek(0)
                    self._files[name] = known = _File()
                    shrank = True
                known.stamp = stamp
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._read_line(name, known, line)
                    known.offset += len(line)
        except OSError as error:
            # Deleted meanwhile, on this machine or on the file server.
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
        return shrank

    def _read_line(self, name: str, file: _File, data: bytes) -> None:
        line = decode(data)
        if line is not None:
            self._take_in(name, file, file.offset, line)
        elif data.strip():
            file.unreadable += 1

    def _take_in(self, name: str, file: _File, place: int, line: Line) -> None:
        match line:
            case Entry():
                file.entries.append((place, line))
                self._arrange((name, place), line)
            case Facts():
                file.facts.append(dict(line.facts))
            case Failure() if line.run == self.run:
                file.failures.setdefault(line.failed, line.reason)
            case Loss() if line.run == self.run:
                file.lost[line.lost] += 1

    def _arrange(self, place: Place, entry: Entry) -> None:
        if place <= self._element_places.get(entry.element, place):
            self._element_places[entry.element] = place
            self.entries[entry.element] = entry
        if place <= self._prompt_places.get(entry.prompt, place):
            self._prompt_places[entry.prompt] = place
            self.generations[entry.prompt] = entry

    def _arrange_anew(self) -> None:
        for arranged in (self.entries, self.generations, self._element_places, self._prompt_places):
            arranged.clear()
        for name, file in self._files.items():
            for place, entry in file.entries:
                self._arrange((name, place), entry)

    def _in_order(self) -> list[_File]:
        return [self._files[name] for name in sorted(self._files)]


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns
