"""What a run noticed about its engine: the properties that --invariance checked, and the notes about a server."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from longctx.fixtures.records import PropertyFinding
from longctx.fixtures.records.report import JsonReport, ReportServer
from longctx.fixtures.records.results import EngineFacts
from longctx.plugins.report.tables import Cell, Note, Row, Table, Tone, verdict_cell
from longctx.plugins.verdicts.evaluate import Measured

# Single answers may consist of special tokens, which no text shows.
MISSING_SHARE = 0.05
WORDS: dict[str, tuple[str, Tone]] = {"pass": ("PASS", "good"), "fail": ("FAIL", "bad"), "skipped": ("-", "warning")}


def failed_properties(document: JsonReport) -> list[str]:
    """Return a line for every property that fails: its name, the sample, the first differing token, both answers."""
    failed = [finding for finding in document.invariance or () if finding.verdict == "fail"]
    return [f"invariance: {finding.line}" for finding in failed]


def held_properties(document: JsonReport) -> list[str]:
    """Return the number of the checked properties of the engine that hold, in words; nothing without --invariance."""
    checked = [finding for finding in document.invariance or () if finding.verdict != "skipped"]
    holding = sum(finding.verdict == "pass" for finding in checked)
    return [f"{holding} of {len(checked)} checked properties of the engine hold"] if checked else []


def invariance_notes(findings: Sequence[PropertyFinding]) -> list[Note]:
    """Return a note for every property of the engine that --invariance checked."""
    shown = []
    for finding in findings:
        word, tone = WORDS[finding.verdict]
        shown.append(Note(name="invariance", text=f"{word:<5} {finding.name}: {_difference(finding)}", tone=tone))
    return shown


def invariance_table(document: JsonReport) -> Table:
    """Return the properties of the engine that --invariance checked."""
    rows = []
    for finding in document.invariance or ():
        cells = (verdict_cell(finding.verdict), Cell(text=_difference(finding)))
        rows.append(Row(name=finding.name, cells=cells))
    return Table(
        name="Properties of the engine", corner="property", columns=("verdict", "difference"), rows=tuple(rows)
    )


def _difference(finding: PropertyFinding) -> str:
    """Return the measured difference, and the answers that differ."""
    return finding.line.removeprefix(f"{finding.name}: ").removeprefix(f"{finding.verdict}: ")


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
