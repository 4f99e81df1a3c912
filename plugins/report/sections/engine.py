"""The findings of a run about its engine: the properties that --invariance checked, and the notes about a server."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from longctx.fixtures.records import PropertyFinding
from longctx.fixtures.records.report import JsonReport, ReportServer
from longctx.fixtures.records.results import EngineFacts
from longctx.plugins.report.tables import Cell, Row, Table, verdict_cell
from longctx.plugins.verdicts.evaluate import Measured

# Single answers may consist of special tokens, which no text shows.
MISSING_SHARE = 0.05
WORDS = {"skipped": "not measured"}


def failed_properties(document: JsonReport) -> list[str]:
    """Return a line for every property that fails: its name, the sample, the first differing token, both answers."""
    failed = [finding for finding in document.invariance or () if finding.verdict == "fail"]
    return [f"invariance: {finding.line}" for finding in failed]


def held_properties(document: JsonReport) -> list[str]:
    """Return the number of the checked properties of the engine that hold, in words; nothing without --invariance."""
    checked = [finding for finding in document.invariance or () if finding.verdict != "skipped"]
    holding = sum(finding.verdict == "pass" for finding in checked)
    return [f"{holding} of {len(checked)} checked properties of the engine hold"] if checked else []


def invariance_table(findings: Sequence[PropertyFinding]) -> Table:
    """Return the properties of the engine that --invariance checked, each with the difference or the answers."""
    rows = []
    for finding in findings:
        text = finding.line.removeprefix(f"{finding.name}: ").removeprefix(f"{finding.verdict}: ")
        word = WORDS.get(finding.verdict, finding.verdict)
        rows.append(Row(name=finding.name, cells=(verdict_cell(word), Cell(text=text))))
    columns = ("verdict", "difference")
    return Table(name="Properties of the engine", corner="property", columns=columns, rows=tuple(rows))


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


def notes_of(document: JsonReport, subject: str = "the server ") -> list[str]:
    """Return the report's facts about its server, after the subject; or of the files whose results were compared."""
    notes = () if isinstance(document.server, UnsetType) else document.server.notes
    return [note if document.is_of_files else f"{subject}{note}" for note in notes]
