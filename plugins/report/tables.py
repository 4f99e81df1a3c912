"""The content of a topic in every format: tables of cells and lines of text, and the forms of their numbers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from longctx.fixtures.lengths import format_length
from longctx.fixtures.records.report import JsonReport

FEW_SAMPLES = 10
DEPTH_BINS = 10
Tone = Literal["", "good", "warning", "bad"]
TONES: Mapping[str, Tone] = {"pass": "good", "undecided": "warning", "not measured": "warning"}
RowKind = Literal["task", "mean", "total", "detail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    text: str = "-"
    interval: str = ""
    """Both ends of the value's interval."""
    style: str = "none"
    """The page's style classes of the cell, separated by spaces."""
    title: str = ""
    task: str = ""
    length: int | None = None
    """With the task, the case whose samples the cell links to."""
    link: str = ""
    """The address of the page that the cell links to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    name: str
    cells: tuple[Cell, ...]
    kind: RowKind = "task"
    """A task; a mean over tasks; a total, the mean over a whole suite; or a detail of the row above it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    name: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    corner: str
    """The heading of the names of the rows."""
    is_wordy: bool = False
    """True if the cells hold sentences: the terminal shows each row as a line of text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    text: str
    name: str = ""
    """The word that stands before the text in the terminal."""
    tone: Tone = ""


def notes(name: str, texts: Iterable[str], tone: Tone = "") -> list[Note]:
    """Return a note for each text; the name stands before the first."""
    return [Note(name="" if number else name, text=text, tone=tone) for number, text in enumerate(texts)]


def text_row(name: str, *texts: str, kind: RowKind = "task") -> Row:
    return Row(name=name, kind=kind, cells=tuple(Cell(text=text) for text in texts))


def verdict_tone(verdict: str) -> Tone:
    return TONES.get(verdict, "bad")


def verdict_cell(verdict: str) -> Cell:
    """Return a cell with a verdict in its colour."""
    return Cell(text=verdict, style=f"tag {verdict.replace(' ', '-')}")


def tested_lengths(document: JsonReport) -> list[int]:
    return sorted({case.length for case in document.cases})


def short_length(length: int | None) -> str:
    """Return a length as the terminal shows it: 8192 is 8K, and 0 is a task that has none."""
    if not length:
        return "unknown" if length is None else "any"
    return format_length(length).upper()


def shown_number(value: float | None, signed: bool = False) -> str:
    """Return a score with one decimal, as in every other report; differences get a sign."""
    if value is None:
        return "-"
    return f"{value:+.1f}".replace("+0.0", "0.0").replace("-0.0", "0.0") if signed else f"{value:.1f}"


def shown_interval(interval: Sequence[float] | None, signed: bool = False) -> str:
    """Return an interval as text: one number if both ends are shown as the same, a hyphen without an interval."""
    if interval is None:
        return "-"
    low, high = (shown_number(end, signed) for end in interval)
    return low if low == high else f"{low} to {high}"


def counted(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def plural(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def shares_text(kinds: Iterable[tuple[str, int]]) -> str:
    """Return counts by kind, such as "3 wrong, 1 empty"."""
    return ", ".join(f"{count} {kind}" for kind, count in kinds)
