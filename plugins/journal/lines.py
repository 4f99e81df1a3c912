"""The lines of a journal: their content, their encoding with a checksum, and the files that hold them, which readers
read again and again while workers append to them.

Records are stored as ASCII JSON, which is checked against the record's types when it is read.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
import re
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated, Any, NoReturn, TypeVar

import msgspec

from longctx.fixtures.atomic_files import sync_directory, write_all
from longctx.fixtures.records import Likelihood, Outcome, StoredRecord
from longctx.fixtures.seeding import stable_hash
from longctx.fixtures.versions import LIKELIHOOD
from longctx.plugins.journal.file_system import journal_error

_Record = TypeVar("_Record", bound=msgspec.Struct)
_Content = TypeVar("_Content")
_Line = TypeVar("_Line", "Entry", "LikelihoodEntry")
# Two threads that build decoders of one record at once can crash the process.
_building = threading.Lock()

# A sample's key is the name of its claim's file.
KEY = re.compile(r"[0-9A-Za-z_-]{1,128}")
SampleKey = Annotated[str, msgspec.Meta(pattern=rf"\A{KEY.pattern}\Z")]
SUBJECT = "subject.json"
SUBJECT_KEY_BYTES = 12
CHECKSUM = re.compile(rb',"crc32":"([0-9a-f]{8})"\}')
CHECKSUM_BYTES = len(',"crc32":"01234567"}')
SUFFIX = ".jsonl"
# Large enough that reading a large file is no matter of system calls.
BUFFER_BYTES = 1 << 18
CHECKSUM_LINE = b',"crc32":"%08x"}\n'


def sample_key(samples: str, version: str, seed: int, task: str, length: int, index: int) -> str:
    """Return a sample's key in the journal.

    `samples` is the fingerprint of everything samples are made from (`samples_fingerprint`), `version`
    that of the sample's case (`Case.version`).
    """
    return f"{stable_hash(samples, version, seed, task, length, index):016x}"


def likelihood_key(key: str) -> str:
    """Return the key of the likelihood of a sample's gold answer, given the sample's own key."""
    return f"{stable_hash('likelihood', LIKELIHOOD, key):016x}"


class Subject(StoredRecord, frozen=True, kw_only=True):
    """The model that answered, and how it was run."""

    model: str
    fingerprint: str
    execution: Mapping[str, str]
    """Settings of the engine that can change answers: engine, version, dtype, attention and so on."""

    @property
    def key(self) -> str:
        """The name of the subject's directory: a hash of fingerprint and execution, 24 hex digits.

        The model's name is not part of it. One checkpoint under two paths shares its results, and two checkpoints
        under one name do not.
        """
        text = json.dumps([self.fingerprint, sorted(self.execution.items())])
        return hashlib.blake2b(text.encode(), digest_size=SUBJECT_KEY_BYTES).hexdigest()


class Entry(StoredRecord, frozen=True, kw_only=True, rename={"key": "element"}):
    key: SampleKey
    """The key of the sample's identity (`sample_key`)."""
    prompt: str
    """The key of the model's input: a hash of token ids and decoding parameters, in hex."""
    case: str
    """The id of the sample's case."""
    index: Annotated[int, msgspec.Meta(ge=0)]
    outcome: Outcome

    @property
    def score(self) -> float:
        return self.outcome.score.value


class LikelihoodEntry(StoredRecord, frozen=True, kw_only=True, rename={"key": "likelihood_of"}):
    """The likelihood of one sample's gold answer."""

    key: SampleKey
    """The key of the sample's likelihood (`likelihood_key`)."""
    case: str
    index: Annotated[int, msgspec.Meta(ge=0)]
    likelihood: Likelihood


class Facts(StoredRecord, frozen=True, kw_only=True):
    """A worker's description of its engine."""

    facts: Mapping[str, Any]


class FailedCase(StoredRecord, frozen=True, kw_only=True, rename={"case": "failed"}):
    """A case that ended with an error in one run."""

    case: str
    reason: str
    run: str


class LostClaim(StoredRecord, frozen=True, kw_only=True, rename={"key": "lost"}):
    """A sample whose worker died in one run before it had a result."""

    key: str
    run: str
    worker: str = ""
    """The dead worker's name. Several workers may write of one death."""


