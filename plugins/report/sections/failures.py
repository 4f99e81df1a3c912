"""Wrong answers and errors: kinds of failure, and examples from the lowest cases."""

from __future__ import annotations

from collections import Counter
from typing import get_args

from longctx.fixtures.lengths import format_length
from longctx.fixtures.records import FailureKind
from longctx.fixtures.records.report import JsonReport, ReportCase
from longctx.fixtures.shown_text import one_line
from longctx.plugins.report.charts import difference_class
from longctx.plugins.report.tables import (
    Cell,
    Note,
    Row,
    Table,
    shares_text,
    short_length,
    shown_number,
    tested_lengths,
    text_row,
)

TEXT_WIDTH = 28
MOST_KINDS = 2
# Kinds of failure from nearly right to no answer at all; a kind that is not in this order comes last.
RIGHT = "right"
ORDER = (
    RIGHT, "right but wordy", "incomplete", "distractor", "wrong instance", "copied", "from memory", "wrong", "refused",
    "unfinished thinking", "empty",
)  # fmt: skip
KINDS = tuple(dict.fromkeys((*ORDER, *get_args(FailureKind))))


def failure_notes(document: JsonReport, most: int) -> list[Note]:
    """Return how many cases score below 100, and the lowest of them, at most so many."""
    count = sum(bool(case.failures) for case in document.cases)
    if not count:
        return []
    rows = lowest_table(document, most).rows
    example = ", the lowest ones:" if rows else ""
    shown = [Note(name="below 100", text=f"{count} of {len(document.cases)} cases{example}")]
    for row in rows:
        score, kinds, *asked, expected, answer = (cell.text for cell in row.cells)
        text = f"{row.name}: {score}, {kinds}"
        if any(asked):
            text += f"; asked {asked[0]!r}"
        # Result files of other programs may have scores alone.
        if expected:
            text += f"; expected {one_line(expected, TEXT_WIDTH)!r}, got {one_line(answer, TEXT_WIDTH)!r}"
        shown.append(Note(text=text))
    return shown


def _short_id(case: ReportCase) -> str:
    return f"{case.task}-{format_length(case.length)}" if case.length else case.task


def lowest_table(document: JsonReport, most: int) -> Table:
    """Return the cases with the lowest scores, each with its most frequent failures and its first wrong answer.

    Cases that a calibration checkpoint should have solved come first.
    """
    solved = document.model.solved_tasks
    wrong = [case for case in document.cases if case.examples]
    wrong.sort(key=lambda case: (case.task not in solved, case.score or 0, case.length))
    rows = []
    has_questions = any(case.examples[0].question for case in wrong[:most])
    for case in wrong[:most]:
        example = case.examples[0]
        asked = [one_line(example.question, 60)] if has_questions else []
        expected, answer = one_line(", ".join(example.expected), 60), one_line(example.got, 80) or "(empty)"
        kinds = Counter(case.failures).most_common(MOST_KINDS)
        texts = (shown_number(case.score), shares_text(kinds), *asked, expected, answer)
        rows.append(text_row(_short_id(case), *texts))
    columns = ("score", "failures", *(["question"] if has_questions else []), "expected", "answer")
    return Table(name="Lowest-scoring cases", corner="lowest cases", columns=columns, rows=tuple(rows))


def failure_table(document: JsonReport) -> Table:
    """Return how many samples of every suite and length have which result; failures are shaded by their share."""
    results: dict[str, Counter[str]] = {}
    for suite in dict.fromkeys(case.suite for case in document.cases):
        for length in tested_lengths(document):
            cases = [case for case in document.cases if (case.suite, case.length) == (suite, length)]
            counts = Counter[str]()
            for case in cases:
                counts.update(case.failures)
            counts[RIGHT] = sum(case.samples for case in cases) - counts.total()
            if counts.total():
                results[f"{suite} {short_length(length)}"] = counts
    kinds = [kind for kind in KINDS if any(counts[kind] for counts in results.values())]
    rows = []
    for name, counts in results.items():
        total = counts.total()
        cells = [_share_cell(kind, counts[kind], total) for kind in kinds]
        rows.append(Row(name=name, cells=(*cells, Cell(text=f"{total:,}"))))
    return Table(name="Kinds of failure by length", corner="samples", columns=(*kinds, "all"), rows=tuple(rows))


def _share_cell(kind: str, count: int, total: int) -> Cell:
    if not count:
        return Cell(text="")
    share = 100 * count / total
    style = "none" if kind == RIGHT else difference_class(-share)
    return Cell(text=f"{count:,}", style=style, title=f"{share:.1f} % of {total:,} samples")
