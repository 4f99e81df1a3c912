"""The journal of one subject: results, claims on samples in progress, and this worker's own file.

Beside the subjects it has the replies of LLM judges, for all of them: `DIR/judge/judge-<name>.jsonl`.
"""

import contextlib
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from longctx.fixtures.atomic_files import sync_directory, write_all, write_file
from longctx.fixtures.records import StoredRecord
from longctx.plugins.journal.file_system import JournalError, journal_errors, make_directory
from longctx.plugins.journal.heartbeat import WORKER_NAME, Heartbeat
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
    decode_record,
    encode_line,
    encode_record,
)
from longctx.plugins.journal.reading import SUFFIX, ReadLines, SubjectReader

CLAIMS = "claims"
MOST_NAME_BYTES = 256
# So many claims of other workers, drawn at random, are checked at a time for the death of their worker.
CHECKED_CLAIMS = 3
JUDGE_REPLIES = "judge"
JUDGE_PREFIX = "judge-"


def _read_claim(path: Path) -> str | None:
    """Return the worker of a claim; None if it has no complete name. Raises OSError."""
    with path.open("rb") as file:
        name, end, _ = file.read(MOST_NAME_BYTES).decode("ascii", errors="replace").partition("\n")
    return name if end and WORKER_NAME.fullmatch(name) else None


