"""The requests that a server did not follow, as far as its replies show it."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from longctx.fixtures.records.report import JsonReport, ReportServer
from longctx.fixtures.records.results import EngineFacts
from longctx.plugins.report.formats import Line, markdown_text, named_line
from longctx.plugins.report.sections.section import Section
from longctx.plugins.report.summary import Details
from longctx.plugins.verdicts.evaluate import Measured

# Single answers may consist of special tokens, which no text shows.
MISSING_SHARE = 0.05


def server_notes(measured: Measured, facts: EngineFacts | None) -> ReportServer | UnsetType:
    """Return the notes about the server of a run; unset without any."""
    generations = [outcome.generation for result in measured.results.values() for outcome in result.outcomes]
    notes = list(facts.notes) if facts else []
    excess = [generation.excess_tokens for generation in generations if generation.excess_tokens]
    if excess:
        notes.append(
            f"gave more tokens than requested in {len(excess):,} of {len(generations):,} answers, up to "
            f"{max(excess):,} too many; each answer was cut to its token budget before it was scored"
        )
    missing = [generation.missing_tokens for generation in generations if generation.missing_tokens]
    if len(missing) > MISSING_SHARE * len(generations):
        notes.append(
            f"counted more tokens than its texts have in {len(missing):,} of {len(generations):,} answers, up to "
            f"{max(missing):,} more: it drops a part of what the model writes"
        )
    return ReportServer(notes=tuple(notes)) if notes else UNSET


def notes_of(document: JsonReport) -> tuple[str, ...]:
    """Return the notes about the server in a report."""
    return () if isinstance(document.server, UnsetType) else document.server.notes


def _terminal(document: JsonReport) -> list[Line]:
    return [named_line("" if at else "server", note, yellow=True) for at, note in enumerate(notes_of(document))]


def _markdown(document: JsonReport) -> str:
    return "\n".join(f"- ⚠️ the server {markdown_text(note, 400)}" for note in notes_of(document))


def _page(document: JsonReport, _: Details) -> dict[str, Any]:
    return {"server_notes": [f"The server {note}" for note in notes_of(document)]}


SERVER = Section(terminal=_terminal, markdown=_markdown, page=_page)
