"""The scores by task and length, by depth, and the means over tasks; wrong answers by their kind of failure."""

import math
from collections import Counter
from collections.abc import Sequence

from longctx.fixtures.lengths import format_length
from longctx.fixtures.records.report import HelmetSummary, JsonReport, ReportCase
from longctx.fixtures.records.report_parts import IntervalsByLength
from longctx.fixtures.shown_text import one_line
from longctx.plugins.report.charts import MOST_LINES, Series, difference_class, series_of, shade
from longctx.plugins.report.sections.suites import FRONTIER, NOT_SELECTED, QUESTIONS_TEST, Mean, means
from longctx.plugins.report.tables import (
    DEPTH_BINS,
    FEW_SAMPLES,
    Cell,
    Note,
    Row,
    Table,
    counted,
    notes,
    shares_text,
    short_length,
    shown_interval,
    shown_number,
    tested_lengths,
    text_row,
)

RULER, HELMET = "ruler", "helmet"
TITLES = {RULER: "RULER", HELMET: "HELMET", FRONTIER: "Frontier tasks", "tasks": "Tasks"}
# A case whose prompts take less of the length, in percent, measures less than its name says.
LOW_FILL, MOST_NAMED = 75, 3
MOST_KINDS = 2
# Kinds of failure from nearly right to no answer at all.
RIGHT = "right"
ORDER = (
    RIGHT, "right but wordy", "incomplete", "distractor", "wrong instance", "copied", "from memory", "wrong", "refused",
    "unfinished thinking", "empty",
)  # fmt: skip


def is_rough(case: ReportCase) -> bool:
    """True for a case of the report with few samples, because its panel's verdict came early."""
    return 0 < case.samples < min(case.planned, FEW_SAMPLES)


def score_tables(document: JsonReport) -> list[Table]:
    """Return the scores of every suite by task and length, and the means, each above its baseline.

    Where a mean over all of a family is not known, the baseline's mean over the selected tasks stands alone.
    """
    tables, baselines = [], _baselines(document)
    for suite in dict.fromkeys(case.suite for case in document.cases):
        rows = _task_rows(document, suite)
        families = {case.category for case in document.cases if case.suite == suite} | {suite}
        for mean in means(document):
            if mean.suite == suite:
                rows.append(_mean_row(document, mean))
                family = suite if mean.is_total else mean.name
                rows += [baselines.pop(family)] if family in baselines else []
        rows += [baselines.pop(family) for family in [*baselines] if family in families]
        name = TITLES.get(suite, f"Questions: {suite}")
        tables.append(_table(document, name, rows, corner="score"))
    return tables


def _task_rows(document: JsonReport, suite: str) -> list[Row]:
    confidence = at_confidence(document)
    by_task: dict[str, dict[int, ReportCase]] = {}
    for case in document.cases:
        if case.suite == suite:
            by_task.setdefault(case.task, {})[case.length] = case
    rows = []
    for task, by_length in by_task.items():
        cells = [_case_cell(by_length.get(length), confidence) for length in tested_lengths(document)]
        rows.append(Row(name=task, cells=tuple(cells)))
    return rows


def score_notes(document: JsonReport) -> list[Note]:
    texts = []
    if any(map(is_rough, document.cases)):
        texts.append(f"~ from fewer than {FEW_SAMPLES} samples: the verdicts needed no more; --full measures all")
    low = []
    for case in document.cases:
        # Questions of tasks files need not fill their length.
        if case.fill is not None and case.fill[0] < LOW_FILL and not case.id.startswith(QUESTIONS_TEST):
            median, least = case.fill
            low.append(f"{case.task} at {short_length(case.length)} {median:.0f} % ({least:.0f} %)")
    if low:
        texts.append(f"filled in the median (at least): {counted(low, MOST_NAMED)}")
    lacking = _lacking_data_sets(document.helmet) if document.helmet else []
    if lacking and any(mean.suite == HELMET for mean in means(document)):
        texts.append(f"categories without a score: {counted(lacking, MOST_NAMED)}")
    return notes("scores", texts)


def _lacking_data_sets(helmet: HelmetSummary) -> list[str]:
    lacking = []
    for category, by_length in helmet.missing.items():
        for length, reasons in by_length.items():
            place = f"{category} at {short_length(int(length))}"
            for data_set, reason in reasons.items():
                if reason != NOT_SELECTED:
                    lacking.append(f"{place} lacks {data_set}: {one_line(reason, 100)}")
    return lacking


def at_confidence(document: JsonReport) -> str:
    """Return the confidence of the intervals of cases and of RULER's means as text; empty if it is not known."""
    confidence = document.run.confidence
    return "" if confidence is None else f" at {100 * confidence:.4g} % confidence"


def setting_series(document: JsonReport) -> dict[str, list[Series]]:
    """Return the scores over length of the tasks of each category of tasks files that has a few.

    Those of `--suite ruler-sweeps` are one factor each, with a line for each setting (RULER, Figures 2 and 3).
    """
    by_category: dict[str, dict[str, dict[int, ReportCase]]] = {}
    for case in document.cases:
        if case.id.startswith(QUESTIONS_TEST):
            by_category.setdefault(case.category, {}).setdefault(case.task, {})[case.length] = case
    groups = {}
    for category, tasks in by_category.items():
        series = []
        for task, by_length in tasks.items():
            cases = [by_length.get(length) for length in tested_lengths(document)]
            series.append(series_of(task, cases, "score"))
        measured = [one for one in series if one.is_measured]
        if 1 < len(measured) <= MOST_LINES:
            groups[category] = measured
    return groups