class Journal(SubjectReader):
    """The results of one subject in `directory`, shared with all workers on it.

    Without a `heartbeat` the journal is read-only: it creates nothing, and a missing directory is an empty journal.
    Nothing is read before the first `refresh` or `claim`. Only one thread of one process may use it. Methods raise
    JournalError if the directory cannot be read or written; results that were appended before are safe. `run` is the
    id of the run whose failures and lost claims a read-only journal shows.

    A claim is a file in `claims`, named by the sample's key, that contains the worker's name. The file system creates a
    file for one process only, so a sample has one worker. A claim stays after its result, which a network file system
    may show late to others; the last worker removes all. If two workers remove the claim of a dead one at once, both
    may answer the sample; all readers choose the same of the two results.
    """

    def __init__(
        self, directory: Path, subject: Subject, heartbeat: Heartbeat | None = None, *, run: str | None = None
    ):
        own_file = None if heartbeat is None else heartbeat.name + SUFFIX
        super().__init__(directory / subject.key, run if heartbeat is None else heartbeat.run, own_file)
        self.directory = directory
        self.subject = subject
        self.heartbeat = heartbeat
        self._recorded_facts: Mapping[str, Any] | None = None
        self._has_read = False
        self._lines = LineFile(self.folder / str(own_file))
        self._claims = self.folder / CLAIMS
        self._held: set[str] = set()
        """The keys of the samples in progress that this worker has claimed."""
        if heartbeat is not None:
            heartbeat.when_last.append(self._remove_all_claims)
            with self._writing():
                self._prepare()

    def refresh(self, *, thorough: bool = False) -> None:
        self._has_read = True
        super().refresh(thorough=thorough)

    def claim(self, keys: Sequence[str], at_most: int) -> list[str]:
        """Claim the first free samples in order, and those of dead workers, and return their keys.

        They are fewer than `at_most` if no more are free.
        """
        with self._writing():
            if not self._has_read:
                self.refresh()
            wanted = [key for key in keys if not self.is_finished(key)]
            try:
                claimed = self._claim_first(wanted, at_most)
            except FileNotFoundError:
                self._prepare()
                claimed = self._claim_first(wanted, at_most)
            if self.lost_claims:
                # Other workers have recorded earlier deaths over these samples.
                self.refresh(thorough=True)
        return claimed

    def append(self, entry: Entry | LikelihoodEntry) -> None:
        """Write a result so that it survives a power loss; raise ValueError for a wrong field. The claim stays."""
        self._append(entry)
        self._held.discard(entry.key)

    def record_facts(self, facts: Mapping[str, Any]) -> None:
        """Write a description of this worker's engine; later calls do so only if it has changed."""
        if facts != self._recorded_facts:
            self._append(Facts(facts=facts))
            self._recorded_facts = facts

    def record_failure(self, case: str, reason: str) -> None:
        self._append(FailedCase(case=case, reason=reason, run=str(self.run)))

    def release(self, key: str) -> None:
        """Remove this worker's claim without a result; does nothing if there is none."""
        if key not in self._held:
            return
        self._held.discard(key)
        path = self._claims / key
        with contextlib.suppress(OSError):
            # If this worker was suspended for longer than a lease, another one may own the claim now.
            owner = _read_claim(path)
            if owner is None or f"{owner}{SUFFIX}" == self.own_file:
                path.unlink()

    def release_all(self) -> None:
        """Release all samples in progress, as far as possible."""
        for key in tuple(self._held):
            self.release(key)

    def close(self) -> None:
        self.release_all()
        self._lines.close()

    def _claim_first(self, keys: Sequence[str], at_most: int) -> list[str]:
        existing = set(os.listdir(self._claims))
        others = [key for key in keys if key in existing and key not in self._held]
        checked = random.sample(others, min(CHECKED_CLAIMS, len(others)))
        claimed: list[str] = []
        for key in keys:
            if len(claimed) >= at_most:
                break
            if key in self._held:
                continue
            is_free = key not in existing or (key in checked and self._free_if_dead(key))
            if is_free and self._claim_one(key):
                claimed.append(key)
        return claimed

    def _claim_one(self, key: str) -> bool:
        """Claim a sample; returns False if another worker was faster. Raises OSError."""
        assert self.heartbeat is not None
        try:
            descriptor = os.open(self._claims / key, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            return False
        # Even if the name does not fit on the disk, the file is there and must be released.
        self._held.add(key)
        try:
            write_all(descriptor, f"{self.heartbeat.name}\n".encode("ascii"))
        finally:
            os.close(descriptor)
        return True

    def _free_if_dead(self, key: str) -> bool:
        """Remove the claim of a dead worker without a result; returns True if the sample is free now."""
        path, worker = self._claims / key, self.heartbeat
        assert worker is not None
        try:
            touched = path.stat().st_mtime_ns
            owner = _read_claim(path)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        if owner is None:
            # Its worker is still writing its name, or died right after it created the file.
            if not worker.is_silent(f"{CLAIMS}/{key}", touched):
                return False
        elif not worker.is_dead(owner) or self.has_result(owner, key):
            return False
        elif worker.run_of(owner) == worker.run:
            # Whoever finds the sample free must find this death in the journal too.
            self._append(LostClaim(key=key, run=worker.run, worker=owner))
        path.unlink(missing_ok=True)
        return True

    def _remove_all_claims(self) -> None:
        """Remove the claims of all workers, as far as possible, when none of them is left."""
        with contextlib.suppress(OSError):
            for path in self._claims.iterdir():
                if KEY.fullmatch(path.name):
                    path.unlink(missing_ok=True)

    def _append(self, line: Line) -> None:
        data = encode_line(line)
        with self._writing():
            if not self._lines.is_open:
                # This is the first line, or the subject's directory was deleted.
                self._prepare()
            offset = self._lines.append(data)
        written = decode_line(data)
        assert written is not None
        self.add(offset, written)

    def _prepare(self) -> None:
        """Create the subject's directory; several workers may do so at once."""
        make_directory(self._claims)
        path = self.folder / SUBJECT
        try:
            known = decode_record(path.read_bytes(), Subject)
        except FileNotFoundError:
            known = None
        if known is None:
            write_file(path, encode_record(self.subject, indent=1) + b"\n")
            sync_directory(self.directory)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Release all claims if the file system fails, and raise a JournalError."""
        if self.heartbeat is None:
            raise RuntimeError("Journal: read-only; only one with a Heartbeat may be written")
        try:
            with journal_errors("write", self.directory):
                yield
        except JournalError:
            self.release_all()
            raise


class _Reply(StoredRecord, frozen=True, kw_only=True):
    key: str
    reply: str


_decode_reply = partial(decode_record, kind=_Reply)


class JudgeReplies:
    """A store of judge replies by key in the journal `directory`; any number of threads may use it.

    `name` is unique to this process, such as a heartbeat's name. Only this process writes the file of that name; it
    reads the files of all others when a key is missing. Of several replies for one key the first that was read counts.
    Methods raise JournalError if the directory cannot be read or written.
    """

    def __init__(self, directory: Path, name: str):
        self.directory = directory
        self.folder = directory / JUDGE_REPLIES
        self._own_file = LineFile(self.folder / f"{JUDGE_PREFIX}{name}{SUFFIX}")
        self._replies: dict[str, str] = {}
        self._files: dict[Path, ReadLines] = {}
        self._lock = Lock()

    def get(self, key: str) -> str | None:
        """Return the reply for `key`; None if no process has written one yet."""
        with self._lock:
            if key not in self._replies:
                self._read_files()
            return self._replies.get(key)

    def put(self, key: str, reply: str) -> None:
        """Store a reply so that it survives a power loss; an existing reply for `key` stays."""
        with self._lock:
            if key in self._replies:
                return
            with journal_errors("write", self.folder):
                self._own_file.append(encode_record(_Reply(key=key, reply=reply)) + b"\n")
            self._replies[key] = reply

    def close(self) -> None:
        """Close this process's file; may be called twice."""
        with self._lock:
            self._own_file.close()

    def _read_files(self) -> None:
        own = self._own_file.path if self._own_file.is_open else None
        with journal_errors("read", self.folder), contextlib.suppress(FileNotFoundError):
            for path in sorted(self.folder.glob(f"{JUDGE_PREFIX}*{SUFFIX}")):
                if path != own:
                    with path.open("rb") as file:
                        for _, reply in self._files.setdefault(path, ReadLines()).read(file, _decode_reply):
                            self._replies.setdefault(reply.key, reply.reply)
