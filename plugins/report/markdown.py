"""The run as a short Markdown page, for a pull request or a job's summary."""

import re
from collections.abc import Iterable
from dataclasses import replace

from longctx.fixtures.records.report import JsonReport
from longctx.fixtures.shown_text import one_line
from longctx.plugins.report.sections.comparison import comparison_notes
from longctx.plugins.report.sections.engine import cost_text, invariance_table, notes_of, partial_note
from longctx.plugins.report.sections.gates import MOST_GATES, gate_table, run_verdict, seed_role, warning_texts
from longctx.plugins.report.sections.likelihood import finding_notes, has_no_answers, likelihood_table
from longctx.plugins.report.sections.ruler import effective_length_of, model_facts
from longctx.plugins.report.sections.scores import case_table, lowest_table, score_notes, score_tables
from longctx.plugins.report.sections.suites import frontier_notes, question_notes
from longctx.plugins.report.tables import Cell, Note, Table, plural, short_length

# Characters that have a meaning within a line of GitHub's Markdown, in addresses and mentions, too. A backslash
# takes the meaning away.
SPECIAL_CHARACTERS = re.compile(r"([\\`*_\[\]#|~$@]|:(?=//)|(?<=www)\.)", re.IGNORECASE)
LONGEST_NOTE, LONGEST_CELL = 400, 160
LOWEST_CASES, MOST_REASONS = 5, 12
SIGNS = {"pass": "✅", "fail": "❌", "error": "⚠️", "undecided": "❔", "not measured": "⏸️"}
"""The signs of verdicts, of the run and of its gates."""


def markdown(document: JsonReport) -> str:
    """Return the document as about 50 lines of Markdown."""
    parts = _head(document)
    parts.append(_list(f"⚠️ {note}" for note in notes_of(document)))
    parts.append(table(invariance_table(document.invariance or ())))
    parts.append(table(gate_table(document, MOST_GATES)))
    for scores in () if has_no_answers(document) else score_tables(document):
        means = tuple(row for row in scores.rows if row.kind != "task")
        parts.append(table(replace(scores, corner="", rows=means)))
    if (likelihood := document.likelihood) is not None:
        shown = likelihood_table(likelihood, ())
        parts += [shown.name, table(replace(shown, name="")), _notes(finding_notes(likelihood))]
    parts += [_notes(topic(document)) for topic in (frontier_notes, question_notes, comparison_notes)]
    head = f"<details><summary>All {plural(len(document.cases), 'case', 'cases')}</summary>"
    parts += [f"{head}\n\n{table(case_table(document))}\n\n</details>"] if document.cases else []
    parts.append(table(lowest_table(document, LOWEST_CASES)))
    parts += [f"<sub>{_plain(text)}</sub>" for text in _remarks(document)]
    left_out = partial_note(document)
    parts.append(f"{cost_text(document)}{f'; **{left_out}**' if left_out else ''}")
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(document: JsonReport) -> list[str]:
    model, step, verdict = document.model, document.run.step, document.verdict or run_verdict(document)
    shown_step = "" if step is None else f", step {step}"
    lines = [f"### {SIGNS[verdict.word]} Long context: {markdown_text(model.name, 80)}{shown_step}"]
    lines.append(f"**{verdict.word}** (exit code {verdict.exit_code}): {_plain(verdict.counts)}")
    reasons = [*verdict.reasons]
    if len(reasons) > MOST_REASONS:
        reasons[MOST_REASONS:] = [f"{len(reasons) - MOST_REASONS} more"]
    lines.append(_list(reasons))
    lines.append(f"Next: {_plain(verdict.next_step)}" if verdict.next_step else "")
    length = effective_length_of(document)
    if length is not None:
        lines.append(f"Effective length **{_plain(length.text)}**, {_plain(length.context)}")
    elif not document.is_of_files:
        lines.append(f"Claimed length **{short_length(document.ruler.claimed_length)}**")
    return [*lines, _plain(", ".join(model_facts(model)))]


def _remarks(document: JsonReport) -> list[str]:
    texts = [note.text for note in score_notes(document)]
    if document.gates:
        texts += [*warning_texts(document), seed_role(document)]
    length = effective_length_of(document)
    return texts + [note.text for note in length.notes] if length else texts


def table(content: Table) -> str:
    """Return a table; empty without rows."""
    if not content.rows:
        return ""
    has_samples = any(row.samples is not None for row in content.rows)
    head = [content.corner or content.name, *content.columns, *["samples"] * has_samples]
    lines = [f"| {' | '.join(head)} |", f"{'| --- ' * len(head)}|"]
    for row in content.rows:
        name = markdown_text(row.name, LONGEST_CELL)
        cells = [f"**{name}**" if row.kind == "total" else name, *map(_cell, row.cells)]
        lines.append(f"| {' | '.join([*cells, *[f'{row.samples}'] * has_samples])} |")
    return "\n".join(lines)


def _cell(cell: Cell) -> str:
    rough = "\\~" if "rough" in cell.style else ""
    bad = " ▼" if "bad" in cell.style else ""
    sign = f"{SIGNS[cell.text]} " if cell.style.startswith("tag") else ""
    return f"{sign}{rough}{markdown_text(cell.text, LONGEST_CELL)}{bad}"


def markdown_text(text: str, most: int) -> str:
    """Return text on one line in a form that has no meaning as Markdown or HTML, first cut to `most` characters."""
    shown = one_line(text, most).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return SPECIAL_CHARACTERS.sub(r"\\\1", shown)


def _plain(text: str) -> str:
    return markdown_text(text, LONGEST_NOTE)


def _list(texts: Iterable[str]) -> str:
    return "\n".join(f"- {_plain(text)}" for text in texts)


def _notes(shown: Iterable[Note]) -> str:
    return _list(note.text for note in shown)
