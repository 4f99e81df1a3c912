"""A topic of a report: what it shows in the terminal, in Markdown and in the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from longctx.fixtures.records.report import JsonReport
from longctx.plugins.report.formats import Line
from longctx.plugins.report.summary import Details


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One topic; a format in which it shows nothing has None."""

    terminal: Callable[[JsonReport], Sequence[Line]] | None = None
    """The lines of the summary, without an empty line at the end."""

    markdown: Callable[[JsonReport], str] | None = None
    """The text in Markdown; empty if there is nothing to show."""

    page: Callable[[JsonReport, Details], Mapping[str, Any]] | None = None
    """The values of the page's template, by name."""