def part_table(document: JsonReport) -> Table:
    """Return the means of the parts of scores, such as correctness, citations, and ROUGE-L beside a judge's score."""
    by_part: dict[str, dict[int, float]] = {}
    for case in document.cases:
        for part, mean in case.parts.items():
            by_part.setdefault(f"{case.task}: {part.replace('_', '-')}", {})[case.length] = mean
    rows = []
    for name, means_at in by_part.items():
        rows.append(text_row(name, *(shown_number(means_at.get(length)) for length in tested_lengths(document))))
    return _table(document, "Parts of scores", rows, corner="part")


def depth_tables(document: JsonReport) -> list[Table]:
    """Return the mean scores of references by depth and length, a table for each task with any."""
    cells: dict[str, dict[tuple[int, int], Cell]] = {}
    for case in document.cases:
        for part in case.by_depth:
            place = int(part.depth * DEPTH_BINS), case.length
            shown = Cell(text=f"{part.score:.0f}", style=f"s{shade(part.score)}")
            cells.setdefault(case.task, {})[place] = shown
    width, empty = 100 // DEPTH_BINS, Cell(text="")
    tables = []
    for task, by_place in cells.items():
        rows = []
        for tenth in range(DEPTH_BINS):
            row = [by_place.get((tenth, length), empty) for length in tested_lengths(document)]
            rows.append(Row(name=f"{tenth * width}-{(tenth + 1) * width} %", cells=tuple(row)))
        tables.append(_table(document, task, rows, corner="depth"))
    return tables


def _table(document: JsonReport, name: str, rows: Sequence[Row], corner: str) -> Table:
    columns = tuple(map(short_length, tested_lengths(document)))
    return Table(name=name, corner=corner, columns=columns, rows=tuple(rows))


def _mean_row(document: JsonReport, mean: Mean) -> Row:
    intervals: IntervalsByLength = {}
    name = f"{TITLES[mean.suite]} {mean.name}" if mean.is_total else f"{mean.name} mean"
    if mean.is_total and mean.suite == RULER:
        intervals = document.ruler.model_intervals
    cells = []
    for length in map(str, tested_lengths(document)):
        cells.append(_mean_cell(mean.scores.get(length), intervals.get(length)))
    return Row(name=name, cells=tuple(cells), kind="total" if mean.is_total else "mean")


def _mean_cell(score: float | None, ends: tuple[float, float] | None) -> Cell:
    if score is None:
        return Cell()
    # Whole points, rounded outwards, fit a cell.
    interval = "" if ends is None else f"{math.floor(ends[0])}-{math.ceil(ends[1])}"
    return Cell(text=shown_number(score), style=f"s{shade(score)}", interval=interval)


def _case_cell(case: ReportCase | None, confidence: str) -> Cell:
    if case is None:
        return Cell(title="not planned")
    if case.verdict == "error":
        reason = one_line(case.error or "", 200)
        return Cell(text="error", style="error", title=reason, task=case.task, length=case.length)
    if case.score is None:
        return Cell(title="no sample was started", task=case.task, length=case.length)
    title = f"interval {shown_interval(case.interval)}{confidence}, {case.samples} of {case.planned} samples"
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
    for family, scores in document.regression.scores.items() if document.regression else ():
        texts = [shown_number(scores.get(str(length))) for length in tested_lengths(document)]
        rows[family] = text_row("baseline", *texts, kind="detail")
    return rows


def lowest_table(document: JsonReport, most: int) -> Table:
    """Return the cases with the lowest scores, each with its most frequent failures and its first wrong answer."""
    wrong = [case for case in document.cases if case.examples]
    wrong.sort(key=lambda case: (case.score or 0, case.length))
    has_questions = any(case.examples[0].question for case in wrong[:most])
    rows = []
    for case in wrong[:most]:
        example, kinds = case.examples[0], Counter(case.failures).most_common(MOST_KINDS)
        texts = [shown_number(case.score), shares_text(kinds)]
        if has_questions:
            texts.append(one_line(example.question, 60))
        texts += [one_line(", ".join(example.expected), 60), one_line(example.got, 80) or "(empty)"]
        name = f"{case.task}-{format_length(case.length)}" if case.length else case.task
        rows.append(text_row(name, *texts))
    columns = ("score", "failures", *(["question"] if has_questions else []), "expected", "answer")
    return Table(name="Lowest-scoring cases", corner="lowest", columns=columns, rows=tuple(rows), is_wordy=True)


def failure_table(document: JsonReport) -> Table:
    """Return how many samples of every suite and length have which result; failures are shaded by their share."""
    by_suite: dict[str, dict[int, Counter[str]]] = {}
    for case in document.cases:
        counts = by_suite.setdefault(case.suite, {}).setdefault(case.length, Counter())
        counts.update(case.failures)
        counts[RIGHT] += case.samples - sum(case.failures.values())
    results = {}
    for suite, by_length in by_suite.items():
        for length, counts in sorted(by_length.items()):
            if counts.total():
                results[f"{suite} {short_length(length)}"] = counts
    kinds = [kind for kind in ORDER if any(counts[kind] for counts in results.values())]
    rows = []
    for name, counts in results.items():
        cells = []
        for kind in kinds:
            share = 100 * counts[kind] / counts.total()
            style = "none" if kind == RIGHT or not share else difference_class(-share)
            cells.append(Cell(text=f"{counts[kind]:,}" if share else "", style=style))
        rows.append(Row(name=name, cells=(*cells, Cell(text=f"{counts.total():,}"))))
    return Table(name="Kinds of failure by length", corner="samples", columns=(*kinds, "all"), rows=tuple(rows))
