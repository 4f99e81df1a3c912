"""The records that all formats of results are read into."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from longctx.fixtures.records import Case

Row = TypeVar("Row")
SCORE = "score"
"""The name of the metric in files that have one only."""


class ResultsError(ValueError):
    """Results that cannot be read or compared; one line with the file, the value, what is accepted and what to do."""


class ScoredSample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One answer of a model with its scores, as a file has them."""

    task: str
    id: str
    scores: Mapping[str, object]
    """The scores by metric. Values that are no numbers are refused once their metric is chosen."""
    main: str = ""
    """The metric that counts if none is chosen; empty if the format has no such metric."""
    length: int = 0
    """The length in tokens; 0 for a task that has none."""
    document: str = ""
    """The hash of what is asked, which identifies a sample better than its id; empty if the file has none."""
    prompt: str = ""
    """The hash of the input. Samples with other prompts are not compared; empty if the file has none."""
    unit: str = ""
    """The text that samples share, the same in all tasks; empty if the file does not tell."""
    answer: str | None = None
    expected: tuple[str, ...] = ()
    repeat: str = ""
    """The number of the attempt; the attempts at one sample are averaged."""
    score: float = 0.0
    """The score of the metric that is compared, 0 to 1, once it is chosen; the mean of all attempts."""
    case: Case | None = None
    """The case of a sample of this suite, whose index is the id; None for other programs' samples."""
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFile:
    """The samples of one file, or of a report's journal."""

    path: Path
    samples: tuple[ScoredSample, ...]
    stamp: str = ""
    """The time of the run in a form that sorts; empty if the file does not tell. The newest run of a task counts."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Content:
    """A file before its format is known."""

    path: Path
    kind: Literal["object", "lines", "table", "archive"]
    """One JSON value, lines of JSON, the rows of a table, or an archive."""
    data: bytes
    lines: tuple[bytes, ...] = ()
    """The lines of JSON; empty for all other files."""
    value: Any = None
    """The JSON value of the whole file, or that of its first line; of a table, its columns."""
    notes: tuple[str, ...] = ()

    @cached_property
    def keys(self) -> frozenset[str]:
        """The keys of the JSON object, or of that on the first line; the columns of a table."""
        return frozenset(self.value) if isinstance(self.value, dict) else frozenset()

    def rows(self, kind: type[Row]) -> Iterator[Row]:
        """Yield all lines as records of a kind; raise ResultsError for the first that is none."""
        decoder = msgspec.json.Decoder(kind, strict=False)
        for number, line in enumerate(self.lines, 1):
            try:
                try:
                    yield decoder.decode(line)
                except msgspec.ValidationError:
                    raise
                except msgspec.DecodeError:
                    # Python writes NaN and Infinity, which JSON does not have.
                    yield msgspec.convert(json.loads(line), kind, strict=False)
            except (ValueError, RecursionError) as error:
                raise ResultsError(f"{self.path}, line {number}: cannot be read ({error}); write it again") from error

    def result(self, samples: Iterable[ScoredSample], *, stamp: str = "", notes: Iterable[str] = ()) -> ResultFile:
        """Return what a format has read of this file."""
        return ResultFile(path=self.path, samples=tuple(samples), stamp=stamp, notes=(*self.notes, *notes))


def text_hash(value: object) -> str:
    """Return a short hash of a text or of JSON data."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def texts_of(value: object) -> tuple[str, ...]:
    """Return the expected answers of a file, one text or a list of them, as texts."""
    if value is None:
        return ()
    values = value if isinstance(value, list | tuple) else [value]
    return tuple(one if isinstance(one, str) else json.dumps(one, default=str) for one in values)
