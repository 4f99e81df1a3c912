"""The lines of a journal: their content, and their encoding with a checksum."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import zlib
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from fixtures.records import Likelihood, Outcome, StoredRecord
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
CHECKSUM_LINE = b',"crc32":"%08x"}\n'
CHECKSUM_LINE_BYTES = CHECKSUM_BYTES + 1
# The beginning of an entry as `encode_line` writes it. A quote within a text is preceded by a backslash.
ENTRY_HEAD = re.compile(
    rb'\{"element":"([0-9A-Za-z_-]{1,128})","prompt":"([^"\\]*)","case":"([^"\\]*)","index":\d+,'
    rb'"outcome":\{"index":\d+,"score":\{"value":([-+.0-9e]+)[,}]'
)
COMPUTED_TOKENS = b',"computed_tokens":'
# The fields of an entry that a journal keeps in memory: key, prompt, case, score and computed tokens.
EntryHead = tuple[str, str, str, float, int | None]


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
    return body + CHECKSUM_LINE % zlib.crc32(body)


def decode_line(data: bytes) -> Line | None:
    """Return the content of a line; None if it is damaged or is no line of a journal."""
    record = _without_checksum(data.removesuffix(b"\n"))
    if record is None:
        return None
    return next((line for kind in KINDS if (line := decode_record(record, kind)) is not None), None)


def decode_head(data: bytes) -> EntryHead | None:
    """Return the head of an entry whose checksum is right; None for all other lines.

    A tenth of the work of `decode_line`: a right checksum says that `encode_line` wrote the line, so the fields need
    only be located.
    """
    head = ENTRY_HEAD.match(data)
    if head is None or data[-CHECKSUM_LINE_BYTES:] != CHECKSUM_LINE % zlib.crc32(data[:-CHECKSUM_LINE_BYTES]):
        return None
    # The last one in the line: after it come only fields whose names do not depend on the sample.
    start = data.rindex(COMPUTED_TOKENS) + len(COMPUTED_TOKENS)
    tokens = data[start : data.index(b",", start)]
    key, prompt, case, score = head.groups()
    # A case has hundreds of samples, and its id need be in memory only once.
    return (
        key.decode(),
        prompt.decode(),
        sys.intern(case.decode()),
        float(score),
        None if tokens == b"null" else int(tokens),
    )


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
