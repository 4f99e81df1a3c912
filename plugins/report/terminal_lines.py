"""Lines of the terminal: a name at the margin, a text beside it, wrapped to the columns of the terminal."""

from __future__ import annotations

import textwrap

from fixtures.shown_text import visible_line

Markup = dict[str, bool]
Line = tuple[str, Markup]
"""A line's text and its markup, as pytest's terminal takes it."""

COLUMNS = 100
"""The most columns of a line; a narrower terminal gets shorter ones."""

INDENT = 11


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
