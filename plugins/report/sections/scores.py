"""The scores by task and length, by depth, and the means over tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from longctx.fixtures.records.report import JsonReport, ReportCase
from longctx.fixtures.shown_text import one_line
from longctx.plugins.report.charts.colours import shade
from longctx.plugins.report.formats import (
    DEPTH_BINS,
    FEW_SAMPLES,
    Line,
    Markup,
    both_ends,
    cut_start,
    markdown_table,
    markdown_text,
    short_length,
    shown_number,
    shown_range,
)
from longctx.plugins.report.html.tables import Cell, Row, Scores, Table, score_table, tested_lengths
from longctx.plugins.report.sections.frontier import frontier_means
from longctx.plugins.report.sections.likelihood import has_no_answers
from longctx.plugins.report.sections.question_sets import QUESTIONS_TEST, question_set_means
from longctx.plugins.report.sections.section import Section
from longctx.plugins.report.summary import Details

_Row = tuple[str, list[str], Markup]
"""A table row: its name, its cells by length, and its markup."""
NAME_WIDTH, LONGEST_NAME = 22, 40
CELL_WIDTH = 8
# A case whose prompts take less of the length, in percent, measures less than its name says.
LOW_FILL, MOST_NAMED = 75, 3
INTERVALS = ("these samples", "the model")
INTERVALS_MEAN = "intervals of the mean over the planned samples, and over unlimited ones"


def score_table_lines(document: JsonReport, columns: int) -> list[Line]:
    """Return the scores by task and length; lengths that do not fit beside the others follow in a table below."""
    if has_no_answers(document):
        return []
    cases, ruler = document.cases, document.ruler
    lengths = sorted({case.length for case in cases})
    cells = {}
    for case in cases:
        score = ("~" if _is_rough(case) else "") + shown_number(case.score)
        cells[case.task, case.length] = "error" if case.verdict == "error" else score
    # An asterisk marks the tasks that a calibration checkpoint solves.
    rows: list[_Row] = [
        (
            f"{task} *" if task in document.model.solved_tasks else task,
            [cells.get((task, length), "-") for length in lengths],
            {},
        )
        for task in dict.fromkeys(case.task for case in cases)
    ]
    rows += _mean_rows(document, lengths)
    width = min(LONGEST_NAME, max((NAME_WIDTH, *(len(name) + 1 for name, _, _ in rows))))
    most = max(1, (columns - width) // CELL_WIDTH)
    lines = []
    for first in range(0, len(lengths), most):
        shown = slice(first, first + most)
        lines.append((_row("score", [short_length(length) for length in lengths[shown]], width), {"bold": True}))
        lines += [(_row(name, texts[shown], width), markup) for name, texts, markup in rows]
    if ruler.wavg_inc is not None:
        lines.append((f"{'= wAvg':<{width}}inc {ruler.wavg_inc:.1f}, dec {ruler.wavg_dec:.1f}", {}))
    if any(name.strip() in INTERVALS for name, _, _ in rows):
        lines.append((f"{' and '.join(INTERVALS)}: {INTERVALS_MEAN}", {}))
    if any(map(_is_rough, cases)):
        lines.append((f"~ from fewer than {FEW_SAMPLES} samples: the verdicts needed no more; --full measures all", {}))
    return lines + _low_fills(cases)


def _low_fills(cases: Sequence[ReportCase]) -> list[Line]:
    """Return a line about the cases that fill little of their length; questions of tasks files need not fill it."""
    low = [
        f"{case.task} at {short_length(case.length)} {case.fill[0]:.0f} % ({case.fill[1]:.0f} %)"
        for case in cases
        if case.fill is not None and case.fill[0] < LOW_FILL and not case.id.startswith(QUESTIONS_TEST)
    ]
    if not low:
        return []
    more = f"; {len(low) - MOST_NAMED} more" if len(low) > MOST_NAMED else ""
    return [(f"filled in the median (at least): {'; '.join(low[:MOST_NAMED])}{more}", {})]


def _mean_rows(document: JsonReport, lengths: Sequence[int]) -> list[_Row]:
    """Return a row for every mean that was measured at any length."""
    ruler, helmet = document.ruler, document.helmet
    helmet_categories = helmet.categories if helmet else {}
    categories = (
        *ruler.aspects.items(),
        *helmet_categories.items(),
        *frontier_means(document).items(),
        *question_set_means(document).items(),
    )
    means: list[tuple[str, Mapping[str, float | None], Markup]] = [
        *((name, scores, {}) for name, scores in categories),
        ("HELMET", helmet.average if helmet else {}, {"bold": True}),
        ("mean", ruler.scores, {"bold": True}),
    ]
    baseline = document.regression.scores if document.regression else {}
    families = {"mean": "ruler", **{category: category for category in helmet_categories}}
    rows: list[_Row] = []
    for name, scores, markup in means:
        is_measured = any(score is not None for score in scores.values())
        if is_measured:
            rows.append((f"= {name}", [shown_number(scores[str(length)]) for length in lengths], markup))
        if known := baseline.get(family := families.get(name, "")):
            if not is_measured:
                rows.append(("= these tasks", _means_of_selection(document, family, lengths), {}))
            rows.append(("  baseline", [shown_number(known.get(str(length))) for length in lengths], {}))
    intervals = dict(zip(INTERVALS, (ruler.intervals, ruler.model_intervals), strict=True))
    for name, by_length in intervals.items():
        if all(interval is None for interval in by_length.values()):
            continue
        shown = [by_length[str(length)] for length in lengths]
        # Whole points, rounded outwards, fit a cell.
        ranges = ["-" if ends is None else f"{math.floor(ends[0])}-{math.ceil(ends[1])}" for ends in shown]
        rows.append((f"  {name}", ranges, {}))
    return rows


def _means_of_selection(document: JsonReport, family: str, lengths: Sequence[int]) -> list[str]:
    """Return the mean over a family's selected cases at each length, as that of the baseline is taken."""
    means = []
    for length in lengths:
        cases = [case for case in document.cases if family in (case.suite, case.category) and case.length == length]
        scores = [case.score for case in cases if case.score is not None]
        means.append(shown_number(fmean(scores) if scores and len(scores) == len(cases) else None))
    return means


