"""Wrong answers and errors: kinds of failure, and examples from the lowest cases."""

from __future__ import annotations

from collections import Counter
from typing import Any, get_args

from longctx.fixtures.lengths import format_length
from longctx.fixtures.records import FailureKind
from longctx.fixtures.records.report import JsonReport, ReportCase
from longctx.fixtures.shown_text import one_line
from longctx.plugins.report.charts.bars import shares_of
from longctx.plugins.report.formats import shares_text, short_length, shown_number, tested_lengths
from longctx.plugins.report.tables import Cell, Note, Row, Table

SHOWN_CASES = 5
TEXT_WIDTH = 28
# Kinds of failure from nearly right to no answer at all; a kind that is not in this order comes last.
ORDER = (
    "right", "right but wordy", "incomplete", "distractor", "wrong instance", "copied", "wrong", "refused",
    "unfinished thinking", "empty",
)  # fmt: skip
KINDS = tuple(dict.fromkeys((*ORDER, *get_args(FailureKind))))


def short(text: str) -> str:
    """Return the text of a model as a quoted, printable string that fits a line."""
    words = " ".join(text.split())
    shown = "".join(character if character.isprintable() else "?" for character in words)
    return repr(shown if len(shown) <= TEXT_WIDTH else f"{shown[: TEXT_WIDTH - 3]}...")


def error_notes(document: JsonReport) -> list[Note]:
    """Return a note for every distinct error, with the first of its cases."""
    cases: dict[str, list[str]] = {}
    for case in document.cases:
        if case.verdict == "error":
            cases.setdefault(case.error or "", []).append(_short_id(case))
    found = []
    for text, names in cases.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        found.append(Note(name="error", text=f"{names[0]}{more}: {text}", tone="bad"))
    return found


def failure_notes(document: JsonReport) -> list[Note]:
    """Return an example of the lowest cases; cases that a calibration checkpoint should have solved come first."""
    solved = document.model.solved_tasks
    failed = [case for case in document.cases if case.failures]
    failed.sort(key=lambda case: (case.task not in solved, case.score or 0, case.length))
    if not failed:
        return []
    found = [Note(name="below 100", text=f"{len(failed)} of {len(document.cases)} cases, for example")]
    for case in failed[:SHOWN_CASES]:
        kinds = shares_text(case.failures.items())
        found.append(Note(text=f"{_short_id(case)}: {kinds} of {case.samples}"))
        example = case.examples[0]
        depth = "" if example.depth is None else f" at depth {example.depth:.2f}"
        expected, answer = short(", ".join(example.expected)), short(example.got) if example.got else "nothing"
        found.append(Note(text=f"    sample {example.index}: expected {expected}{depth}, got {answer}"))
    return found


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
        cells = tuple(Cell(text=text) for text in texts)
        rows.append(Row(name=f"{case.task} {short_length(case.length)}", cells=cells))
    return Table(name="lowest cases", columns=("score", "failures", "expected", "answer"), rows=tuple(rows))


def failure_shares(document: JsonReport) -> list[dict[str, Any]]:
    """Return how many samples of every suite and length failed, by kind of failure, and the shares of the bar."""
    rows = []
    for suite in dict.fromkeys(case.suite for case in document.cases):
        for length in tested_lengths(document):
            cases = [case for case in document.cases if (case.suite, case.length) == (suite, length)]
            counts = Counter[str]()
            for case in cases:
                counts.update(case.failures)
            total = sum(case.samples for case in cases)
            counts["right"] = total - counts.total()
            if total:
                name, shares = f"{suite} {short_length(length)}", shares_of(counts, total, KINDS)
                rows.append({"name": name, "total": total, "counts": counts, "shares": shares})
    return rows
