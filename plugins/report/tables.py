"""What a topic shows in every format: a table of cells, and lines of text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Tone = Literal["", "good", "warning", "bad"]
RowKind = Literal["task", "mean", "total", "detail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a table."""

    text: str = "-"
    interval: str = ""
    """Both ends of the value's interval."""

    style: str = "none"
    """The page's style classes of the cell, separated by spaces."""

    title: str = ""
    """The tooltip."""

    task: str = ""
    length: int | None = None
    """With the task, the case whose samples the cell links to."""

    link: str = ""
    """The address of the page that the cell links to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a table."""

    name: str
    cells: tuple[Cell, ...]
    kind: RowKind = "task"
    """A task; a mean over tasks; a total, the mean over a whole suite; or a detail of the row above it."""

    samples: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows over columns, under one heading."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    corner: str = ""
    """The heading of the names of the rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A line of text."""

    text: str
    name: str = ""
    """The word that stands before the text in the terminal."""

    tone: Tone = ""
    is_bold: bool = False


def notes(name: str, texts: Iterable[str], tone: Tone = "") -> list[Note]:
    """Return a note for each text; the name stands before the first."""
    return [Note(name="" if number else name, text=text, tone=tone) for number, text in enumerate(texts)]


def text_row(name: str, *texts: str, kind: RowKind = "task") -> Row:
    """Return a row of cells that are text only."""
    return Row(name=name, kind=kind, cells=tuple(Cell(text=text) for text in texts))


def verdict_cell(verdict: str | None) -> Cell:
    """Return a cell with a verdict in its colour; a hyphen without one."""
    return Cell() if verdict is None else Cell(text=verdict, style=f"tag {verdict.replace(' ', '-')}")
