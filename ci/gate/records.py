"""The records that all formats of results are read into."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from longctx.fixtures.records import Case

SCORE = "score"
"""The name of the metric in files that have one only."""


class ResultsError(ValueError):
    """Results that cannot be read or compared; one line with the file, the value, what is accepted and what to do."""


class Row(msgspec.Struct, kw_only=True):
    """A scored answer, by the names of a table's columns."""

    id: str | int
    score: object = None
    task: str | int | None = None
    length: int | str | None = None
    """In tokens."""
    cluster: str | int | None = None
    """The text that several samples are about."""
    document: str = ""
    prompt: object = None
    expected: object = None
    answer: object = None
    repeat: int | str = ""


AnyRow = TypeVar("AnyRow", bound=msgspec.Struct)
TABLE = {name: name for name in ("id", "score", "task", "length", "cluster", "prompt", "expected", "answer")}


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
    value: Any
    """The JSON value of the whole file, or that of its first row; of CSV, an object with its columns as keys."""
    values: Iterable[tuple[str, object]] | None = None
    """Where a row stands, and its value, for all rows of the file; None for a file of one value."""
    notes: tuple[str, ...] = ()

    def records(self, kind: type[AnyRow]) -> Iterator[AnyRow]:
        """Yield all rows as records of a kind; raise ResultsError for the first that is none."""
        for place, value in self.values or ():
            yield self.converted(value, kind, place)

    def rows(self, columns: Mapping[str, str] = TABLE) -> Iterator[tuple[Row, dict[str, Any]]]:
        """Yield all rows, read by the keys of these columns, and with all that the file has of them."""
        for place, value in self.values or ():
            if not isinstance(value, dict):
                raise ResultsError(f"{self.path}{place}: is no object with the keys of a sample; write it again")
            values = {column: value[key] for column, key in columns.items() if key in value}
            yield self.converted(values, Row, place), value

    def converted(self, value: object, kind: type[Any], place: str = "") -> Any:
        try:
            return msgspec.convert(value, kind, strict=False)
        except ValueError as error:
            raise ResultsError(f"{self.path}{place}: cannot be read ({error}); write it again") from error

    def result(self, samples: Iterable[ScoredSample], *, stamp: str = "", notes: Iterable[str] = ()) -> ResultFile:
        """Return what a format has read of this file."""
        return ResultFile(path=self.path, samples=tuple(samples), stamp=stamp, notes=(*self.notes, *notes))


def text_hash(value: object) -> str:
    """Return a short hash of a text or of JSON data."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def texts_of(value: object) -> tuple[str, ...]:
    """Return the expected answers of a file, one text or a list of them, as texts."""
    if isinstance(value, str):
        return (value,)
    if value is None:
        return ()
    values = value if isinstance(value, list | tuple) else [value]
    return tuple(one if isinstance(one, str) else json.dumps(one, default=str) for one in values)
