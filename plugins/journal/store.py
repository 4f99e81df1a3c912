"""The journal of one subject: results, claims on samples in progress, and this worker's own file."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longctx.fixtures.atomic_files import sync_directory, write_file
from longctx.plugins.journal.claims import CLAIMS, FINISHED_SECONDS, Claims
from longctx.plugins.journal.file_system import JournalError, journal_error, make_directory
from longctx.plugins.journal.heartbeat import Heartbeat
from longctx.plugins.journal.lines import (
    KEY,
    SUBJECT,
    Entry,
    Facts,
    FailedCase,
    LikelihoodEntry,
    Line,
    LineFile,
    LostClaim,
    Subject,
    decode_line,
    decode_subject,
    encode_line,
    encode_subject,
)
from longctx.plugins.journal.reading import SUFFIX, IndexedEntry, SubjectReader

# A worker that claims samples has read the journal within this time.
VIEW_SECONDS = FINISHED_SECONDS / 2
# A call of `catch_up` pays for looking at so many files.
FILES_PER_CALL = 16


@dataclass(frozen=True, slots=True)
class _Writer:
    """The files that only this worker writes."""

    claims: Claims
    lines: LineFile

    @property
    def run(self) -> str:
        return self.claims.heartbeat.run

    @property
    def is_own_process(self) -> bool:
        """False in a process that was forked from the worker."""
        return self.claims.heartbeat.pid == os.getpid()


class Journal:
    """The results of one subject in `directory`, shared with all workers on it.

    Without a `heartbeat` the journal is read-only: it creates nothing, and a missing directory is an empty journal.
    Nothing is read before the first `refresh` or `claim`. Only one thread of one process may use it. Methods raise
    JournalError if the directory cannot be read or written; results that were appended before are safe. `run` is the
    id of the run whose failures and lost claims a read-only journal shows.
    """

    def __init__(
        self, directory: Path, subject: Subject, heartbeat: Heartbeat | None = None, *, run: str | None = None
    ):
        self.directory = directory
        self.subject = subject
        self.heartbeat = heartbeat
        self.folder = directory / subject.key
        self._recorded_facts: Mapping[str, Any] | None = None
        self._viewed: float | None = None
        """The time at which the last refresh of all files began, by the heartbeat's clock."""
        self._files_paid = 0
        self._writer: _Writer | None = None
        if heartbeat is None:
            self._reader = SubjectReader(self.folder, run=run, own_file=None)
            return
        name = heartbeat.name + SUFFIX
        self._reader = SubjectReader(self.folder, run=heartbeat.run, own_file=name)
        claims = Claims(self.folder, heartbeat, self._record_lost_claim)
        self._writer = _Writer(claims=claims, lines=LineFile(self.folder / name))
        with self._writing():
            self._prepare()

    @property
    def entries(self) -> Mapping[str, IndexedEntry]:
        """The finished samples by key, in short; `load` reads the rest."""
        return self._reader.entries

    @property
    def entries_by_prompt(self) -> Mapping[str, IndexedEntry]:
        """The finished samples by prompt key: two samples with the same prompt have the same answer."""
        return self._reader.entries_by_prompt

    @property
    def likelihoods(self) -> Mapping[str, LikelihoodEntry]:
        """The likelihoods of gold answers by key (`likelihood_key`)."""
        return self._reader.likelihoods

    @property
    def facts(self) -> list[dict[str, Any]]:
        """The workers' descriptions of their engines, in the order of their files' names."""
        return self._reader.facts

    @property
    def failures(self) -> dict[str, str]:
        """The errors of this run by case; a new run tries these cases again."""
        return self._reader.failures

    @property
    def lost_claims(self) -> Counter[str]:
        """The number of workers of this run that died while they worked on a sample, by the sample's key."""
        return self._reader.lost_claims

    @property
    def unreadable_lines(self) -> int:
        """The number of damaged or unknown lines, which are skipped."""
        return self._reader.unreadable_lines

    def refresh(self, *, thorough: bool = False) -> int:
        """Read the lines appended since the last call; returns the number of new samples.

        `thorough` opens all files, even those that look unchanged: a network file system shows the last lines of
        another machine only to readers that open the file after they were written.
        """
        self._files_paid = 0
        viewed = None if self.heartbeat is None else self.heartbeat.lease.clock()
        new_samples = self._reader.refresh(thorough=thorough)
        self._viewed = viewed
        return new_samples

    def catch_up(self) -> int:
        """Refresh, if a few calls have paid for looking at so many files; returns the number of new samples.

        A worker calls it after every batch. So its requests to the file system do not grow with the number of workers.
        """
        self._files_paid += FILES_PER_CALL
        return self.refresh() if self._files_paid >= self._reader.file_count else 0

    def load(self, entries: Iterable[IndexedEntry]) -> list[Entry]:
        """Read finished samples in full, in the given order."""
        return self._reader.load(entries)

    def claim(self, keys: Sequence[str], at_most: int) -> list[str]:
        """Claim the first free samples in order and return their keys; fewer than `at_most` if no more are free."""
        claims = self._require_writer().claims
        invalid = [key for key in keys if not KEY.fullmatch(key)]
        if invalid:
            raise ValueError(f"key {invalid[0]!r}: use 1 to 128 letters, digits, _ or -")
        claimed: list[str] = []
        with self._writing():
            claims.remove_expired()
            if not self._has_current_view():
                self.refresh()
            wanted = [key for key in keys if not self._is_finished(key)]
            try:
                free = claims.free_keys(wanted, self._has_result)
            except FileNotFoundError:
                self._prepare()
                free = claims.free_keys(wanted, self._has_result)
            while len(claimed) < at_most and (key := next(free, None)) is not None:
                if claims.claim(key):
                    claimed.append(key)
            if self.lost_claims or not self._has_current_view():
                # Other workers have recorded earlier deaths over these samples. Or this process was stopped meanwhile,
                # and others may have finished samples and removed their claims.
                self.refresh(thorough=True)
                for key in filter(self._is_finished, claimed):
                    claims.release(key)
        return [key for key in claimed if not self._is_finished(key)]

    def append(self, entry: Entry | LikelihoodEntry) -> None:
        """Write a result so that it survives a power loss, and mark the sample's claim as finished.

        Writes nothing if this worker was stopped for so long that another one has claimed the sample, or has answered
        it. Raises ValueError for a field of the wrong type or out of range.
        """
        claims = self._require_writer().claims
        with self._writing():
            is_superseded = claims.is_lost(entry.key)
            if is_superseded is None:
                # Nobody holds the claim any more: another worker may have answered the sample, and closed.
                self.refresh(thorough=True)
                is_superseded = self._is_finished(entry.key)
        if is_superseded:
            claims.release(entry.key)
        else:
            self._append(entry)
            claims.finish(entry.key)

    def record_facts(self, facts: Mapping[str, Any]) -> None:
        """Write a description of this worker's engine; later calls do so only if it has changed."""
        if facts != self._recorded_facts:
            self._append(Facts(facts=facts))
            self._recorded_facts = facts

    def record_failure(self, case: str, reason: str) -> None:
        """Write that a case ended with an error in this run."""
        self._append(FailedCase(case=case, reason=reason, run=self._require_writer().run))

    def release(self, key: str) -> None:
        """Remove this worker's claim without a result; does nothing if there is none."""
        self._require_writer().claims.release(key)

    def release_all(self) -> None:
        """Release all samples in progress; does nothing in a read-only journal or a forked process."""
        if self._writer is not None and self._writer.is_own_process:
            self._writer.claims.release_all()

    def close(self) -> None:
        """Release all claims and close this worker's file.

        May be called twice; does nothing in a read-only journal or a forked process.
        """
        self.release_all()
        if self._writer is not None and self._writer.is_own_process:
            self._writer.lines.close()

    def _is_finished(self, key: str) -> bool:
        return key in self.entries or key in self.likelihoods

    def _has_current_view(self) -> bool:
        """Return True if every result that was written before the last refresh has been read or is still claimed."""
        clock = self._require_writer().claims.heartbeat.lease.clock
        return self._viewed is not None and clock() - self._viewed < VIEW_SECONDS

    def _require_writer(self) -> _Writer:
        if self._writer is None or not self._writer.is_own_process:
            raise RuntimeError("Journal: read-only; only a process with a Heartbeat of its own may write")
        return self._writer

    def _has_result(self, worker: str, key: str) -> bool:
        """Return True if a worker has finished a sample."""
        self._reader.read_file(worker + SUFFIX)
        return self._is_finished(key)

    def _record_lost_claim(self, key: str, worker: str) -> None:
        self._append(LostClaim(key=key, run=self._require_writer().run, worker=worker))

    def _append(self, line: Line) -> None:
        writer = self._require_writer()
        data = encode_line(line)
        with self._writing():
            if not writer.lines.is_open:
                # This is the first line, or the subject's directory was deleted.
                self._prepare()
            offset = writer.lines.append(data)
        written = decode_line(data)
        assert written is not None
        self._reader.add(offset, written)

    def _prepare(self) -> None:
        """Create the subject's directory; several workers may do so at once."""
        make_directory(self.folder / CLAIMS)
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
        """Release all claims if the file system fails, and raise a JournalError."""
        try:
            yield
        except (OSError, JournalError) as error:
            if self._writer is not None:
                self._writer.claims.release_all()
            if isinstance(error, JournalError):
                raise
            raise journal_error("write", self.directory, error) from error