def _row(name: str, cells: Sequence[str], width: int) -> str:
    return f"{cut_start(name, width - 1):<{width}}" + "".join(f"{cell:>{CELL_WIDTH}}" for cell in cells)


def _means(document: JsonReport) -> str:
    """Return a table of all means that were measured at any length."""
    lengths = tested_lengths(document)
    categories, average = (document.helmet.categories, document.helmet.average) if document.helmet else ({}, {})
    rows = {
        **document.ruler.aspects,
        "**RULER mean**": document.ruler.scores,
        **categories,
        "**HELMET average**": average,
        **frontier_means(document),
        **question_set_means(document),
    }
    means: list[tuple[str, ...]] = [
        (name, *(shown_number(scores.get(str(length))) for length in lengths))
        for name, scores in rows.items()
        if any(score is not None for score in scores.values())
    ]
    ruler = document.ruler
    intervals = {"RULER mean, these samples": ruler.intervals, "RULER mean, the model": ruler.model_intervals}
    means += [
        (name, *(shown_range(ends) if (ends := by_length[str(length)]) else "-" for length in lengths))
        for name, by_length in intervals.items()
        if any(interval is not None for interval in by_length.values())
    ]
    return markdown_table(("", *map(short_length, lengths)), means)


def _cases(document: JsonReport) -> str:
    """Return the scores of all cases as a table that can be unfolded."""
    lengths = tested_lengths(document)
    by_place = {(case.task, case.length): case for case in document.cases}
    cells = {place: "error" for place, case in by_place.items() if case.verdict == "error"}
    for place, case in by_place.items():
        rough, failed = "\\~" if _is_rough(case) else "", " ▼" if case.verdict == "fail" else ""
        cells.setdefault(place, f"{rough}{shown_number(case.score)}{failed}")
    rows = [
        (markdown_text(task, 40), *(cells.get((task, length), "-") for length in lengths))
        for task in dict.fromkeys(case.task for case in document.cases)
    ]
    table = markdown_table(("task", *map(short_length, lengths)), rows)
    if any(map(_is_rough, by_place.values())):
        table += f"\n\n\\~ from fewer than {FEW_SAMPLES} samples: the verdicts needed no more"
    return f"<details><summary>All {len(document.cases)} cases</summary>\n\n{table}\n\n</details>" if rows else ""


