"""The journal of one subject: what is finished, what is free, and a place for new results."""

from __future__ import annotations

import contextlib
import functools
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fixtures.atomic_files import sync_directory, write_all, write_file
from plugins.journal.claims import CLAIMS, Claims
from plugins.journal.errors import JournalError, journal_error
from plugins.journal.heartbeat import Heartbeat
from plugins.journal.lines import (
    ELEMENT,
    Entry,
    Facts,
    Failure,
    Line,
    Loss,
    Subject,
    decode,
    decode_subject,
    encode,
    encode_subject,
)
from plugins.journal.reading import SUFFIX, Reading

SUBJECT = "subject.json"


class Journal:
    """Results of one subject in `directory`, shared with everybody who works on it.

    Without `presence` it only reads: it creates nothing, and a directory that does not exist is an
    empty journal. Nothing is read before the first `refresh` or `take`. One process, one thread uses
    it; methods raise JournalError where the directory fails, and what was appended before is kept.
    `run` is the id of the run whose failures and losses a reader sees.
    """

    def __init__(self, directory: Path, subject: Subject, presence: Heartbeat | None = None, *, run: str | None = None):
        self.directory = directory
        self.subject = subject
        self.presence = presence
        self.folder = _folder(directory, subject, adopt=presence is not None)
        own = None if presence is None else presence.name + SUFFIX
        self._reading = Reading(self.folder, run if presence is None else presence.run, own)
        self._claims = None if presence is None else Claims(self.folder, presence, self._note_loss)
        self._descriptor: int | None = None
        self._torn = False
        self._facts_noted = False
        if presence is not None:
            with self._writing():
                self._prepare()

    @property
    def entries(self) -> dict[str, Entry]:
        """Results by element."""
        return self._reading.entries

    @property
    def generations(self) -> dict[str, Entry]:
        """Results by prompt key: the same prompt under another identity need not be answered again."""
        return self._reading.generations

    @property
    def facts(self) -> list[dict[str, Any]]:
        """What workers noted of their engines, in the order of their files' names."""
        return self._reading.facts

    @property
    def failures(self) -> dict[str, str]:
        """Cases that ended in an error in this run, with the reason; a new run tries them again."""
        return self._reading.failures

    @property
    def lost(self) -> Counter[str]:
        """How often a worker of this run died over an element."""
        return self._reading.lost

    @property
    def unreadable(self) -> int:
        """How many lines were skipped because they say nothing that a journal says."""
        return self._reading.unreadable

    def refresh(self, *, thorough: bool = False) -> int:
        """Read the lines appended since the last call and return the number of new elements.

        `thorough` opens every file, also those that look unchanged: a network file system shows the last lines of
        another machine only to readers that open the file after they were written.
        """
        if self.presence is None:
            # A worker of this run may have renamed the directory that an unversioned release left.
            self.folder = self._reading.folder = _folder(self.directory, self.subject, adopt=False)
        return self._reading.refresh(thorough=thorough)

    def take(self, elements: Sequence[str], at_most: int) -> list[str]:
        """Claim the first free elements, in order; fewer than `at_most` where not so many are free."""
        claims = self._writer()
        unfit = [element for element in elements if not ELEMENT.fullmatch(element)]
        if unfit:
            raise ValueError(f"element {unfit[0]!r}: not a key")
        taken: list[str] = []
        with self._writing():
            self.refresh()
            free = self._free([element for element in elements if element not in self.entries])
            while len(taken) < at_most:
                claimed: list[str] = []
                while len(taken) + len(claimed) < at_most and (element := next(free, None)) is not None:
                    if claims.take(element):
                        claimed.append(element)
                if not claimed:
                    break
                # A result is in the journal before its claim is removed: one that is not there now, after
                # our claim, is nobody's.
                self._reading.refresh(thorough=True)
                for element in claimed:
                    if element in self.entries:
                        claims.give_back(element)
                    else:
                        taken.append(element)
        return taken

    def append(self, entry: Entry) -> None:
        """Write a result so that it survives a loss of power, then give its claim back.

        ValueError for what cannot be read back: not a number, an element that is no key.
        """
        self._append(entry)
        self._writer().give_back(entry.element)

    def note_facts(self, facts: Mapping[str, Any]) -> None:
        """Write down what engine this worker has; once, later calls change nothing."""
        if not self._facts_noted:
            self._append(Facts(facts=facts))
            self._facts_noted = True

    def fail(self, case: str, reason: str) -> None:
        """Write down that a case ended in an error in this run."""
        self._append(Failure(failed=case, reason=reason, run=self._run))

    def give_back(self, element: str) -> None:
        """Remove this worker's claim without a result; harmless where there is none."""
        self._writer().give_back(element)

    def give_all_back(self) -> None:
        """Remove all of this worker's claims; harmless for a reader and in a forked process."""
        if self._claims is not None and self._claims.presence.pid == os.getpid():
            self._claims.give_all_back()

    def close(self) -> None:
        """Give all claims back; harmless twice, for a reader, and in a forked process."""
        self.give_all_back()
        if self._claims is not None and self._claims.presence.pid == os.getpid():
            self._let_go()

    @property
    def _run(self) -> str:
        return self._writer().presence.run

    def _writer(self) -> Claims:
        """What a worker writes with; RuntimeError for a reader and in a forked process."""
        if self._claims is None or self._claims.presence.pid != os.getpid():
            raise RuntimeError("Journal: only the process that gave it a Presence writes")
        return self._claims

    def _free(self, elements: Sequence[str]) -> Iterator[str]:
        """Elements that nobody works on, as one listing of the claims shows them."""
        claims = self._writer()
        try:
            listed = claims.listed()
        except FileNotFoundError:
            self._prepare()
            listed = set()
        is_gone = functools.cache(claims.presence.is_gone)
        for element in elements:
            if element not in claims.held and (element not in listed or claims.is_free(element, is_gone)):
                yield element

    def _note_loss(self, element: str) -> None:
        self._append(Loss(lost=element, run=self._run))

    def _append(self, line: Line) -> None:
        self._writer()
        data = encode(line)
        with self._writing():
            descriptor = self._opened()
            start = os.fstat(descriptor).st_size
            try:
                # The newline ends what a failed write left, so that nothing is glued to it.
                write_all(descriptor, b"\n" * self._torn + data)
                os.fsync(descriptor)
            except OSError:
                self._cut(descriptor, start)
                raise
        written = decode(data)
        assert written is not None
        self._reading.add(start + self._torn, written)
        self._torn = False

    def _opened(self) -> int:
        """A descriptor of this worker's file, which is created with the first line."""
        if self._descriptor is not None and os.fstat(self._descriptor).st_nlink == 0:
            # Deleted under a living worker: what is appended there nobody would ever see.
            self._let_go()
        if self._descriptor is None:
            path = self.folder / f"{self._writer().presence.name}{SUFFIX}"
            self._prepare()
            self._descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o666)
            sync_directory(self.folder)
        return self._descriptor

    def _cut(self, descriptor: int, size: int) -> None:
        """Take a line that was not written whole away again, or remember that it is there."""
        was_torn, self._torn = self._torn, True
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, size)
            self._torn = was_torn or os.fstat(descriptor).st_size != size

    def _let_go(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None
        self._torn = False

    def _prepare(self) -> None:
        """Make the subject's directory; many workers may do so at once."""
        (self.folder / CLAIMS).mkdir(parents=True, exist_ok=True)
        path = self.folder / SUBJECT
        try:
            known = decode_subject(path.read_bytes())
        except FileNotFoundError:
            known = None
        if known is None:
            write_file(path, encode_subject(self.subject))
            sync_directory(self.directory)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Turns a failure of the file system into a JournalError, after giving all claims back."""
        try:
            yield
        except (OSError, JournalError) as error:
            if self._claims is not None:
                self._claims.give_all_back()
            if isinstance(error, JournalError):
                raise
            raise journal_error("write", self.directory, error) from error


def _folder(directory: Path, subject: Subject, *, adopt: bool) -> Path:
    """Return the subject's directory; with `adopt`, first move the one that an unversioned release kept to its name."""
    folder = directory / subject.key
    former = None if subject.unversioned_key is None else directory / subject.unversioned_key
    if former is None or folder.exists() or not former.is_dir():
        return folder
    if not adopt:
        return former
    # Another worker may have moved it already; whoever still appends to a file of it keeps the same file.
    with contextlib.suppress(OSError):
        former.rename(folder)
        write_file(folder / SUBJECT, encode_subject(subject))
    return folder
