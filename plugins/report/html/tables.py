"""Tables of coloured cells: scores by task and length, by depth and length, and differences from a baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from longctx.fixtures.records.report import JsonReport
from longctx.plugins.report.formats import short_length

Document = Mapping[str, Any]
Scores = Mapping[str, float | None]
"""Scores by length, as in the document: the keys are strings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a table."""

    text: str = "-"
    style: str = "none"
    """The style classes of the cell, separated by spaces."""

    title: str = ""
    """The tooltip."""

    task: str = ""
    length: int | None = None
    """With the task, the case whose samples the cell links to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a table."""

    name: str
    cells: tuple[Cell, ...]
    kind: str = "task"
    """`task`, or `mean` for a mean over tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows over columns, under one heading."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def tested_lengths(document: JsonReport) -> list[int]:
    """Return the tested lengths in ascending order."""
    return sorted({case.length for case in document.cases})


def score_table(name: str, lengths: Iterable[int], rows: Iterable[Row]) -> Table:
    return Table(name=name, columns=tuple(map(short_length, lengths)), rows=tuple(rows))
