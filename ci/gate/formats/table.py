"""CSV, or lines of JSON, with the columns `id` and `score`; besides `task`, `cluster`, `answer` and a few others."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from longctx.ci.gate.records import SCORE, Content, ResultFile, ResultsError, ScoredSample, text_hash, texts_of

REQUIRED = frozenset({"id", "score"})


class TableRow(msgspec.Struct, kw_only=True):
    """A row; further columns are ignored."""

    id: str | int
    score: object
    task: str | int | None = None
    length: int | str | None = None
    """In tokens."""
    cluster: str | int | None = None
    """The text that several samples are about."""
    prompt: str | None = None
    expected: object = None
    answer: str | int | float | bool | None = None


def matches(content: Content) -> bool:
    """Return True for a table with the columns that a comparison needs."""
    return content.keys >= REQUIRED and (bool(content.lines) or content.value is None or is_csv(content))


def is_csv(content: Content) -> bool:
    """Return True for a file whose first line names its columns."""
    return not content.lines and content.data.lstrip()[:1] not in (b"{", b"[")


def read(content: Content) -> ResultFile:
    """Read all rows."""
    rows: Iterable[TableRow] = content.rows(TableRow) if content.lines else _csv_rows(content)
    return ResultFile(path=content.path, samples=tuple(samples_of(rows, content.path)), notes=content.notes)


def _csv_rows(content: Content) -> Iterator[TableRow]:
    reader = csv.reader(io.StringIO(content.data.decode("utf-8-sig"), newline=""), strict=True)
    try:
        names = [name.strip() for name in next(reader)]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ResultsError(f"{content.path}: has several columns {twice[0]!r}; keep one of them")
        for values in reader:
            if values and len(values) != len(names):
                where = f"{content.path}, line {reader.line_num}"
                raise ResultsError(f"{where}: {len(values)} columns, not {len(names)}; write a value for each")
            if values:
                yield msgspec.convert(dict(zip(names, values, strict=True)), TableRow, strict=False)
    except csv.Error as error:
        raise ResultsError(f"{content.path}, line {reader.line_num}: no CSV ({error}); write it again") from error


def samples_of(rows: Iterable[TableRow], path: Path) -> Iterator[ScoredSample]:
    """Yield the samples of rows; the task of those without one is empty."""
    for row in rows:
        length = str(row.length or 0)
        if not length.isascii() or not length.isdecimal():
            raise ResultsError(f"{path}: length is {row.length!r}; write a number of tokens")
        yield ScoredSample(
            task="" if row.task is None else str(row.task),
            id=str(row.id),
            scores={SCORE: row.score},
            length=int(length),
            prompt=text_hash(row.prompt) if row.prompt else "",
            unit=f"cluster {row.cluster}" if row.cluster not in (None, "") else "",
            answer=None if row.answer is None else str(row.answer),
            expected=texts_of(row.expected),
        )
