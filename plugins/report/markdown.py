"""The run as a short Markdown page, for a pull request or a job's summary."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from longctx.fixtures.records.report import JsonReport
from longctx.fixtures.shown_text import one_line
from longctx.plugins.report.sections.gates import run_verdict
from longctx.plugins.report.sections.scores import score_tables
from longctx.plugins.report.sections.summary import topics
from longctx.plugins.report.tables import Cell, Note, Table, plural

# Characters that have a meaning within a line of GitHub's Markdown, in addresses and mentions, too. A backslash
# takes the meaning away.
SPECIAL_CHARACTERS = re.compile(r"([\\`*_\[\]#|~$@]|:(?=//)|(?<=www)\.)", re.IGNORECASE)
LONGEST_NOTE, LONGEST_CELL = 400, 160
SIGNS = {"pass": "✅", "fail": "❌", "error": "⚠️", "undecided": "❔", "not measured": "⏸️"}
"""The signs of verdicts, of the run and of its gates."""


def markdown(document: JsonReport) -> str:
    """Return the document as about 50 lines of Markdown."""
    step, verdict = document.run.step, document.verdict or run_verdict(document)
    name = markdown_text(document.model.name, 80)
    title = name if step is None else f"{name}, step {step}"
    parts = [f"### {SIGNS[verdict.word]} Long context: {title}"]
    parts.append(f"**{verdict.word}** (exit code {verdict.exit_code}): {_plain(verdict.counts)}")
    parts.append(_list(verdict.reasons))
    if verdict.next_step:
        parts.append(f"Next: {_plain(verdict.next_step)}")
    for topic in topics(document):
        if isinstance(topic, Table):
            parts.append(table(_summed(topic)))
        else:
            parts.append(_list(map(_note_text, topic)))
    if document.cases:
        head = f"<details><summary>All {plural(len(document.cases), 'case', 'cases')}</summary>"
        parts += [head, *map(table, score_tables(document)), "</details>"]
    return "\n\n".join(filter(None, parts)) + "\n"


def _summed(content: Table) -> Table:
    """Return the means and totals of a table of scores; any other table as it is."""
    means = tuple(row for row in content.rows if row.kind != "task")
    return replace(content, rows=means) if means else content


def _note_text(note: Note) -> str:
    sign = "⚠️ " if note.tone in ("warning", "bad") else ""
    return f"{sign}{note.name}: {note.text}" if note.name else f"{sign}{note.text}"


def table(content: Table) -> str:
    """Return a table; empty without rows."""
    if not content.rows:
        return ""
    head = [content.corner, *content.columns]
    lines = [_line(head), _line(["---"] * len(head))]
    for row in content.rows:
        name = markdown_text(row.name, LONGEST_CELL)
        bold = "**" if row.kind == "total" else ""
        lines.append(_line([f"{bold}{name}{bold}", *map(_cell, row.cells)]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    text = markdown_text(cell.text, LONGEST_CELL)
    if cell.style.startswith("tag"):
        text = f"{SIGNS[cell.text]} {text}"
    if "rough" in cell.style:
        text = f"\\~{text}"
    if cell.interval:
        text = f"{text} ({cell.interval})"
    return f"{text} ▼" if "bad" in cell.style else text


def markdown_text(text: str, most: int) -> str:
    """Return text on one line in a form that has no meaning as Markdown or HTML, first cut to `most` characters."""
    shown = one_line(text, most).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return SPECIAL_CHARACTERS.sub(r"\\\1", shown)


def _plain(text: str) -> str:
    return markdown_text(text, LONGEST_NOTE)


def _list(texts: Iterable[str]) -> str:
    return "\n".join(f"- {_plain(text)}" for text in texts)
