"""The terminal output: the summary of a run, which ends with its verdict, and the results of the checks before it."""

from collections.abc import Sequence
from dataclasses import replace

from longctx.fixtures.records import Inspection, PropertyFinding
from longctx.fixtures.records.report import JsonReport, ReportVerdict
from longctx.fixtures.shown_text import COLUMNS, INDENT, visible_line, wrapped
from longctx.plugins.report.sections.comparison import comparison_notes
from longctx.plugins.report.sections.engine import cost_notes, invariance_table, notes_of
from longctx.plugins.report.sections.gates import gate_notes, gate_text, run_verdict, seed_role, warning_texts
from longctx.plugins.report.sections.likelihood import finding_notes, has_no_answers, likelihood_table
from longctx.plugins.report.sections.ruler import effective_length_of, model_facts
from longctx.plugins.report.sections.scores import failure_notes, score_notes, score_tables
from longctx.plugins.report.sections.suites import frontier_notes, question_notes
from longctx.plugins.report.tables import (
    Note,
    Row,
    RowKind,
    Table,
    Tone,
    notes,
    plural,
    short_length,
    tested_lengths,
    verdict_tone,
)

Line = tuple[str, dict[str, bool]]
"""A line's text and its markup, as pytest's terminal takes it."""
NAME_WIDTH, LONGEST_NAME, CELL_WIDTH = 22, 40, 8
LIKELIHOOD_WIDTH = 14
SHOWN_PROBLEMS, SHOWN_CASES = 3, 5
MARKS: dict[RowKind, str] = {"task": "", "mean": "= ", "total": "= ", "detail": "  "}
COLOURS: dict[Tone, str] = {"good": "green", "warning": "yellow", "bad": "red"}


def terminal_summary(document: JsonReport, columns: int = COLUMNS) -> list[Line]:
    """Return the summary as lines of at most `columns` columns; `verdict_lines` is its end."""
    verdict = document.verdict or run_verdict(document)
    is_pass = verdict.word == "pass"
    # Advice and examples stand where they may change a decision.
    advice = [] if is_pass or not document.gates else [*warning_texts(document), seed_role(document)]
    gates = {gate_text(gate) for gate in document.gates}
    # The end of the summary has the first reason.
    others = [reason for reason in verdict.reasons[1:] if reason not in gates]
    about = notes("files" if document.is_of_files else "server", notes_of(document, ""), "warning")
    parts = [note_lines(_head(document)), _score_lines(document, columns), note_lines(about)]
    parts.append(_likelihood_lines(document, columns))
    parts.append(note_lines([*frontier_notes(document), *question_notes(document)]))
    parts.append(note_lines(comparison_notes(document)))
    parts.append(note_lines([*failure_notes(document, 0 if is_pass else SHOWN_CASES), *cost_notes(document)]))
    parts.append(note_lines([*gate_notes(document), *notes("besides", others, "bad"), *notes("advice", advice)]))
    lines: list[Line] = []
    for part in filter(None, parts):
        # An empty line stands between two parts.
        lines += [("", {}), *part] if lines else part
    return _wrapped(lines, columns)


def verdict_lines(verdict: ReportVerdict, columns: int = COLUMNS) -> list[Line]:
    """Return the end of a summary: the verdict, its first reason, and the next step."""
    tone = verdict_tone(verdict.word)
    head = f"{verdict.word} (exit code {verdict.exit_code}): {verdict.counts}"
    shown = [Note(name="verdict", text=head, tone=tone, is_bold=True)]
    if verdict.reasons:
        first, *others = verdict.reasons
        more = f"; and {plural(len(others), 'reason', 'reasons')} above" if others else ""
        shown.append(Note(name="why", text=f"{first}{more}", tone=tone))
    lines = _wrapped(note_lines(shown), columns)
    if not verdict.next_step:
        return lines
    # Commands and names to copy are not broken into lines.
    is_long = len(verdict.next_step) + INDENT > columns and not verdict.next_step.startswith("longctx ")
    first, *others = verdict.next_step.replace("; ", ";\n").split("\n") if is_long else [verdict.next_step]
    return lines + note_lines([Note(name="next", text=first), *notes("", others)])


def _head(document: JsonReport) -> list[Note]:
    model = document.model
    shown = [Note(name="model", text=f"{_cut_start(model.name, 40)} ({', '.join(model_facts(model))})")]
    length = effective_length_of(document)
    if length is None and document.is_of_files:
        return shown
    if length is None:
        shown.append(Note(name="claimed", text=short_length(document.ruler.claimed_length)))
    else:
        shown.append(Note(name="effective", text=f"{length.text}, {length.context}", is_bold=True))
        shown += length.notes
    if model.calibration:
        shown.append(Note(name="calibrated", text="solves the tasks marked * by construction, and no other task"))
    return shown


