"""What a journal says, and how it stands in a line: ASCII JSON, ended by a newline."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from fixtures.records import Outcome, from_json, to_json
from fixtures.seeding import stable_hash

# Elements become names of files.
ELEMENT = re.compile(r"[0-9A-Za-z_-]{1,128}")
KEY_BYTES = 12
# Version 0.1 keyed results by a hash of the engine's source text; these are its hashes, by engine and version.
UNVERSIONED_SOURCES = {("hf", "1"): "57f930e16f29e2a1", ("openai", "1"): "326c3d922483c0d2"}


def element_name(samples: str, version: str, seed: int, task: str, length: int, index: int) -> str:
    """Return a sample's key in the journal.

    `samples` is the fingerprint of everything samples are made from (`fixtures.cases.samples_fingerprint`), `version`
    that of the sample's case (`Case.version`).
    """
    return f"{stable_hash(samples, version, seed, task, length, index):016x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What was asked to answer. `execution` is how: engine, dtype, attention and the like."""

    model: str
    fingerprint: str
    execution: Mapping[str, str]

    @property
    def key(self) -> str:
        """Name of the subject's directory: a hash of fingerprint and execution, 24 hex digits.

        The model's name has no part in it: the same checkpoint under another path shares its results,
        two checkpoints of one name never do, and workers that start together choose the same directory.
        """
        return _subject_key(self.fingerprint, self.execution)

    @property
    def unversioned_key(self) -> str | None:
        """The key under which the release before explicit versions kept the same results; None where it had none."""
        source = UNVERSIONED_SOURCES.get((self.execution.get("engine", ""), self.execution.get("version", "")))
        if source is None:
            return None
        execution = {name: value for name, value in self.execution.items() if name != "version"}
        return _subject_key(self.fingerprint, {**execution, "code": source})


def _subject_key(fingerprint: str, execution: Mapping[str, str]) -> str:
    text = json.dumps([fingerprint, sorted(execution.items())])
    return hashlib.blake2b(text.encode(), digest_size=KEY_BYTES).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One finished sample. `element` is the key of its identity, `prompt` that of what the model read
    (token ids and decoding parameters), both hexadecimal; `index` is its place in its case."""

    element: str
    prompt: str
    case: str
    index: int
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a worker noted of its engine."""

    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A case that ended in an error, in one run."""

    failed: str
    reason: str
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """An element whose worker died over it, in one run."""

    lost: str
    run: str


Line = Entry | Facts | Failure | Loss
KINDS: dict[str, type[Line]] = {"element": Entry, "facts": Facts, "failed": Failure, "lost": Loss}


def encode(line: Line) -> bytes:
    """The line's bytes. ValueError for what JSON cannot say (NaN) or a reader would not take."""
    data = json.dumps(to_json(line), allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"
    if decode(data) is None:
        raise ValueError(f"{type(line).__name__}: a field is of the wrong type")
    return data


def decode(data: bytes) -> Line | None:
    """The inverse of `encode`; None for bytes that are no such line, whatever they are."""
    try:
        found = json.loads(data.decode("ascii"), parse_constant=_refuse)
        kind = next(KINDS[name] for name in KINDS if name in found)
        line = from_json(kind, found)
        return line if _is_sound(line) else None
    # A line is foreign data: any shape can come, also a list of a million brackets.
    except (ValueError, TypeError, AttributeError, LookupError, StopIteration, RecursionError):
        return None


def encode_subject(subject: Subject) -> bytes:
    """The bytes of subject.json."""
    return json.dumps(to_json(subject), indent=1).encode("ascii") + b"\n"


def decode_subject(data: bytes) -> Subject | None:
    """The inverse of `encode_subject`; None for bytes that are no subject."""
    try:
        subject = from_json(Subject, json.loads(data.decode("ascii")))
        texts = (subject.model, subject.fingerprint, *subject.execution.keys(), *subject.execution.values())
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
        return None
    return subject if all(isinstance(text, str) for text in texts) else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _is_sound(line: Line) -> bool:
    """Whether the types are what the records promise; `from_json` looks at names only."""
    match line:
        case Facts():
            return isinstance(line.facts, dict)
        case Failure():
            return _are(str, line.failed, line.reason, line.run)
        case Loss():
            return _are(str, line.lost, line.run)
    outcome, score, generation = line.outcome, line.outcome.score, line.outcome.generation
    tokens = (
        generation.prompt_tokens,
        generation.generated_tokens,
        generation.computed_tokens,
        generation.reused_tokens,
    )
    return (
        _are(str, line.element, line.prompt, line.case, generation.text, generation.finish, *outcome.references)
        and ELEMENT.fullmatch(line.element) is not None
        and _are(int, line.index, outcome.index, *tokens)
        and all(map(_is_number, (score.value, generation.seconds, *score.parts.values(), *outcome.depths)))
        and (score.failure is None or _are(str, score.failure))
        and (outcome.excerpt is None or _are(str, *to_json(outcome.excerpt).values()))
    )


def _are(kind: type, *values: Any) -> bool:
    return all(type(value) is kind for value in values)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
