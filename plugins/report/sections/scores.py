"""The scores by task and length, by depth, and the means over tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from longctx.fixtures.records.report import HelmetSummary, JsonReport, ReportCase
from longctx.fixtures.shown_text import one_line
from longctx.plugins.report.charts.svg import shade
from longctx.plugins.report.formats import (
    DEPTH_BINS,
    FEW_SAMPLES,
    both_ends,
    plural,
    short_length,
    shown_number,
    shown_range,
    tested_lengths,
)
from longctx.plugins.report.sections.suites import QUESTIONS_TEST, Mean, means
from longctx.plugins.report.tables import Cell, Note, Row, Table

TITLES = {"ruler": "RULER", "helmet": "HELMET", "frontier": "Frontier tasks"}
# The totals of the suites in the terminal, where all are in one table.
SHORT_TOTALS = {"ruler": "mean", "helmet": "HELMET"}
# A case whose prompts take less of the length, in percent, measures less than its name says.
LOW_FILL, MOST_NAMED = 75, 3
INTERVALS = ("these samples", "the model")


def is_rough(case: ReportCase) -> bool:
    """True for a case of the report with few samples, because its panel's verdict came early."""
    return 0 < case.samples < min(case.planned, FEW_SAMPLES)


def suite_tables(document: JsonReport) -> list[Table]:
    """Return the scores and means of every suite by task and length."""
    tables = []
    for suite in dict.fromkeys(case.suite for case in document.cases):
        cases = [case for case in document.cases if case.suite == suite]
        rows = [*case_table(document, cases).rows]
        for mean in means(document):
            if mean.suite == suite:
                rows.append(_mean_row(document, mean, mean.title if mean.is_total else f"{mean.title} mean"))
        tables.append(_table(document, TITLES.get(suite, f"Questions: {suite}"), rows))
    return tables


def case_table(document: JsonReport, cases: Sequence[ReportCase]) -> Table:
    """Return the scores of cases by task and length."""
    by_place = {(case.task, case.length): case for case in cases}
    rows = []
    for task in dict.fromkeys(case.task for case in cases):
        cells = [_case_cell(by_place.get((task, length))) for length in tested_lengths(document)]
        rows.append(Row(name=task, cells=tuple(cells)))
    return _table(document, "task", rows)


def mean_table(document: JsonReport) -> Table:
    """Return all means, and the intervals of RULER's."""
    rows = [_mean_row(document, mean, mean.title) for mean in means(document)]
    for name, intervals in _ruler_intervals(document):
        shown = [shown_range(interval) if interval else "-" for interval in intervals]
        rows.append(_text_row(f"RULER mean, {name}", shown))
    return _table(document, "", rows)


def whole_table(document: JsonReport) -> Table:
    """Return all tasks and all means in one table, each mean with the baseline's, and the intervals of RULER's."""
    rows = []
    for row in case_table(document, document.cases).rows:
        # An asterisk marks the tasks that a calibration checkpoint solves.
        is_solved = row.name in document.model.solved_tasks
        rows.append(Row(name=f"{row.name} *" if is_solved else row.name, cells=row.cells))
    left = _baselines(document)
    for mean in sorted(means(document), key=lambda mean: (mean.is_total, mean.is_total and mean.suite)):
        rows.append(_mean_row(document, mean, f"= {SHORT_TOTALS[mean.suite] if mean.is_total else mean.title}"))
        family = "ruler" if mean.is_total and mean.suite == "ruler" else mean.name
        rows += [left.pop(family)] if family in left else []
    # The baseline is compared with the selected tasks where a mean over all of a family is not known.
    for family, baseline in left.items():
        rows += [_text_row("= these tasks", _means_of_selection(document, family)), baseline]
    for name, intervals in _ruler_intervals(document):
        # Whole points, rounded outwards, fit a cell.
        ranges = ["-" if ends is None else f"{math.floor(ends[0])}-{math.ceil(ends[1])}" for ends in intervals]
        rows.append(_text_row(f"  {name}", ranges))
    if document.ruler.wavg_inc is not None:
        rows.append(_text_row("= wAvg", [f"inc {document.ruler.wavg_inc:.1f}, dec {document.ruler.wavg_dec:.1f}"]))
    return _table(document, "score", rows)


def whole_table_notes(document: JsonReport) -> list[Note]:
    """Return what stands below the table of all tasks and means."""
    texts = []
    if _ruler_intervals(document):
        texts.append(
            f"{' and '.join(INTERVALS)}: intervals of the mean over the planned samples, and over unlimited ones"
        )
    if any(map(is_rough, document.cases)):
        texts.append(f"~ from fewer than {FEW_SAMPLES} samples: the verdicts needed no more; --full measures all")
    low = []
    for case in document.cases:
        # Questions of tasks files need not fill their length.
        if case.fill is not None and case.fill[0] < LOW_FILL and not case.id.startswith(QUESTIONS_TEST):
            low.append(f"{case.task} at {short_length(case.length)} {case.fill[0]:.0f} % ({case.fill[1]:.0f} %)")
    if low:
        more = f"; {len(low) - MOST_NAMED} more" if len(low) > MOST_NAMED else ""
        texts.append(f"filled in the median (at least): {'; '.join(low[:MOST_NAMED])}{more}")
    return [Note(text=text) for text in texts]


