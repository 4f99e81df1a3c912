"""The lines of a journal: their content, their encoding with a checksum, and the files that hold them.

Records are stored as ASCII JSON, which is checked against the record's types when it is read.
"""

import functools
import hashlib
import json
import os
import re
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import msgspec

from longctx.fixtures.atomic_files import sync_directory, write_all
from longctx.fixtures.records import Likelihood, Outcome, StoredRecord
from longctx.fixtures.seeding import stable_hash
from longctx.fixtures.versions import LIKELIHOOD

_Record = TypeVar("_Record", bound=msgspec.Struct)
# Two threads that build decoders of one record at once can crash the process.
_building = threading.Lock()

# A sample's key is the name of its claim's file.
KEY = re.compile(r"[0-9A-Za-z_-]{1,128}")
SampleKey = Annotated[str, msgspec.Meta(pattern=rf"\A{KEY.pattern}\Z")]
SUBJECT = "subject.json"
SUBJECT_KEY_BYTES = 12
CHECKSUM = re.compile(rb',"crc32":"([0-9a-f]{8})"\}')
CHECKSUM_BYTES = len(',"crc32":"01234567"}')
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
