"""The terminal output: the summary of a run, which ends with its verdict, and the results of the checks before it."""

from collections.abc import Sequence

from longctx.fixtures.records import Inspection
from longctx.fixtures.records.report import JsonReport, ReportVerdict
from longctx.fixtures.shown_text import COLUMNS, INDENT, visible_line, wrapped
from longctx.plugins.report.sections.gates import gate_text, run_verdict
from longctx.plugins.report.sections.summary import topics
from longctx.plugins.report.tables import Cell, Note, Row, RowKind, Table, Tone, notes, plural, verdict_tone

Line = tuple[str, dict[str, bool]]
"""A line's text and its markup, as pytest's terminal takes it."""

Lines = list[Line]
NAME_WIDTH, LONGEST_NAME, CELL_WIDTH = 22, 40, 8
SHOWN_PROBLEMS = 3
MARKS: dict[RowKind, str] = {"task": "", "mean": "= ", "total": "= ", "detail": "  "}
COLOURS: dict[Tone, str] = {"good": "green", "warning": "yellow", "bad": "red"}


def terminal_summary(document: JsonReport, columns: int = COLUMNS) -> Lines:
    """Return the summary as lines of at most `columns` columns; `verdict_lines` is its end."""
    lines: Lines = []
    for topic in topics(document):
        if not isinstance(topic, Table):
            lines += note_lines(topic)
        elif topic.rows:
            lines += [("", {}), *(_word_lines(topic) if topic.is_wordy else _table_lines(topic, columns))]
    verdict = document.verdict or run_verdict(document)
    gates = {gate_text(gate) for gate in document.gates}
    # The end of the summary has the first reason.
    others = [reason for reason in verdict.reasons[1:] if reason not in gates]
    return _wrapped([*lines, *note_lines(notes("besides", others, "bad"))], columns)


def verdict_lines(verdict: ReportVerdict, columns: int = COLUMNS) -> Lines:
    """Return the end of a summary: the verdict, its first reason, and the next step."""
    tone = verdict_tone(verdict.word)
    head = f"{verdict.word} (exit code {verdict.exit_code}): {verdict.counts}"
    shown = [Note(name="verdict", text=head, tone=tone)]
    if verdict.reasons:
        first, *others = verdict.reasons
        more = f"; and {plural(len(others), 'reason', 'reasons')} above" if others else ""
        shown.append(Note(name="why", text=f"{first}{more}", tone=tone))
    lines = _wrapped(note_lines(shown), columns)
    # Commands and names to copy are not broken into lines.
    is_command = verdict.next_step.startswith("longctx ")
    steps = [verdict.next_step] if is_command else verdict.next_step.split("; ")
    return lines + note_lines(notes("next", filter(None, steps)))


def inspection_lines(inspections: Sequence[Inspection]) -> Lines:
    """Return the results of --preflight: one line for all cases, and the first problems of every broken case."""
    if not inspections:
        return []
    broken = [inspection for inspection in inspections if inspection.problems]
    samples = sum(inspection.samples for inspection in inspections)
    least = min(inspection.min_fill for inspection in inspections)
    head = f"{len(inspections)} cases, {samples} samples: {len(broken) or 'no'} cases with problems"
    tone: Tone = "bad" if broken else "good"
    shown = [
        Note(name="preflight", text=head, tone=tone),
        Note(name="fill", text=f"at least {least:.3f} of the length"),
    ]
    for inspection in broken:
        for text in inspection.problems[:SHOWN_PROBLEMS]:
            shown.append(Note(text=f"{inspection.case.id}: {text}", tone="bad"))
    return note_lines(shown)


def note_lines(shown: Sequence[Note]) -> Lines:
    lines = []
    for note in shown:
        markup = {COLOURS[note.tone]: True} if note.tone else {}
        # A line break within a text could otherwise pass for a line of the summary.
        lines.append((visible_line(f"{note.name:<{INDENT}}{note.text}"), markup))
    return lines


def _word_lines(table: Table) -> Lines:
    """Return each row as a line with its first two cells and one with the others; examples have their headings."""
    shown: list[Note] = []
    for row in table.rows:
        texts = [cell.text for cell in row.cells]
        is_verdict = row.cells[0].style.startswith("tag")
        word = table.corner if is_verdict or not shown else ""
        head = ": ".join(filter(None, (row.name, *texts[:2])))
        shown.append(Note(name=word, text=head, tone=verdict_tone(texts[0]) if is_verdict else ""))
        others = list(filter(None, texts[2:]))
        if others and not is_verdict:
            others = [f"{heading} {text}" for heading, text in zip(table.columns[2:], texts[2:], strict=True)]
        if others:
            shown.append(Note(text="; ".join(others)))
    return note_lines(shown)


def _table_lines(table: Table, columns: int) -> Lines:
    """Return a table; columns that do not fit beside the others follow in a table below."""
    name_widths, cell_widths = [NAME_WIDTH], [CELL_WIDTH]
    for row in table.rows:
        name_widths.append(len(_marked_name(row)) + 1)
        cell_widths += [len(cell.interval or cell.text) + 1 for cell in row.cells]
    widths = min(LONGEST_NAME, max(name_widths)), max(cell_widths)
    most = max(1, (columns - widths[0]) // widths[1])
    lines: Lines = []
    for first in range(0, len(table.columns), most):
        shown = slice(first, first + most)
        head = _row_text(table.corner, table.columns[shown], widths)
        lines.append((head, {"bold": True}))
        for row in table.rows:
            lines += _row_lines(row, row.cells[shown], widths)
    return lines


def _row_lines(row: Row, cells: Sequence[Cell], widths: tuple[int, int]) -> Lines:
    """Return the cells of a row, and the intervals of their values on a line below."""
    texts = [f"~{cell.text}" if "rough" in cell.style else cell.text for cell in cells]
    intervals = [cell.interval for cell in cells]
    text = _row_text(_marked_name(row), texts, widths)
    lines: Lines = [(text, {"bold": True} if row.kind == "total" else {})]
    if any(intervals):
        lines.append((_row_text("  interval", intervals, widths), {}))
    return lines


def _marked_name(row: Row) -> str:
    return f"{MARKS[row.kind]}{row.name}"


def _row_text(name: str, texts: Sequence[str], widths: tuple[int, int]) -> str:
    """Return a name and cells in columns of these two widths; a longer name is cut at its start."""
    name_width, cell_width = widths
    if len(name) >= name_width:
        name = f"...{name[4 - name_width :]}"
    cells = [f"{text:>{cell_width}}" for text in texts]
    return f"{name:<{name_width}}{''.join(cells)}"


def _wrapped(lines: Sequence[Line], columns: int) -> Lines:
    wrapped_lines = []
    for text, markup in lines:
        wrapped_lines += [(part, markup) for part in wrapped(text, columns)]
    return wrapped_lines
