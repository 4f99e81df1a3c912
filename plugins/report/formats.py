"""The forms in which reports show numbers, lengths and intervals, lines of the terminal, and text in Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from longctx.fixtures.lengths import format_length
from longctx.fixtures.shown_text import one_line, visible_line

Markup = dict[str, bool]
Line = tuple[str, Markup]
"""A line's text and its markup, as pytest's terminal takes it."""
COLUMNS = 100
"""The most columns of a line; a narrower terminal gets shorter ones."""
INDENT = 11
# Characters that have a meaning within a line of GitHub's Markdown, in addresses and mentions, too. A backslash
# takes the meaning away.
SPECIAL_CHARACTERS = re.compile(r"([\\`*_\[\]#|~$@]|:(?=//)|(?<=www)\.)", re.IGNORECASE)
FEW_SAMPLES = 10
DEPTH_BINS = 10


def wrapped(line: Line, columns: int) -> list[Line]:
    text, markup = line
    if len(text) <= columns:
        return [line]
    # A continued line is indented like its text.
    indent = max(INDENT, len(text) - len(text.lstrip()))
    return [(part, markup) for part in textwrap.wrap(text, columns, subsequent_indent=" " * indent)]


def named_line(name: str, text: str, **markup: bool) -> Line:
    # A line break within a text could otherwise pass for a line of the summary.
    return visible_line(f"{name:<{INDENT}}{text}"), markup


def short_length(length: int | None) -> str:
    """Return a length as the terminal shows it: 8192 is 8K."""
    return "unknown" if length is None else format_length(length).upper()


def shown_number(value: float | None, signed: bool = False) -> str:
    """Return a score with one decimal, as in every other report; differences get a sign."""
    if value is None:
        return "-"
    return f"{value:+.1f}".replace("+0.0", "0.0").replace("-0.0", "0.0") if signed else f"{value:.1f}"


def both_ends(interval: Sequence[float] | None, signed: bool = False) -> str:
    """Return both ends of an interval; a hyphen if there is none."""
    return "-" if interval is None else f"{shown_number(interval[0], signed)} to {shown_number(interval[1], signed)}"


def shown_range(interval: Sequence[float], signed: bool = False) -> str:
    """Return an interval as text, or one number if both ends are shown as the same."""
    low, high = (f"{end:{'+' if signed else ''}.1f}".replace("+0.0", "0.0").replace("-0.0", "0.0") for end in interval)
    return low if low == high else f"{low} to {high}"


def markdown_text(text: str, most: int) -> str:
    """Return text on one line in a form that has no meaning as Markdown or HTML, first cut to `most` characters."""
    shown = one_line(text, most).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return SPECIAL_CHARACTERS.sub(r"\\\1", shown)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; empty without rows."""
    if not rows:
        return ""
    lines = [f"| {' | '.join(head)} |", f"{'| --- ' * len(head)}|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def cut_start(text: str, width: int) -> str:
    """Return the text, cut at its start if it is longer than the width."""
    return text if len(text) <= width else f"...{text[3 - width :]}"