Line = Entry | LikelihoodEntry | Facts | FailedCase | LostClaim
# Almost all lines are entries, so these come first.
KINDS: tuple[type[Line], ...] = (Entry, LikelihoodEntry, Facts, FailedCase, LostClaim)


def encode_line(line: Line) -> bytes:
    """Return a line with its checksum and newline; raises ValueError for content that no reader would accept."""
    body = encode_record(line).removesuffix(b"}")
    return body + CHECKSUM_LINE % zlib.crc32(body)


def decode_line(data: bytes) -> Line | None:
    """Return the content of a line; None if it is damaged or is no line of a journal."""
    # Git and editors of Windows write other line ends.
    data = data.rstrip(b"\r\n")
    body, checksum = data[:-CHECKSUM_BYTES], CHECKSUM.fullmatch(data[-CHECKSUM_BYTES:])
    if checksum is None or int(checksum[1], 16) != zlib.crc32(body):
        return None
    return next((line for kind in KINDS if (line := decode_record(body + b"}", kind)) is not None), None)


@functools.cache
def _decoder(kind: type[_Record]) -> msgspec.json.Decoder[_Record]:
    """Return the decoder of a record. Building it takes longer than using it, and is done by one thread at a time."""
    with _building:
        return msgspec.json.Decoder(kind)


def encode_record(record: msgspec.Struct, *, indent: int | None = None) -> bytes:
    """Return a record as JSON; raises ValueError for a field of the wrong type or out of range."""
    content = msgspec.to_builtins(record)
    # Construction checks nothing, and a reader would skip the record.
    _decoder(type(record))
    msgspec.convert(content, type(record))
    separators = (",", ":") if indent is None else None
    return json.dumps(content, allow_nan=False, indent=indent, separators=separators).encode("ascii")


def decode_record(data: bytes, kind: type[_Record]) -> _Record | None:
    """Return the record that `encode_record` wrote; None for any other bytes."""
    if not data.isascii():
        return None
    try:
        record: _Record = _decoder(kind).decode(data)
        return record
    except (msgspec.ValidationError, RecursionError):
        return None
    except msgspec.DecodeError:
        # An answer may contain half of a surrogate pair. JSON can escape that, but msgspec's parser refuses it.
        try:
            return msgspec.convert(json.loads(data, parse_constant=_refuse), kind)
        except (ValueError, RecursionError):
            return None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


class LineFile:
    """A file that only this process appends to; the first line creates it."""

    def __init__(self, path: Path):
        self.path = path
        self._descriptor: int | None = None
        self._torn = False
        """True if the file may end in the middle of a line."""

    @property
    def is_open(self) -> bool:
        """True if lines were appended and the file has not been deleted since."""
        return self._descriptor is not None and os.fstat(self._descriptor).st_nlink > 0

    def append(self, line: bytes) -> int:
        """Append a line so that it survives a power loss, and return its offset; raise OSError."""
        if self._descriptor is not None and not self.is_open:
            # Nobody would ever read the lines of a deleted file.
            self.close()
        if self._descriptor is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o666)
            # An earlier process may have used the same name, and died while it wrote.
            self._torn = os.fstat(self._descriptor).st_size > 0
            sync_directory(self.path.parent)
        descriptor = self._descriptor
        end = os.fstat(descriptor).st_size
        try:
            # The newline separates the line from the rest of a failed write.
            write_all(descriptor, b"\n" * self._torn + line)
            os.fsync(descriptor)
        except OSError:
            # The next line starts with a newline, which ends the part that was written.
            self._torn = True
            raise
        offset = end + self._torn
        self._torn = False
        return offset

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None


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
        try:
            for name in self._changed_files(thorough):
                self._read(name)
        except OSError as error:
            raise journal_error("read", self.folder, error) from error

    def has_result(self, worker: str, key: str) -> bool:
        """Return True if a worker has finished a sample, after a look at its file; raises JournalError."""
        try:
            self._read(worker + SUFFIX)
        except OSError as error:
            raise journal_error("read", self.folder, error) from error
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
    def unreadable_lines(self) -> int:
        """The number of damaged or unknown lines, which are skipped."""
        return sum(file.unreadable_lines for file in self._files.values())

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
