"""Tables of coloured cells: scores by task and length, by depth and length, and differences from a baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fixtures.lengths import format_length
from fixtures.records import PHASES
from fixtures.shown_text import one_line
from plugins.report.certainty import no_votes
from plugins.report.charts.colours import difference_class, shade
from plugins.report.document import DEPTH_BINS, is_rough
from plugins.report.frontier_lines import frontier_means
from plugins.report.question_sets import question_set_means

Document = Mapping[str, Any]
Scores = Mapping[str, float | None]
"""Scores by length, as in the document: the keys are strings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a table."""

    text: str = "-"
    style: str = "none"
    """The style classes of the cell, separated by spaces."""

    title: str = ""
    """The tooltip."""

    task: str = ""
    length: int | None = None
    """With the task, the case whose samples the cell links to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a table."""

    name: str
    cells: tuple[Cell, ...]
    kind: str = "task"
    """`task`, or `mean` for a mean over tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows over columns, under one heading."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def short_length(length: int | None) -> str:
    """Return a length as the terminal shows it: 8192 is 8K."""
    return "unknown" if length is None else format_length(length).upper()


def number(value: float | None, signed: bool = False) -> str:
    """Return a score with one decimal, as in every other report; differences get a sign."""
    if value is None:
        return "-"
    return f"{value:+.1f}".replace("+0.0", "0.0").replace("-0.0", "0.0") if signed else f"{value:.1f}"


def interval_text(interval: Sequence[float] | None, signed: bool = False) -> str:
    """Return both ends of an interval; a hyphen if there is none."""
    return "-" if interval is None else f"{number(interval[0], signed)} to {number(interval[1], signed)}"


def interval_unless_known(interval: Sequence[float] | None, signed: bool = False) -> str:
    """Return an interval as text; empty if both ends are shown as the same number, as for a known mean."""
    if interval is None or number(interval[0], signed) == number(interval[1], signed):
        return ""
    return interval_text(interval, signed)


def lengths_of(document: Document) -> list[int]:
    """Return the tested lengths in ascending order."""
    return sorted({case["length"] for case in document["cases"]})


def task_tables(document: Document) -> list[Table]:
    """Return a table for each of RULER, HELMET, the other suites and those of tasks files: scores, then means."""
    lengths, tables = lengths_of(document), []
    ruler, helmet = document["ruler"], document["helmet"]
    if ruler_cases := [case for case in document["cases"] if case["suite"] == "ruler"]:
        means = {f"{aspect} mean": scores for aspect, scores in ruler["aspects"].items()}
        tables.append(_task_table("RULER", ruler_cases, lengths, means | {"RULER mean": ruler["scores"]}))
    if helmet and (cases := [case for case in document["cases"] if case["suite"] == "helmet"]):
        means = {f"{category} mean": scores for category, scores in helmet["categories"].items()}
        tables.append(_task_table("HELMET", cases, lengths, means | {"HELMET average": helmet["average"]}))
    if means := frontier_means(document):
        cases = [case for case in document["cases"] if case["suite"] == "frontier"]
        rows = {f"{category} mean": scores for category, scores in means.items()}
        tables.append(_task_table("Frontier tasks", cases, lengths, rows))
    if cases := [case for case in document["cases"] if case["suite"] == PHASES]:
        tables.append(_task_table("Phase sweeps", cases, lengths, {}))
    for suite in document.get("question_sets") or {}:
        cases = [case for case in document["cases"] if case["suite"] == suite]
        means = {name: scores for name, scores in question_set_means(document).items() if name.startswith(f"{suite} ")}
        tables.append(_task_table(f"Questions: {suite}", cases, lengths, means))
    return tables


def depth_tables(document: Document) -> list[Table]:
    """Return a table of scores by depth and length for every task whose references have a depth."""
    tasks = dict.fromkeys(case["task"] for case in document["cases"] if case["by_depth"])
    return [_depth_table(document, task) for task in tasks]


def comparison(document: Document) -> dict[str, Any] | None:
    """Return the differences from the baseline: a table for each suite, and the totals; None without a baseline."""
    regression = document["regression"]
    if regression is None:
        return None
    cases = regression["cases"].values()
    return {
        "name": regression["baseline"]["name"],
        "tables": [
            _difference_table(document, suite) for suite in dict.fromkeys(case["suite"] for case in document["cases"])
        ],
        "no_votes": no_votes(document),
        **{count: sum(case[count] for case in cases) for count in ("worse", "better", "pairs")},
    }


