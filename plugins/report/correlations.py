"""Which scores go together over many checkpoints: rank correlations, as in HELMET's analysis (Yen et al. 2025, §3)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from longctx.fixtures.records.report import JsonReport
from longctx.fixtures.shown_text import one_line
from longctx.plugins.report.tables import Cell, Row, Table, text_row
from longctx.plugins.thresholds.records import CATEGORIES

RULER, HELMET = "RULER", "HELMET"
MEASURES = (RULER, HELMET, *CATEGORIES)
FEWEST_CHECKPOINTS = 4
NORMAL_95 = 1.959964
SHOWN_NAME = 40

ByLength = Mapping[str, float | None]
"""Scores by length in tokens; None where nothing was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlation:
    """Spearman's rank correlation, with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlations:
    """The part of a history's page about what goes together."""

    scores: Table
    """The scores of every checkpoint."""

    missing: str
    """The measures that not all checkpoints have at a common length; empty if none is missing."""

    measures: Table
    """The correlations between RULER, HELMET and its categories; without rows for few checkpoints."""

    data_sets: Table
    """The correlations between the data sets that every checkpoint has."""


def common_means(by_report: Sequence[ByLength]) -> list[float | None]:
    """Return the means over the lengths that all reports with any score have in common; None for the others."""
    measured = [scores for scores in by_report if any(score is not None for score in scores.values())]
    lengths = dict.fromkeys(length for scores in measured for length in scores)
    common = [length for length in lengths if all(scores.get(length) is not None for scores in measured)]
    means: list[float | None] = []
    for scores in by_report:
        known = [score for length in common if (score := scores.get(length)) is not None]
        means.append(math.fsum(known) / len(known) if known else None)
    return means


def correlations(documents: Sequence[JsonReport]) -> Correlations | None:
    """Return what goes together over the latest reports of all checkpoints; None for fewer than two checkpoints."""
    by_age = sorted(documents, key=lambda document: str(document.run.started))
    latest = [*{document.model.fingerprint: document for document in by_age}.values()]
    if len(latest) < 2:
        return None
    latest.sort(key=lambda document: (document.run.step is None, document.run.step or 0, document.model.name))
    tables = [_measures(document) for document in latest]
    known = {name: _known(common_means([table.get(name, {}) for table in tables])) for name in MEASURES}
    scores = {name: values for name, values in known.items() if values}
    rows = []
    for place, document in enumerate(latest):
        rows.append(text_row(_name(document), *(f"{values[place]:.1f}" for values in scores.values())))
    return Correlations(
        scores=Table(name="Scores by checkpoint", corner="checkpoint", columns=tuple(scores), rows=tuple(rows)),
        missing=", ".join(name for name in MEASURES if name not in scores),
        measures=_matrix("Correlations between measures", "measure", scores),
        data_sets=_matrix("Correlations between data sets", "data set", _data_sets(latest)),
    )


def _data_sets(documents: Sequence[JsonReport]) -> dict[str, list[float]]:
    """Return the scores of all data sets that every checkpoint has."""
    tables: list[dict[str, dict[str, float | None]]] = []
    for document in documents:
        by_task: dict[str, dict[str, float | None]] = {}
        for case in document.cases:
            by_task.setdefault(case.task, {})[str(case.length)] = case.score
        tables.append(by_task)
    return {task: _known(common_means([table.get(task, {}) for table in tables])) for task in tables[0]}


def _name(document: JsonReport) -> str:
    step = "" if document.run.step is None else f", step {document.run.step}"
    return one_line(document.model.name, SHOWN_NAME) + step


def _measures(document: JsonReport) -> dict[str, ByLength]:
    table: dict[str, ByLength] = {RULER: document.ruler.scores}
    if document.helmet is not None:
        table |= {HELMET: document.helmet.average, **document.helmet.categories}
    return table


def _known(values: Sequence[float | None]) -> list[float]:
    """Return the values if all are known, else nothing."""
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else []


def _matrix(name: str, corner: str, scores: Mapping[str, Sequence[float]]) -> Table:
    """Return the correlations between all scores that vary; without rows for fewer than two, or few checkpoints."""
    varied = {key: values for key, values in scores.items() if len(set(values)) > 1}
    rows = []
    for key, values in varied.items() if len(varied) > 1 else ():
        cells = []
        for other in varied:
            result = None if other == key else correlation(values, varied[other])
            text = "" if result is None else f"{result.value:+.2f}"
            interval = "" if result is None else f"{result.low:+.2f} to {result.high:+.2f}"
            cells.append(Cell(text=text, interval=interval))
        if any(cell.text for cell in cells):
            rows.append(Row(name=key, cells=tuple(cells)))
    return Table(name=name, corner=corner, columns=tuple(varied), rows=tuple(rows))


def correlation(first: Sequence[float], second: Sequence[float]) -> Correlation | None:
    """Return Spearman's correlation with its 95 % interval (Bonett and Wright 2000).

    It is None for fewer than four pairs, or if one side is constant. A perfect correlation has the interval of one with
    two neighbours swapped, since a few pairs cannot show a population value of 1.
    """
    # scipy takes half a second to import, and few pages need it.
    from scipy.stats import spearmanr

    count = len(first)
    if count < FEWEST_CHECKPOINTS or len(set(first)) == 1 or len(set(second)) == 1:
        return None
    value = float(spearmanr(first, second).statistic)
    most = 1 - 12 / (count * (count**2 - 1))
    centre = math.atanh(max(-most, min(most, value)))
    spread = NORMAL_95 * math.sqrt((1 + value**2 / 2) / (count - 3))
    return Correlation(value=value, low=math.tanh(centre - spread), high=math.tanh(centre + spread))
