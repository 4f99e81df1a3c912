"""The run as a short Markdown page, for a pull request or a job's summary."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from longctx.fixtures.records.report import JsonReport
from longctx.fixtures.shown_text import one_line
from longctx.plugins.report.formats import FEW_SAMPLES, short_length
from longctx.plugins.report.sections.comparison import comparison_text
from longctx.plugins.report.sections.cost import partial_note, samples_text, shown_count
from longctx.plugins.report.sections.engine import failed_properties, held_properties, notes_of
from longctx.plugins.report.sections.failures import lowest_table
from longctx.plugins.report.sections.gates import gate_table, seed_role, warning_texts
from longctx.plugins.report.sections.likelihood import finding_notes, likelihood_table
from longctx.plugins.report.sections.ruler import effective_length_text, has_no_ruler, threshold_notes
from longctx.plugins.report.sections.scores import case_table, is_rough, mean_table
from longctx.plugins.report.sections.suites import frontier_notes, question_notes
from longctx.plugins.report.tables import Cell, Table

# Characters that have a meaning within a line of GitHub's Markdown, in addresses and mentions, too. A backslash
# takes the meaning away.
SPECIAL_CHARACTERS = re.compile(r"([\\`*_\[\]#|~$@]|:(?=//)|(?<=www)\.)", re.IGNORECASE)
LONGEST_NOTE, LONGEST_CELL = 400, 160
LOWEST_CASES = 5


def markdown(document: JsonReport, *, holds: bool) -> str:
    """Return the document as about 50 lines of Markdown; `holds` is True if the run succeeds."""
    parts = _head(document, holds)
    parts.append(_list(f"⚠️ the server {note}" for note in notes_of(document)))
    parts.append(_list([*(f"❌ {line}" for line in failed_properties(document)), *held_properties(document)]))
    parts.append(table(mean_table(document)))
    parts += _likelihood(document)
    for topic in (frontier_notes, question_notes):
        parts.append(_list(note.text for note in topic(document)))
    parts.append(table(gate_table(document)))
    if document.regression is not None:
        parts.append(markdown_text(comparison_text(document, document.regression), 3 * LONGEST_NOTE))
    parts += [_cases(document), table(lowest_table(document, LOWEST_CASES))]
    if document.gates:
        parts += [_small(text) for text in (*warning_texts(document), seed_role(document))]
    threshold = [f"{note.text[0].upper()}{note.text[1:]}." for note in threshold_notes(document)]
    parts.append(_small(" ".join(threshold)) if threshold else "")
    cost, left_out = f"{shown_count(document.run.tokens.computed)} tokens computed", partial_note(document)
    parts.append(f"{cost}, {samples_text(document)}{f'; **{left_out}**' if left_out else ''}")
    return "\n\n".join(part for part in parts if part) + "\n"


def _likelihood(document: JsonReport) -> list[str]:
    """Return the likelihoods of gold answers, pooled by family and length; nothing without any."""
    likelihood = document.likelihood
    if likelihood is None or not likelihood.panels:
        return []
    shown = likelihood_table(likelihood, ())
    findings = _list(note.text for note in finding_notes(likelihood))
    return [shown.name, table(shown, "", samples="samples"), findings]


def _head(document: JsonReport, holds: bool) -> list[str]:
    """Return the title, the effective length, and what the model was made of."""
    model, step = document.model, document.run.step
    sign = "✅" if holds else "⏸️" if document.run.interrupted else "❌"
    title = f"### {sign} Long context: {markdown_text(model.name, 80)}{'' if step is None else f', step {step}'}"
    length = f"Claimed length **{short_length(document.ruler.claimed_length)}**"
    if not has_no_ruler(document):
        text = effective_length_text(document, lambda text: f"**{markdown_text(text, 20)}**", _plain)
        length = f"Effective length {text}"
    made = [f"quantization {markdown_text(model.quantization, 60)}"] if model.quantization else []
    if model.source:
        verb = "merged from the adapter" if model.source.kind == "adapter" else "converted from"
        made.append(f"{verb} {markdown_text(model.source.path, 120)}")
    made_of = "; ".join(made)
    return [title, length, f"{made_of[:1].upper()}{made_of[1:]}"]


def _cases(document: JsonReport) -> str:
    """Return the scores of all cases as a table that can be unfolded."""
    shown = table(case_table(document, document.cases))
    if any(map(is_rough, document.cases)):
        shown += f"\n\n\\~ from fewer than {FEW_SAMPLES} samples: the verdicts needed no more"
    head = f"<details><summary>All {len(document.cases)} cases</summary>"
    return f"{head}\n\n{shown}\n\n</details>" if shown else ""


def table(content: Table, corner: str | None = None, *, samples: str = "") -> str:
    """Return a table; empty without rows.

    `corner` heads the names of the rows, by default the table's name; with `samples`, a last column of that name has
    the number of samples.
    """
    head = [content.name if corner is None else corner, *content.columns]
    rows = []
    for row in content.rows:
        name = markdown_text(row.name, LONGEST_CELL)
        cells = [f"**{name}**" if row.kind == "total" else name, *map(_cell, row.cells)]
        rows.append([*cells, f"{row.samples}"] if samples else cells)
    return markdown_table([*head, samples] if samples else head, rows)


def _cell(cell: Cell) -> str:
    rough, bad = "\\~" if "rough" in cell.style else "", " ▼" if "bad" in cell.style else ""
    return f"{rough}{markdown_text(cell.text, LONGEST_CELL)}{bad}"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; empty without rows."""
    if not rows:
        return ""
    lines = [f"| {' | '.join(head)} |", f"{'| --- ' * len(head)}|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def markdown_text(text: str, most: int) -> str:
    """Return text on one line in a form that has no meaning as Markdown or HTML, first cut to `most` characters."""
    shown = one_line(text, most).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return SPECIAL_CHARACTERS.sub(r"\\\1", shown)


def _plain(text: str) -> str:
    return markdown_text(text, LONGEST_NOTE)


def _list(texts: Iterable[str]) -> str:
    return "\n".join(f"- {_plain(text)}" for text in texts)


def _small(text: str) -> str:
    return f"<sub>{_plain(text)}</sub>"
