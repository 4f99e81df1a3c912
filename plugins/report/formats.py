"""The forms in which reports show numbers, lengths and intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from longctx.fixtures.lengths import format_length
from longctx.fixtures.records.report import JsonReport

FEW_SAMPLES = 10
DEPTH_BINS = 10


def tested_lengths(document: JsonReport) -> list[int]:
    """Return the tested lengths in ascending order."""
    return sorted({case.length for case in document.cases})


def short_length(length: int | None) -> str:
    """Return a length as the terminal shows it: 8192 is 8K."""
    return "unknown" if length is None else format_length(length).upper()


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
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def plural(count: int, one: str, many: str) -> str:
    """Return a count with its noun."""
    return f"{count:,} {one if count == 1 else many}"


def shares_text(kinds: Iterable[tuple[str, int]]) -> str:
    """Return counts by kind, such as "3 wrong, 1 empty"."""
    return ", ".join(f"{count} {kind}" for kind, count in kinds)
