"""Wrong answers and errors: kinds of failure, and examples from the lowest cases."""

from __future__ import annotations

from collections import Counter
from typing import Any, get_args

from longctx.fixtures.lengths import format_length
from longctx.fixtures.records import FailureKind
from longctx.fixtures.records.report import JsonReport, ReportCase
from longctx.fixtures.shown_text import one_line
from longctx.plugins.report.charts.bars import shares_of
from longctx.plugins.report.formats import Line, markdown_table, markdown_text, named_line, short_length, shown_number
from longctx.plugins.report.html.tables import tested_lengths
from longctx.plugins.report.sections.section import Section
from longctx.plugins.report.summary import Details

SHOWN_CASES = 5
TEXT_WIDTH = 28
LOWEST_IN_MARKDOWN = 5
# Kinds of failure from nearly right to no answer at all; a kind that is not in this order comes last.
ORDER = (
    "right",
    "right but wordy",
    "incomplete",
    "distractor",
    "wrong instance",
    "copied",
    "wrong",
    "refused",
    "unfinished thinking",
    "empty",
)
KINDS = tuple(dict.fromkeys((*ORDER, *get_args(FailureKind))))
LOWEST_IN_PAGE = 12


def short(text: str) -> str:
    """Return the text of a model as a quoted, printable string that fits a line."""
    words = " ".join(text.split())
    shown = "".join(character if character.isprintable() else "?" for character in words)
    return repr(shown if len(shown) <= TEXT_WIDTH else f"{shown[: TEXT_WIDTH - 3]}...")


def _errors(document: JsonReport) -> list[Line]:
    """Return a line for every distinct error, with the first of its cases."""
    cases: dict[str, list[str]] = {}
    for case in document.cases:
        if case.verdict == "error":
            cases.setdefault(case.error or "", []).append(_short_id(case))
    return [
        named_line("error", f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {text}", red=True)
        for text, names in cases.items()
    ]


def _failures(document: JsonReport) -> list[Line]:
    """Return an example of the lowest cases; cases that a calibration checkpoint should have solved come first."""
    solved = document.model.solved_tasks
    failed = [case for case in document.cases if case.failures]
    failed.sort(key=lambda case: (case.task not in solved, case.score or 0, case.length))
    if not failed:
        return []
    lines = [named_line("below 100", f"{len(failed)} of {len(document.cases)} cases, for example")]
    for case in failed[:SHOWN_CASES]:
        kinds = ", ".join(f"{count} {kind}" for kind, count in case.failures.items())
        example = case.examples[0]
        depth = "" if example.depth is None else f" at depth {example.depth:.2f}"
        expected, answer = short(", ".join(example.expected)), short(example.got) if example.got else "nothing"
        lines.append(named_line("", f"{_short_id(case)}: {kinds} of {case.samples}"))
        lines.append(named_line("", f"    sample {example.index}: expected {expected}{depth}, got {answer}"))
    return lines


def _short_id(case: ReportCase) -> str:
    return f"{case.task}-{format_length(case.length)}"


def _markdown(document: JsonReport) -> str:
    """Return a table of the lowest cases with one wrong answer of each."""
    wrong = [case for case in document.cases if case.examples]
    wrong.sort(key=lambda case: (case.score or 0, case.length))
    rows = [
        (
            markdown_text(f"{case.task} {short_length(case.length)}", 50),
            shown_number(case.score),
            markdown_text(", ".join(case.examples[0].expected), 40),
            markdown_text(case.examples[0].got or "(empty)", 60),
        )
        for case in wrong[:LOWEST_IN_MARKDOWN]
    ]
    return markdown_table(("lowest cases", "score", "expected", "answer"), rows)


def failures(document: JsonReport) -> list[dict[str, Any]]:
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
                rows.append(
                    {
                        "name": f"{suite} {short_length(length)}",
                        "total": total,
                        "counts": counts,
                        "shares": shares_of(counts, total, KINDS),
                    }
                )
    return rows


def _page(report: JsonReport, _: Details) -> dict[str, Any]:
    rows = failures(report)
    wrong = [case for case in report.cases if case.examples]
    wrong.sort(key=lambda case: (case.score or 0, case.length))
    # The cases with the lowest scores and their first wrong sample, for a page without its script.
    lowest = [
        {
            "name": f"{case.task} {short_length(case.length)}",
            "score": case.score,
            "failures": ", ".join(f"{count} {kind}" for kind, count in case.failures.items()),
            "expected": one_line(", ".join(case.examples[0].expected), 60),
            "answer": one_line(case.examples[0].got, 80),
        }
        for case in wrong[:LOWEST_IN_PAGE]
    ]
    kinds = [kind for kind in KINDS if any(row["counts"][kind] for row in rows)]
    return {"failures": rows, "kinds": kinds, "lowest_cases": lowest}


ERRORS = Section(terminal=_errors)
FAILURES = Section(terminal=_failures, markdown=_markdown, page=_page)
