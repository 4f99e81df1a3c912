"""The sets of tasks files (--tasks): means by category, questions that were cut or left out, and wordy answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from longctx.fixtures.lengths import format_length
from longctx.fixtures.records import Case
from longctx.fixtures.records.report import JsonReport
from longctx.plugins.report.formats import Line, markdown_text, named_line
from longctx.plugins.report.sections.frontier import means_by_length
from longctx.plugins.report.sections.section import Section
from longctx.plugins.verdicts.evaluation import Evaluation

QUESTIONS_TEST = "test_questions["
# The part of a score that tells the share of its text that a cut removed.
CUT_PART = "cut"
ByLength = Mapping[str, float | None]


def question_sets(evaluation: Evaluation, planned: Sequence[Case]) -> dict[str, Any] | None:
    """Return by suite the mean of every category, with scores from 0 to 100; None for a run without tasks files."""
    suites: dict[str, dict[str, list[Case]]] = {}
    for case in planned:
        if case.id.startswith(QUESTIONS_TEST):
            suites.setdefault(case.suite, {}).setdefault(case.category, []).append(case)
    if not suites:
        return None
    return {
        suite: {category: means_by_length(evaluation, cases) for category, cases in categories.items()}
        for suite, categories in suites.items()
    }


def question_set_means(document: JsonReport) -> dict[str, ByLength]:
    """Return the means of a document's categories with several sets; reports of older versions have none."""
    section = document.question_sets or {}
    cases = document.cases
    tasks = {(case.suite, case.category, case.task) for case in cases}
    return {
        f"{suite} {category}": means
        for suite, categories in section.items()
        for category, means in categories.items()
        if sum((suite, category) == key[:2] for key in tasks) > 1
    }


def _findings(document: JsonReport) -> list[str]:
    """Return a line for every case of a tasks file with questions that were cut or left out, or right wordy answers."""
    lines = []
    for case in document.cases:
        name = f"{case.task} at {format_length(case.length)}"
        if case.cut:
            lines.append(f"{name}: {case.cut:.0f} % of the samples are cut to the length")
        if case.left_out:
            lines.append(f"{name}: {case.left_out} questions do not fit the length and are left out")
        wordy = case.failures.get("right but wordy")
        # Only a tasks file can name another metric.
        if wordy and case.id.startswith(QUESTIONS_TEST):
            lines.append(
                f"{name}: {wordy} of {case.samples} answers state the reference and score below 100 for their other "
                'words; metric = { name = "substring_match" } accepts them, or ask for a short answer'
            )
    return lines


def _terminal(report: JsonReport) -> list[Line]:
    return [named_line("questions" * (not number), text) for number, text in enumerate(_findings(report))]


def _markdown(report: JsonReport) -> str:
    return "\n".join(f"- {markdown_text(text, 240)}" for text in _findings(report))


QUESTION_SETS = Section(terminal=_terminal, markdown=_markdown)
