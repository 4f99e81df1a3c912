"""The lines of a journal: their content, and their encoding with a checksum."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from fixtures.records import Likelihood, Outcome, StoredRecord
from fixtures.records.results import Count, Fraction
from fixtures.seeding import stable_hash
from fixtures.versions import LIKELIHOOD
from plugins.journal.codec import decode_record, encode_record

# A sample's key is the name of its claim's file.
KEY = re.compile(r"[0-9A-Za-z_-]{1,128}")
SampleKey = Annotated[str, msgspec.Meta(pattern=rf"\A{KEY.pattern}\Z")]
SUBJECT_KEY_BYTES = 12
# Version 0.1 keyed results by a hash of the engine's source text; these are its hashes, by engine and version.
UNVERSIONED_SOURCES = {("hf", "1"): "57f930e16f29e2a1", ("openai", "1"): "326c3d922483c0d2"}
CHECKSUM = re.compile(rb',"crc32":"([0-9a-f]{8})"\}')
CHECKSUM_BYTES = len(',"crc32":"01234567"}')
CHECKSUM_START, CHECKSUM_END = b',"crc32":"', b'"}\n'
ENTRY_START = b'{"element":'


def sample_key(samples: str, version: str, seed: int, task: str, length: int, index: int) -> str:
    """Return a sample's key in the journal.

    `samples` is the fingerprint of everything samples are made from (`fixtures.cases.samples_fingerprint`), `version`
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
    """The checkpoint's fingerprint."""
    execution: Mapping[str, str]
    """Settings of the engine that can change answers: engine, version, dtype, attention and so on."""

    @property
    def key(self) -> str:
        """The name of the subject's directory: a hash of fingerprint and execution, 24 hex digits.

        The model's name is not part of it. One checkpoint under two paths shares its results, and two checkpoints
        under one name do not.
        """
        return _subject_key(self.fingerprint, self.execution)

    @property
    def unversioned_key(self) -> str | None:
        """The key under which version 0.1 stored the same results; None if it had no such engine."""
        source = UNVERSIONED_SOURCES.get((self.execution.get("engine", ""), self.execution.get("version", "")))
        if source is None:
            return None
        execution = {name: value for name, value in self.execution.items() if name != "version"}
        return _subject_key(self.fingerprint, {**execution, "code": source})


def _subject_key(fingerprint: str, execution: Mapping[str, str]) -> str:
    text = json.dumps([fingerprint, sorted(execution.items())])
    return hashlib.blake2b(text.encode(), digest_size=SUBJECT_KEY_BYTES).hexdigest()


class Entry(StoredRecord, frozen=True, kw_only=True, rename={"key": "element"}):
    """One scored sample."""

    key: SampleKey
    """The key of the sample's identity (`sample_key`)."""
    prompt: str
    """The key of the model's input: a hash of token ids and decoding parameters, in hex."""
    case: str
    """The id of the sample's case."""
    index: Annotated[int, msgspec.Meta(ge=0)]
    """The sample's number in its case."""
    outcome: Outcome


_NONE = msgspec.Raw(b"null")


class ScoreHead(StoredRecord, frozen=True, kw_only=True):
    """A `Score` whose other fields are not decoded."""

    value: Fraction
    parts: msgspec.Raw = _NONE
    failure: msgspec.Raw = _NONE


class GenerationHead(StoredRecord, frozen=True, kw_only=True):
    """A `Generation` whose other fields are not decoded."""

    computed_tokens: Count | None
    text: msgspec.Raw
    prompt_tokens: msgspec.Raw
    generated_tokens: msgspec.Raw
    reused_tokens: msgspec.Raw
    finish: msgspec.Raw
    seconds: msgspec.Raw


class OutcomeHead(StoredRecord, frozen=True, kw_only=True):
    """An `Outcome` whose other fields are not decoded."""

    score: ScoreHead
    generation: GenerationHead
    index: msgspec.Raw
    references: msgspec.Raw
    depths: msgspec.Raw
    excerpt: msgspec.Raw = _NONE


class EntryHead(StoredRecord, frozen=True, kw_only=True, rename={"key": "element"}):
    """An `Entry` of which only the fields that a journal keeps in memory are decoded.

    This takes a third of the time. Texts are only skipped, so it is for lines whose checksum is right.
    """

    key: SampleKey
    prompt: str
    case: str
    outcome: OutcomeHead
    index: msgspec.Raw
    crc32: msgspec.Raw


class LikelihoodEntry(StoredRecord, frozen=True, kw_only=True, rename={"key": "likelihood_of"}):
    """The likelihood of one sample's gold answer."""

    key: SampleKey
    """The key of the sample's likelihood (`likelihood_key`)."""
    case: str
    """The id of the sample's case."""
    index: Annotated[int, msgspec.Meta(ge=0)]
    """The sample's number in its case."""
    likelihood: Likelihood


class Facts(StoredRecord, frozen=True, kw_only=True):
    """A worker's description of its engine."""

    facts: Mapping[str, Any]


class Failure(StoredRecord, frozen=True, kw_only=True, rename={"case": "failed"}):
    """A case that ended with an error in one run."""

    case: str
    reason: str
    run: str


class LostClaim(StoredRecord, frozen=True, kw_only=True, rename={"key": "lost"}):
    """A sample whose worker died in one run before it had a result."""

    key: str
    run: str


Line = Entry | LikelihoodEntry | Facts | Failure | LostClaim
# Almost all lines are entries, so these come first.
KINDS: tuple[type[Line], ...] = (Entry, LikelihoodEntry, Facts, Failure, LostClaim)


def encode_line(line: Line) -> bytes:
    """Return a line with its checksum and newline; raises ValueError for content that no reader would accept."""
    body = encode_record(line).removesuffix(b"}")
    return body + b',"crc32":"%08x"}\n' % zlib.crc32(body)


def decode_line(data: bytes) -> Line | None:
    """Return the content of a line; None if it is damaged or is no line of a journal."""
    record = _without_checksum(data.removesuffix(b"\n"))
    if record is None:
        return None
    return next((line for kind in KINDS if (line := decode_record(record, kind)) is not None), None)


def decode_head(data: bytes) -> EntryHead | Line | None:
    """Return the content of a line as `decode_line` does, but of an entry with a checksum only its head."""
    if data.startswith(ENTRY_START) and _has_checksum(data) and (head := decode_record(data, EntryHead)) is not None:
        return head
    return decode_line(data)


def _has_checksum(data: bytes) -> bool:
    """Return True if the line ends with its checksum and a newline, without copying it."""
    digits, end = data[-11:-3], data[-3:]
    if data[-21:-11] != CHECKSUM_START or end != CHECKSUM_END:
        return False
    return b"%08x" % zlib.crc32(memoryview(data)[:-21]) == digits


def _without_checksum(data: bytes) -> bytes | None:
    """Return the record of a line; None if the checksum is wrong. Version 0.1 wrote lines without a checksum."""
    body, end = data[:-CHECKSUM_BYTES], data[-CHECKSUM_BYTES:]
    checksum = CHECKSUM.fullmatch(end)
    if checksum is None:
        return data
    return body + b"}" if int(checksum[1], 16) == zlib.crc32(body) else None


def encode_subject(subject: Subject) -> bytes:
    """Return the content of `subject.json`."""
    return encode_record(subject, indent=1) + b"\n"


def decode_subject(data: bytes) -> Subject | None:
    """Return the subject that `encode_subject` wrote; None for any other bytes."""
    return decode_record(data, Subject)
