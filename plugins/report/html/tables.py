"""Tables of coloured cells: scores by task and length, by depth and length, and differences to a baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fixtures.lengths import format_length
from plugins.report.charts import difference_class, shade
from plugins.report.document import is_rough
from plugins.report.escape import one_line, visible

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One place of a table: what it says, its style, what more there is to say, and the case it is of."""

    text: str = "-"
    style: str = "none"
    title: str = ""
    task: str = ""
    length: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`kind` is "task" or "mean"."""

    name: str
    cells: tuple[Cell, ...]
    kind: str = "task"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows over columns, under one heading."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def short_length(length: int | None) -> str:
    """8192 is 8K, as the terminal writes it."""
    return "unknown" if length is None else format_length(length).upper()


def number(value: float | None, sign: bool = False) -> str:
    """One decimal, as every other report has it."""
    if value is None:
        return "-"
    return f"{value:+.1f}".replace("+0.0", "0.0").replace("-0.0", "0.0") if sign else f"{value:.1f}"


def bounds(interval: Sequence[float] | None, sign: bool = False) -> str:
    return "-" if interval is None else f"{number(interval[0], sign)} to {number(interval[1], sign)}"


def lengths_of(document: Document) -> list[int]:
    return sorted({case["length"] for case in document["cases"]})


def task_tables(document: Document) -> list[Table]:
    """Tasks by length: RULER's with the means of its aspects, each of HELMET's categories with its own."""
    lengths, tables = lengths_of(document), []
    ruler, helmet = document["ruler"], document["helmet"]
    if ruler_cases := [case for case in document["cases"] if case["suite"] == "ruler"]:
        means = {f"{aspect} mean": scores for aspect, scores in ruler["aspects"].items()} | {
            "RULER mean": ruler["scores"]
        }
        tables.append(_task_table("RULER", ruler_cases, lengths, means))
    if helmet:
        cases = [case for case in document["cases"] if case["suite"] == "helmet"]
        means = {f"{category} mean": scores for category, scores in helmet["categories"].items()}
        tables.append(_task_table("HELMET", cases, lengths, means | {"HELMET average": helmet["average"]}))
    return tables


def _task_table(name: str, cases: Sequence[Any], lengths: Sequence[int], means: Mapping[str, Any]) -> Table:
    by_place = {(case["task"], case["length"]): case for case in cases}
    rows = [
        Row(name=task, cells=tuple(_case_cell(by_place.get((task, length))) for length in lengths))
        for task in dict.fromkeys(case["task"] for case in cases)
    ]
    rows += [
        Row(name=mean, kind="mean", cells=tuple(_score_cell(scores.get(str(length))) for length in lengths))
        for mean, scores in means.items()
        if any(score is not None for score in scores.values())
    ]
    return Table(name=name, columns=tuple(map(short_length, lengths)), rows=tuple(rows))


def _case_cell(case: Mapping[str, Any] | None) -> Cell:
    if case is None:
        return Cell(title="not planned")
    place = {"task": case["task"], "length": case["length"]}
    if case["verdict"] == "error":
        return Cell(text="error", style="error", title=one_line(case["error"] or "", 200), **place)
    if case["score"] is None:
        return Cell(title="no sample was begun", **place)
    said = f"{bounds(case['interval'])}, {case['samples']} of {case['planned']} samples"
    bad = case["verdict"] == "fail"
    return Cell(
        text=number(case["score"]),
        style=f"s{shade(case['score'])}{' bad' if bad else ''}{' rough' if is_rough(case) else ''}",
        title=f"{said}{'; ' + case['decided_by'] if bad else ''}",
        **place,
    )


def _score_cell(score: float | None, title: str = "") -> Cell:
    return Cell(title=title) if score is None else Cell(text=number(score), style=f"s{shade(score)}", title=title)


def depth_tables(document: Document) -> list[Table]:
    """For each task whose references have a place: tenths of the context by length."""
    lengths, tables = lengths_of(document), []
    for task in dict.fromkeys(case["task"] for case in document["cases"] if case["by_depth"]):
        found = {
            (case["length"], each["depth"]): each
            for case in document["cases"]
            if case["task"] == task
            for each in case["by_depth"]
        }
        tables.append(
            Table(
                name=task,
                columns=tuple(map(short_length, lengths)),
                rows=tuple(
                    Row(
                        name=f"{tenth * 10}-{tenth * 10 + 10} %",
                        cells=tuple(_depth_cell(found.get((length, (tenth + 0.5) / 10))) for length in lengths),
                    )
                    for tenth in range(10)
                ),
            )
        )
    return tables


def _depth_cell(found: Mapping[str, Any] | None) -> Cell:
    if found is None:
        return Cell(text="")
    return Cell(text=f"{found['score']:.0f}", style=f"s{shade(found['score'])}", title=f"{found['samples']} asked")


def comparison(document: Document) -> dict[str, Any] | None:
    """The differences to the baseline, by task and length."""
    regression = document["regression"]
    if regression is None:
        return None
    lengths = lengths_of(document)
    ids = {(case["task"], case["length"]): case["id"] for case in document["cases"]}
    cases = regression["cases"]

    def cell(task: str, length: int) -> Cell:
        found = cases.get(ids.get((task, length), ""))
        if found is None or found["difference"] is None:
            return Cell()
        said = (
            f"{bounds(found['interval'], True)}; {found['worse']} worse, {found['better']} better of {found['pairs']}"
        )
        style = difference_class(found["difference"]) + (" bad" if found["dropped"] else "")
        return Cell(text=number(found["difference"], True), style=style, title=said, task=task, length=length)

    def table(suite: str) -> Table:
        tasks = dict.fromkeys(case["task"] for case in document["cases"] if case["suite"] == suite)
        rows = tuple(Row(name=task, cells=tuple(cell(task, length) for length in lengths)) for task in tasks)
        return Table(name=suite.upper(), columns=tuple(map(short_length, lengths)), rows=rows)

    return {
        "name": visible(regression["baseline"]["name"]),
        "fingerprint": regression["baseline"]["fingerprint"],
        "drop": regression["drop"],
        "tables": [table(suite) for suite in dict.fromkeys(case["suite"] for case in document["cases"])],
        "worse": _total(cases.values(), lambda each: each["worse"]),
        "better": _total(cases.values(), lambda each: each["better"]),
        "pairs": _total(cases.values(), lambda each: each["pairs"]),
    }


def _total(cases: Iterable[Any], value: Callable[[Any], int]) -> int:
    return sum(map(value, cases))
