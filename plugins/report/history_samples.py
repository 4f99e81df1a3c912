"""The samples of many runs, as the page of a history lists them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fixtures.outside_files import read_outside
from fixtures.shown_text import visible_data
from plugins.report.history import Report

BUDGET_BYTES = 5_000_000
"""The most bytes of samples on the page; every report gets an equal share."""

DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)
Row = dict[str, Any]
"""A row as the page's script takes it; `run` names its step."""


def page_of(report: Report) -> Path | None:
    """Return the HTML page of a report, which has the same name; None if there is none."""
    page = report.path.with_suffix(".html")
    return page if page.is_file() else None


def samples_of_runs(reports: Sequence[Report], labels: Sequence[str], budget_bytes: int = BUDGET_BYTES) -> list[Row]:
    """Return samples of every report, wrong ones first: those of its page, or else the examples of the report."""
    share = budget_bytes // max(1, len(reports))
    rows: list[Row] = []
    for report, label in zip(reports, labels, strict=True):
        page = page_of(report)
        found = (_rows_of_page(page) if page is not None else None) or list(_examples(report.document))
        rows += _within(({**row, "run": f"step {label}"} for row in found), share)
    return sorted(rows, key=_is_right)


def _is_right(row: Row) -> bool:
    score = row.get("score")
    return score is not None and score >= 100


def _rows_of_page(page: Path) -> list[Row] | None:
    """Return the rows that a page carries; None for a file that is no such page."""
    try:
        match = DATA.search(read_outside(page).decode("utf-8", errors="replace"))
        rows = visible_data(json.loads(match[1]))["rows"] if match else None
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return None
    return rows if isinstance(rows, list) and all(map(_is_row, rows)) else None


def _is_row(row: Any) -> bool:
    if not isinstance(row, dict) or not isinstance(row.get("task"), str):
        return False
    numbers = all(isinstance(row.get(name), int) for name in ("length", "index"))
    lists = all(isinstance(row.get(name), list) for name in ("expected", "credits"))
    return numbers and lists and isinstance(row.get("score"), int | float | None) and isinstance(row.get("answer"), str)


def _examples(document: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the wrong samples that a report names; it has neither their scores nor their questions."""
    for case in document["cases"]:
        for example in case["examples"]:
            row = {"task": case["task"], "length": case["length"], "index": example["index"], "score": None}
            row |= {"expected": example["expected"], "credits": [-1] * len(example["expected"])}
            row |= {"answer": example["got"], "failure": example["failure"]}
            yield row if example["depth"] is None else row | {"depth": example["depth"]}


def _within(rows: Iterator[Row], budget_bytes: int) -> Iterator[Row]:
    """Yield rows until they fill the budget."""
    for row in rows:
        budget_bytes -= len(json.dumps(row))
        if budget_bytes < 0:
            return
        yield row