def depth_tables(document: JsonReport) -> list[Table]:
    """Return the mean scores of references by depth and length, a table for each task with any."""
    width = 100 // DEPTH_BINS
    tables = []
    for task in dict.fromkeys(case.task for case in document.cases if case.by_depth):
        cells: dict[tuple[int, float], Cell] = {}
        for case in document.cases:
            for found in case.by_depth if case.task == task else ():
                title = plural(found.samples, "reference", "references")
                cells[case.length, found.depth] = Cell(
                    text=f"{found.score:.0f}", style=f"s{shade(found.score)}", title=title
                )
        rows = []
        for tenth in range(DEPTH_BINS):
            depth, name = (tenth + 0.5) / DEPTH_BINS, f"{tenth * width}-{(tenth + 1) * width} %"
            row = [cells.get((length, depth), Cell(text="")) for length in tested_lengths(document)]
            rows.append(Row(name=name, cells=tuple(row)))
        tables.append(_table(document, task, rows))
    return tables


def category_bars(helmet: HelmetSummary, length: int) -> list[dict[str, Any]]:
    """Return HELMET's categories at a length, each with its interval or what its score lacks."""
    key, bars = str(length), list[dict[str, Any]]()
    for category, scores in helmet.categories.items():
        score, missing = scores.get(key), helmet.missing.get(category, {}).get(key, {})
        interval = None if score is None else helmet.intervals.get(category, {}).get(key)
        # Both ends are the same number if the mean is known.
        is_known = interval is not None and shown_number(interval[0]) == shown_number(interval[1])
        reasons = "; ".join(f"{dataset}: {reason}" for dataset, reason in missing.items())
        text = "" if interval is None or is_known else both_ends(interval)
        bars.append({
            "name": category, "score": score, "interval": interval, "interval_text": text,
            "missing": one_line(reasons, 160),
        })  # fmt: skip
    return bars


def _table(document: JsonReport, name: str, rows: Sequence[Row]) -> Table:
    return Table(name=name, columns=tuple(map(short_length, tested_lengths(document))), rows=tuple(rows))


def _text_row(name: str, texts: Sequence[str]) -> Row:
    return Row(name=name, cells=tuple(Cell(text=text) for text in texts))


def _mean_row(document: JsonReport, mean: Mean, name: str) -> Row:
    cells = []
    for length in tested_lengths(document):
        score = mean.scores.get(str(length))
        cells.append(Cell() if score is None else Cell(text=shown_number(score), style=f"s{shade(score)}"))
    return Row(name=name, cells=tuple(cells), kind="total" if mean.is_total else "mean")


def _case_cell(case: ReportCase | None) -> Cell:
    if case is None:
        return Cell(title="not planned")
    if case.verdict == "error":
        reason = one_line(case.error or "", 200)
        return Cell(text="error", style="error", title=reason, task=case.task, length=case.length)
    if case.score is None:
        return Cell(title="no sample was started", task=case.task, length=case.length)
    title = f"interval {both_ends(case.interval)}, {case.samples} of {case.planned} samples"
    if case.fill is not None:
        title += f", filled {case.fill[0]:.0f} % in the median, {case.fill[1]:.0f} % at least"
    styles = [f"s{shade(case.score)}"]
    if case.verdict == "fail":
        title += f"; {case.decided_by}"
        styles.append("bad")
    if is_rough(case):
        styles.append("rough")
    return Cell(
        text=shown_number(case.score), style=" ".join(styles), title=title, task=case.task, length=case.length
    )  # fmt: skip


def _baselines(document: JsonReport) -> dict[str, Row]:
    """Return a row with the baseline's mean for RULER and for each of HELMET's categories, where it is known."""
    rows = {}
    for family in ("ruler", *(document.helmet.categories if document.helmet else ())):
        known = document.regression.scores.get(family) if document.regression else None
        if known:
            texts = [shown_number(known.get(str(length))) for length in tested_lengths(document)]
            rows[family] = _text_row("  baseline", texts)
    return rows


def _means_of_selection(document: JsonReport, family: str) -> list[str]:
    """Return the mean over a family's selected cases at each length, as that of the baseline is taken."""
    found = []
    for length in tested_lengths(document):
        cases = [case for case in document.cases if family in (case.suite, case.category) and case.length == length]
        scores = [case.score for case in cases if case.score is not None]
        found.append(shown_number(fmean(scores) if scores and len(scores) == len(cases) else None))
    return found


def _ruler_intervals(document: JsonReport) -> list[tuple[str, list[tuple[float, float] | None]]]:
    """Return the intervals of RULER's mean by length, over the planned samples and of the model, where known."""
    ruler, found = document.ruler, []
    for name, by_length in zip(INTERVALS, (ruler.intervals, ruler.model_intervals), strict=True):
        if any(interval is not None for interval in by_length.values()):
            found.append((name, [by_length.get(str(length)) for length in tested_lengths(document)]))
    return found
