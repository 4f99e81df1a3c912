"""Wrong answers and errors: kinds of failure, and examples from the lowest cases."""

from __future__ import annotations

from collections import Counter
from typing import get_args

from longctx.fixtures.lengths import format_length
from longctx.fixtures.records import FailureKind
from longctx.fixtures.records.report import JsonReport, ReportCase
from longctx.fixtures.shown_text import one_line
from longctx.plugins.report.charts.svg import difference_class
from longctx.plugins.report.formats import counted, shares_text, short_length, shown_number, tested_lengths
from longctx.plugins.report.tables import Cell, Note, Row, Table, text_row

SHOWN_CASES = 5
TEXT_WIDTH = 28
# Kinds of failure from nearly right to no answer at all; a kind that is not in this order comes last.
RIGHT = "right"
ORDER = (
    RIGHT, "right but wordy", "incomplete", "distractor", "wrong instance", "copied", "wrong", "refused",
    "unfinished thinking", "empty",
)  # fmt: skip
KINDS = tuple(dict.fromkeys((*ORDER, *get_args(FailureKind))))


def error_notes(document: JsonReport) -> list[Note]:
    """Return a note for every distinct error, with the first of its cases."""
    cases: dict[str, list[str]] = {}
    for case in document.cases:
        if case.verdict == "error":
            cases.setdefault(case.error or "", []).append(_short_id(case))
    texts = [f"{counted(names, 1)}: {text}" for text, names in cases.items()]
    return [Note(name="error", text=text, tone="bad") for text in texts]


def failure_notes(document: JsonReport) -> list[Note]:
    """Return an example of the lowest cases; cases that a calibration checkpoint should have solved come first."""
    solved = document.model.solved_tasks
    failed = [case for case in document.cases if case.failures]
    failed.sort(key=lambda case: (case.task not in solved, case.score or 0, case.length))
    if not failed:
        return []
    shown = [Note(name="below 100", text=f"{len(failed)} of {len(document.cases)} cases, for example")]
    for case in failed[:SHOWN_CASES]:
        kinds = shares_text(case.failures.items())
        shown.append(Note(text=f"{_short_id(case)}: {kinds} of {case.samples}"))
        example = case.examples[0]
        depth = "" if example.depth is None else f" at depth {example.depth:.2f}"
        expected = one_line(", ".join(example.expected), TEXT_WIDTH)
        answer = repr(one_line(example.got, TEXT_WIDTH)) if example.got else "nothing"
        shown.append(Note(text=f"    sample {example.index}: expected {expected!r}{depth}, got {answer}"))
    return shown


def _short_id(case: ReportCase) -> str:
    return f"{case.task}-{format_length(case.length)}"


def lowest_table(document: JsonReport, most: int) -> Table:
    """Return the cases with the lowest scores, each with its kinds of failure and its first wrong answer."""
    wrong = [case for case in document.cases if case.examples]
    wrong.sort(key=lambda case: (case.score or 0, case.length))
    rows = []
    for case in wrong[:most]:
        example = case.examples[0]
        expected, answer = one_line(", ".join(example.expected), 60), one_line(example.got, 80) or "(empty)"
        texts = (shown_number(case.score), shares_text(case.failures.items()), expected, answer)
        rows.append(text_row(f"{case.task} {short_length(case.length)}", *texts))
    columns = ("score", "failures", "expected", "answer")
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