def _task_table(name: str, cases: Sequence[Any], lengths: Sequence[int], means: Mapping[str, Scores]) -> Table:
    by_place = {(case["task"], case["length"]): case for case in cases}
    rows = [
        Row(name=task, cells=tuple(_case_cell(by_place.get((task, length))) for length in lengths))
        for task in dict.fromkeys(case["task"] for case in cases)
    ]
    rows += [
        Row(name=mean, kind="mean", cells=tuple(_mean_cell(scores.get(str(length))) for length in lengths))
        for mean, scores in means.items()
        if any(score is not None for score in scores.values())
    ]
    return _table(name, lengths, rows)


def _case_cell(case: Mapping[str, Any] | None) -> Cell:
    if case is None:
        return Cell(title="not planned")
    place = {"task": case["task"], "length": case["length"]}
    if case["verdict"] == "error":
        return Cell(text="error", style="error", title=one_line(case["error"] or "", 200), **place)
    if case["score"] is None:
        return Cell(title="no sample was started", **place)
    title = f"interval {interval_text(case['interval'])}, {case['samples']} of {case['planned']} samples"
    is_bad = case["verdict"] == "fail"
    return Cell(
        text=number(case["score"]),
        style=f"s{shade(case['score'])}{' bad' if is_bad else ''}{' rough' if is_rough(case) else ''}",
        title=f"{title}; {case['decided_by']}" if is_bad else title,
        **place,
    )


def _mean_cell(score: float | None) -> Cell:
    return Cell() if score is None else Cell(text=number(score), style=f"s{shade(score)}")


def _depth_table(document: Document, task: str) -> Table:
    lengths = lengths_of(document)
    bins = {
        (case["length"], depth_bin["depth"]): depth_bin
        for case in document["cases"]
        if case["task"] == task
        for depth_bin in case["by_depth"]
    }
    width = 100 // DEPTH_BINS
    rows = [
        Row(
            name=f"{index * width}-{(index + 1) * width} %",
            cells=tuple(_depth_cell(bins.get((length, (index + 0.5) / DEPTH_BINS))) for length in lengths),
        )
        for index in range(DEPTH_BINS)
    ]
    return _table(task, lengths, rows)


def _depth_cell(depth_bin: Mapping[str, Any] | None) -> Cell:
    if depth_bin is None:
        return Cell(text="")
    count = depth_bin["samples"]
    title = f"{count} {'reference' if count == 1 else 'references'}"
    return Cell(text=f"{depth_bin['score']:.0f}", style=f"s{shade(depth_bin['score'])}", title=title)


def _difference_table(document: Document, suite: str) -> Table:
    lengths = lengths_of(document)
    ids = {(case["task"], case["length"]): case["id"] for case in document["cases"]}
    tasks = dict.fromkeys(case["task"] for case in document["cases"] if case["suite"] == suite)
    differences = document["regression"]["cases"]
    rows = [
        Row(
            name=task,
            cells=tuple(_difference_cell(differences.get(ids.get((task, length))), task, length) for length in lengths),
        )
        for task in tasks
    ]
    return _table(suite.upper(), lengths, rows)


def _difference_cell(case: Mapping[str, Any] | None, task: str, length: int) -> Cell:
    if case is None or case["difference"] is None:
        return Cell()
    pairs = f"{case['worse']} worse, {case['better']} better of {case['pairs']} pairs"
    if case["no_vote"]:
        pairs += f"; {case['no_vote']}: no vote"
    return Cell(
        text=number(case["difference"], signed=True) + (" =" if case["no_vote"] else ""),
        style=difference_class(case["difference"]) + (" bad" if case["dropped"] else ""),
        title=f"interval {interval_text(case['interval'], signed=True)}; {pairs}",
        task=task,
        length=length,
    )


def _table(name: str, lengths: Iterable[int], rows: Iterable[Row]) -> Table:
    return Table(name=name, columns=tuple(map(short_length, lengths)), rows=tuple(rows))
