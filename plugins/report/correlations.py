"""Which scores go together over many checkpoints, as in HELMET's analysis (Yen et al. 2025, §3).

It holds the rank correlations of RULER, HELMET, its categories and single data sets, and those of their changes from
step to step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from longctx.fixtures.records.report import JsonReport
from longctx.fixtures.shown_text import one_line
from longctx.plugins.report.charts.bars import IntervalRow
from longctx.plugins.thresholds.records import CATEGORIES

RULER, HELMET = "RULER", "HELMET"
MEASURES = (RULER, HELMET, *CATEGORIES)
FEWEST_CHECKPOINTS = 4
NORMAL_95 = 1.959964
SHOWN_NAME = 40

ByLength = Mapping[str, float | None]
"""Scores by length in tokens; None where nothing was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlations:
    """The part of a history's page about what goes together."""

    checkpoints: tuple[tuple[str, tuple[str, ...]], ...]
    """The name of each checkpoint, and its scores in the order of `measures`."""
    measures: tuple[str, ...]
    missing: str
    """The measures that not all checkpoints have at a common length; empty if none is missing."""
    groups: tuple[tuple[str, tuple[IntervalRow, ...]], ...]
    """Correlations of scores, and of their changes from step to step, by heading; none for few checkpoints."""
    data_sets: tuple[tuple[str, tuple[str, ...]], ...]
    """The correlations of every data set with all of them, in one order."""


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
    scores = {name: _known(common_means([table.get(name, {}) for table in tables])) for name in MEASURES}
    measures = [name for name in MEASURES if scores[name]]
    missing = [name for name in MEASURES if not scores[name]]
    return Correlations(
        checkpoints=tuple(
            (_name(document), tuple(f"{scores[name][place]:.1f}" for name in measures))
            for place, document in enumerate(latest)
        ),
        measures=tuple(measures),
        missing=", ".join(missing),
        groups=tuple(group for group in _groups({name: scores[name] for name in measures}, latest) if group[1]),
        data_sets=_between_data_sets(latest),
    )


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


def _groups(
    scores: Mapping[str, Sequence[float]], documents: Sequence[JsonReport]
) -> Iterator[tuple[str, tuple[IntervalRow, ...]]]:
    others = [name for name in scores if name not in (RULER, HELMET)]
    if HELMET in scores:
        yield "with HELMET", tuple(_with(HELMET, scores, [*scores]))
    if RULER in scores:
        yield "with RULER", tuple(_with(RULER, scores, others))
    yield "between categories", tuple(_pairs({name: scores[name] for name in others}))
    # HELMET's mean moves with its parts.
    moves = {name: _moves(values, documents) for name, values in scores.items() if name != HELMET}
    yield "of changes from step to step", tuple(row for row in _pairs(moves) if row.low > 0 or row.high < 0)


def _moves(values: Sequence[float], documents: Sequence[JsonReport]) -> list[float]:
    """Return the changes of a score from each step to the next; the documents are in the order of their steps."""
    known = [value for value, document in zip(values, documents, strict=True) if document.run.step is not None]
    return [after - before for before, after in pairwise(known)]


def _with(measure: str, scores: Mapping[str, Sequence[float]], others: Sequence[str]) -> Iterator[IntervalRow]:
    for name in others:
        row = correlation(name, scores[measure], scores[name]) if name != measure else None
        if row is not None:
            yield row


def _pairs(scores: Mapping[str, Sequence[float]]) -> Iterator[IntervalRow]:
    for first, second in combinations(scores, 2):
        row = correlation(f"{first}, {second}", scores[first], scores[second])
        if row is not None:
            yield row


def correlation(name: str, first: Sequence[float], second: Sequence[float]) -> IntervalRow | None:
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
    return IntervalRow(name=name, value=value, low=math.tanh(centre - spread), high=math.tanh(centre + spread))


def _between_data_sets(documents: Sequence[JsonReport]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return a table of the correlations between all data sets that every checkpoint has; empty for fewer than two."""
    tables: list[dict[str, dict[str, float | None]]] = []
    for document in documents:
        by_task: dict[str, dict[str, float | None]] = {}
        for case in document.cases:
            by_task.setdefault(case.task, {})[str(case.length)] = case.score
        tables.append(by_task)
    scores = {task: _known(common_means([table.get(task, {}) for table in tables])) for task in tables[0]}
    shown = {task: values for task, values in scores.items() if len(set(values)) > 1}
    if len(shown) < 2 or len(documents) < FEWEST_CHECKPOINTS:
        return ()
    rows = []
    for task, values in shown.items():
        found = [correlation(other, values, shown[other]) for other in shown]
        rows.append((task, tuple("-" if row is None else f"{row.value:+.2f}" for row in found)))
    return tuple(rows)