def _task_table(name: str, cases: Sequence[Any], lengths: Sequence[int], means: Mapping[str, Scores]) -> Table:
    by_place = {(case.task, case.length): case for case in cases}
    rows = [
        Row(name=task, cells=tuple(_page_cell(by_place.get((task, length))) for length in lengths))
        for task in dict.fromkeys(case.task for case in cases)
    ]
    for mean, scores in means.items():
        if any(score is not None for score in scores.values()):
            shown = [scores.get(str(length)) for length in lengths]
            cells = [Cell() if one is None else Cell(text=shown_number(one), style=f"s{shade(one)}") for one in shown]
            rows.append(Row(name=mean, kind="mean", cells=tuple(cells)))
    return score_table(name, lengths, rows)


def _page_cell(case: ReportCase | None) -> Cell:
    if case is None:
        return Cell(title="not planned")
    if case.verdict == "error":
        return Cell(
            text="error", style="error", title=one_line(case.error or "", 200), task=case.task, length=case.length
        )
    if case.score is None:
        return Cell(title="no sample was started", task=case.task, length=case.length)
    title = f"interval {both_ends(case.interval)}, {case.samples} of {case.planned} samples"
    if case.fill is not None:
        title += f", filled {case.fill[0]:.0f} % in the median, {case.fill[1]:.0f} % at least"
    is_bad = case.verdict == "fail"
    return Cell(
        text=shown_number(case.score),
        style=f"s{shade(case.score)}{' bad' if is_bad else ''}{' rough' if _is_rough(case) else ''}",
        title=f"{title}; {case.decided_by}" if is_bad else title,
        task=case.task,
        length=case.length,
    )


def _depth_table(document: JsonReport, task: str) -> Table:
    lengths = tested_lengths(document)
    bins = {
        (case.length, depth_bin.depth): depth_bin
        for case in document.cases
        if case.task == task
        for depth_bin in case.by_depth
    }
    width = 100 // DEPTH_BINS
    rows = []
    for index in range(DEPTH_BINS):
        cells = []
        for length in lengths:
            found = bins.get((length, (index + 0.5) / DEPTH_BINS))
            if found is None:
                cells.append(Cell(text=""))
                continue
            title = f"{found.samples} {'reference' if found.samples == 1 else 'references'}"
            cells.append(Cell(text=f"{found.score:.0f}", style=f"s{shade(found.score)}", title=title))
        rows.append(Row(name=f"{index * width}-{(index + 1) * width} %", cells=tuple(cells)))
    return score_table(task, lengths, rows)


def _page(report: JsonReport, _: Details) -> dict[str, Any]:
    """Return a table for each of RULER, HELMET, the other suites and those of tasks files, and the tables by depth."""
    lengths, tables = tested_lengths(report), []
    ruler, helmet = report.ruler, report.helmet
    if ruler_cases := [case for case in report.cases if case.suite == "ruler"]:
        means = {f"{aspect} mean": scores for aspect, scores in ruler.aspects.items()}
        tables.append(_task_table("RULER", ruler_cases, lengths, means | {"RULER mean": ruler.scores}))
    if helmet and (cases := [case for case in report.cases if case.suite == "helmet"]):
        means = {f"{category} mean": scores for category, scores in helmet.categories.items()}
        tables.append(_task_table("HELMET", cases, lengths, means | {"HELMET average": helmet.average}))
    if means := frontier_means(report):
        cases = [case for case in report.cases if case.suite == "frontier"]
        rows = {f"{category} mean": scores for category, scores in means.items()}
        tables.append(_task_table("Frontier tasks", cases, lengths, rows))
    for suite in report.question_sets or {}:
        cases = [case for case in report.cases if case.suite == suite]
        means = {name: scores for name, scores in question_set_means(report).items() if name.startswith(f"{suite} ")}
        tables.append(_task_table(f"Questions: {suite}", cases, lengths, means))
    tasks = dict.fromkeys(case.task for case in report.cases if case.by_depth)
    return {
        "tables": tables,
        "few_samples": FEW_SAMPLES if any(map(_is_rough, report.cases)) else None,
        "depths": [_depth_table(report, task) for task in tasks],
    }


MEANS = Section(markdown=_means, page=_page)
CASES = Section(markdown=_cases)


def _is_rough(case: ReportCase) -> bool:
    """True for a case of the report with few samples, because its panel's verdict came early."""
    return 0 < case.samples < min(case.planned, FEW_SAMPLES)
