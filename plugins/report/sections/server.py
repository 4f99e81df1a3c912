"""The requests that a server did not follow, as far as its replies show it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from longctx.fixtures.records import CaseResult, Outcome
from longctx.fixtures.records.report import JsonReport, ReportServer
from longctx.fixtures.records.results import EngineFacts
from longctx.plugins.report.formats import Line, markdown_text, named_line
from longctx.plugins.report.sections.section import Section
from longctx.plugins.report.summary import Details
from longctx.plugins.verdicts.evaluate import Measured
from longctx.plugins.verdicts.mixed_answers import mixed_up_note

# Single answers may consist of special tokens, which no text shows.
MISSING_SHARE = 0.05
# A weak model may repeat itself too; a server that repeats a reply does so nearly always.
REPEATED_SHARE, FEWEST_ANSWERS = 0.9, 10
# No model ends answers within the word that it is asked for, always after one number of tokens or before one letter.
FEWEST_CUT, CUT_SHARE = 4, 0.8


def server_notes(measured: Measured, facts: EngineFacts | None) -> ReportServer | UnsetType:
    """Return the notes about the server of a run; unset without any."""
    generations = [outcome.generation for result in measured.results.values() for outcome in result.outcomes]
    excess = [generation.excess_tokens for generation in generations if generation.excess_tokens]
    notes = list(facts.notes) if facts else []
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
    if facts and facts.engine != "hf":
        results = tuple(measured.results.values())
        notes += filter(None, (cut_answers(results), mixed_up_note(results), *_repeated_texts(results)))
    return ReportServer(notes=tuple(notes)) if notes else UNSET


def cut_answers(results: Sequence[CaseResult]) -> str | None:
    """Return a note if wrong answers end within a right word, all after one number of tokens or before one letter."""
    wrong = [outcome for result in results for outcome in result.outcomes if outcome.score.value < 1]
    ends = [
        (f"after {outcome.generation.generated_tokens} tokens", f"before {place[1]!r}")
        for outcome in wrong
        if (place := outcome.cut_between) is not None
    ]
    for common in map(Counter, zip(*ends, strict=True)):
        ((where, number),) = common.most_common(1)
        if number >= max(FEWEST_CUT, CUT_SHARE * len(ends), len(wrong) / 2):
            return (
                f"ended {number:,} of {len(wrong):,} wrong answers within a right word, each {where}, and says that "
                "the model did: it seems to limit answers without saying so; raise its limit of output tokens, and "
                "remove stop strings of its own"
            )
    return None


def _repeated_texts(results: Sequence[CaseResult]) -> list[str]:
    """Return notes if most answers of a case, or of all, are one text, although their questions have other answers."""
    of_cases = [_repeated_text(result.outcomes, result.case.id) for result in results]
    notes = [note for note in of_cases if note is not None]
    if len(results) > 1 and not notes:
        whole = _repeated_text([outcome for result in results for outcome in result.outcomes], "all cases")
        notes = [] if whole is None else [whole]
    return notes


def _repeated_text(outcomes: Sequence[Outcome], name: str) -> str | None:
    texts = Counter(outcome.generation.text.strip() for outcome in outcomes)
    answers = {outcome.references for outcome in outcomes}
    if len(outcomes) < FEWEST_ANSWERS or len(answers) < REPEATED_SHARE * len(outcomes):
        return None
    ((text, number),) = texts.most_common(1)
    if not text or number < REPEATED_SHARE * len(outcomes):
        return None
    return f"gave the same text to {number:,} of {len(outcomes):,} questions of {name}: {text[:60]!r}"


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