def inspection_lines(inspections: Sequence[Inspection]) -> list[Line]:
    """Return the results of --preflight: one line for all cases, and the first problems of every broken case."""
    if not inspections:
        return []
    broken = [inspection for inspection in inspections if inspection.problems]
    samples = sum(inspection.samples for inspection in inspections)
    least = min(inspection.min_fill for inspection in inspections)
    mean = sum(inspection.mean_fill for inspection in inspections) / len(inspections)
    head = f"{len(inspections)} cases, {samples} samples: {len(broken) or 'no'} cases with problems"
    shown = [
        Note(name="preflight", text=head, tone="bad" if broken else "good", is_bold=True),
        Note(name="fill", text=f"at least {least:.3f} of the length, {mean:.3f} on average"),
    ]
    for inspection in broken:
        for text in inspection.problems[:SHOWN_PROBLEMS]:
            shown.append(Note(text=f"{inspection.case.id}: {text}", tone="bad"))
    return note_lines(shown)


def invariance_lines(findings: Sequence[PropertyFinding]) -> list[Line]:
    shown = []
    for row in invariance_table(findings).rows:
        verdict, difference = (cell.text for cell in row.cells)
        text = f"{row.name}: {verdict}: {difference}"
        shown.append(Note(name="invariance", text=text, tone=verdict_tone(verdict)))
    return [*_wrapped(note_lines(shown), COLUMNS), ("", {})] if shown else []


def note_lines(shown: Sequence[Note], indent: int = INDENT) -> list[Line]:
    """Return notes as lines, the text of each behind its name and `indent` columns."""
    lines = []
    for note in shown:
        markup = {COLOURS[note.tone]: True} if note.tone else {}
        if note.is_bold:
            markup["bold"] = True
        # A line break within a text could otherwise pass for a line of the summary.
        lines.append((visible_line(f"{note.name:<{indent}}{note.text}"), markup))
    return lines


def _score_lines(document: JsonReport, columns: int) -> list[Line]:
    if has_no_answers(document):
        return []
    tasks, means = list[Row](), list[Row]()
    for table in score_tables(document):
        for row in table.rows:
            # An asterisk marks the tasks that a calibration checkpoint solves.
            mark = " *" if row.kind == "task" and row.name in document.model.solved_tasks else ""
            rows = tasks if row.kind == "task" else means
            rows.append(replace(row, name=f"{MARKS[row.kind]}{row.name}{mark}"))
    lengths = tuple(map(short_length, tested_lengths(document)))
    table = Table(name="score", columns=lengths, rows=(*tasks, *means))
    return _table_lines(table, NAME_WIDTH, CELL_WIDTH, columns) + note_lines(score_notes(document), indent=0)


def _likelihood_lines(document: JsonReport, columns: int) -> list[Line]:
    section = document.likelihood
    if section is None:
        return []
    table = likelihood_table(section, ())
    lines: list[Line] = [(table.name, {"bold": True})]
    lines += _table_lines(replace(table, name=""), LIKELIHOOD_WIDTH, LIKELIHOOD_WIDTH, columns)
    lines += note_lines(finding_notes(section), indent=0)
    tokens = section.tokens
    return [*lines, (f"{tokens.computed:,} tokens computed for likelihoods, {tokens.reused:,} reused", {})]


def _table_lines(table: Table, name_width: int, cell_width: int, columns: int) -> list[Line]:
    """Return a table; columns that do not fit beside the others follow in a table below."""
    names = [len(row.name) + 1 for row in table.rows]
    width = min(LONGEST_NAME, max(name_width, *names, 0))
    most = max(1, (columns - width) // cell_width)
    lines: list[Line] = []
    for first in range(0, len(table.columns), most):
        shown = slice(first, first + most)
        lines.append((_row_text(table.name, table.columns[shown], width, cell_width), {"bold": True}))
        for row in table.rows:
            texts = [f"{'~' * ('rough' in cell.style)}{cell.text}" for cell in row.cells[shown]]
            markup = {"bold": True} if row.kind == "total" else {}
            lines.append((_row_text(row.name, texts, width, cell_width), markup))
            intervals = [cell.interval for cell in row.cells[shown]]
            if any(intervals):
                lines.append((_row_text(f"  {row.samples} samples", intervals, width, cell_width), {}))
    return lines


def _row_text(name: str, texts: Sequence[str], width: int, cell_width: int) -> str:
    cells = [f"{text:>{cell_width}}" for text in texts]
    return f"{_cut_start(name, width - 1):<{width}}{''.join(cells)}"


def _wrapped(lines: Sequence[Line], columns: int) -> list[Line]:
    return [(part, markup) for text, markup in lines for part in wrapped(text, columns)]


def _cut_start(text: str, width: int) -> str:
    """Return the text, cut at its start if it is longer than the width."""
    return text if len(text) <= width else f"...{text[3 - width :]}"
