"""The run as a short Markdown page, for a pull request or a job's summary."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from longctx.fixtures.records.report import JsonReport
from longctx.fixtures.shown_text import one_line
from longctx.plugins.report.formats import plural, short_length
from longctx.plugins.report.sections.comparison import comparison_text
from longctx.plugins.report.sections.cost import partial_note, samples_text, shown_count
from longctx.plugins.report.sections.engine import failed_properties, held_properties, notes_of
from longctx.plugins.report.sections.failures import lowest_table
from longctx.plugins.report.sections.gates import gate_table, headline, seed_role, warning_texts
from longctx.plugins.report.sections.likelihood import finding_notes, has_no_answers, likelihood_table
from longctx.plugins.report.sections.ruler import effective_length_of
from longctx.plugins.report.sections.scores import case_table, score_notes, score_tables
from longctx.plugins.report.sections.suites import frontier_notes, question_notes
from longctx.plugins.report.tables import Cell, Table

# Characters that have a meaning within a line of GitHub's Markdown, in addresses and mentions, too. A backslash
# takes the meaning away.
SPECIAL_CHARACTERS = re.compile(r"([\\`*_\[\]#|~$@]|:(?=//)|(?<=www)\.)", re.IGNORECASE)
LONGEST_NOTE, LONGEST_CELL = 400, 160
LOWEST_CASES = 5
SIGNS = {"pass": "✅", "fail": "❌", "open": "⏸️"}


def markdown(document: JsonReport, *, holds: bool) -> str:
    """Return the document as about 50 lines of Markdown; `holds` is True if the run succeeds."""
    parts = _head(document, holds)
    parts.append(_list(f"⚠️ the server {note}" for note in notes_of(document)))
    parts.append(_list([*(f"❌ {line}" for line in failed_properties(document)), *held_properties(document)]))
    parts.append(table(gate_table(document)))
    parts += _means(document)
    parts += _likelihood(document)
    for topic in (frontier_notes, question_notes):
        parts.append(_list(note.text for note in topic(document)))
    if document.regression is not None:
        parts.append(markdown_text(comparison_text(document, document.regression), 3 * LONGEST_NOTE))
    parts += [_cases(document), table(lowest_table(document, LOWEST_CASES))]
    parts += [f"<sub>{_plain(text)}</sub>" for text in _remarks(document)]
    cost, left_out = f"{shown_count(document.run.tokens.computed)} tokens computed", partial_note(document)
    parts.append(f"{cost}, {samples_text(document)}{f'; **{left_out}**' if left_out else ''}")
    return "\n\n".join(part for part in parts if part) + "\n"


def _means(document: JsonReport) -> list[str]:
    """Return the means of every suite."""
    if has_no_answers(document):
        return []
    tables = []
    for suite in score_tables(document):
        means = [row for row in suite.rows if row.kind != "task"]
        tables.append(table(replace(suite, corner="", rows=tuple(means))))
    return tables


def _remarks(document: JsonReport) -> list[str]:
    """Return what the numbers rest on, in small print."""
    texts = [note.text for note in score_notes(document)]
    if document.gates:
        texts += [*warning_texts(document), seed_role(document)]
    length = effective_length_of(document)
    return texts + [note.text for note in length.notes] if length else texts


def _likelihood(document: JsonReport) -> list[str]:
    """Return the likelihoods of gold answers, pooled by family and length; nothing without any."""
    likelihood = document.likelihood
    if likelihood is None or not likelihood.panels:
        return []
    shown = likelihood_table(likelihood, ())
    findings = _list(note.text for note in finding_notes(likelihood))
    return [shown.name, table(replace(shown, name="")), findings]


MADE_OF = {
    "adapter": "merged from the adapter",
    "raw": "converted from",
    "weights": "with the tokenizer of --tokenizer",
}


def _head(document: JsonReport, holds: bool) -> list[str]:
    """Return the title, the verdict, the effective length, and what the model was made of."""
    model, step, verdict = document.model, document.run.step, headline(document)
    is_failed = not holds and not document.run.interrupted
    sign = SIGNS["fail" if is_failed else verdict.verdict]
    title = f"### {sign} Long context: {markdown_text(model.name, 80)}{'' if step is None else f', step {step}'}"
    decided = f"**{verdict.title}**: {_plain(verdict.counts)}"
    length = effective_length_of(document)
    shown = f"Claimed length **{short_length(document.ruler.claimed_length)}**"
    if length is not None:
        shown = f"Effective length **{_plain(length.text)}**{length.joint}{_plain(length.context)}"
    made = [f"quantization {markdown_text(model.quantization, 60)}"] if model.quantization else []
    if model.source:
        made.append(f"{MADE_OF[model.source.kind]} {markdown_text(model.source.path, 120)}")
    made_of = "; ".join(made)
    return [title, decided, shown, f"{made_of[:1].upper()}{made_of[1:]}"]


def _cases(document: JsonReport) -> str:
    """Return the scores of all cases as a table that can be unfolded."""
    shown = table(case_table(document))
    head = f"<details><summary>All {plural(len(document.cases), 'case', 'cases')}</summary>"
    return f"{head}\n\n{shown}\n\n</details>" if shown else ""


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
    rough, bad = "\\~" if "rough" in cell.style else "", " ▼" if "bad" in cell.style else ""
    return f"{rough}{markdown_text(cell.text, LONGEST_CELL)}{bad}"


def markdown_text(text: str, most: int) -> str:
    """Return text on one line in a form that has no meaning as Markdown or HTML, first cut to `most` characters."""
    shown = one_line(text, most).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return SPECIAL_CHARACTERS.sub(r"\\\1", shown)


def _plain(text: str) -> str:
    return markdown_text(text, LONGEST_NOTE)


def _list(texts: Iterable[str]) -> str:
    return "\n".join(f"- {_plain(text)}" for text in texts)
