"""HELMET's analysis over many checkpoints (Yen et al. 2025, §3), from their JSON reports, in Markdown and as a page.

It holds the rank correlations of categories and of RULER with HELMET, scores by depth, and categories that moved
together over the steps of a training run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

from longctx.fixtures.lengths import format_length
from longctx.fixtures.records.report import JsonReport
from longctx.fixtures.shown_text import one_line
from longctx.plugins.evidence.statistics import FEWEST_PAIRS, RankCorrelation, rank_correlation
from longctx.plugins.report.charts.intervals import IntervalRow
from longctx.plugins.report.charts.lines import Chart, chart_rows, score_chart
from longctx.plugins.report.formats import markdown_text, short_length
from longctx.plugins.report.html.page import render
from longctx.plugins.thresholds.records import CATEGORIES

RULER, HELMET = "RULER", "HELMET"
MEASURES = (RULER, HELMET, *CATEGORIES)
DEPTH_TENTHS = 10
DEPTHS = tuple((tenth + 0.5) / DEPTH_TENTHS for tenth in range(DEPTH_TENTHS))
ENDS, MIDDLE = (0, 1, 8, 9), (4, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checkpoint:
    """One checkpoint and its scores, 0 to 100: means over the lengths that all checkpoints have."""

    name: str
    step: int | None
    scores: Mapping[str, float]
    """By measure: RULER, a category, or HELMET as the mean of all categories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """The rank correlation of two measures."""

    first: str
    second: str
    correlation: RankCorrelation


@dataclass(frozen=True, slots=True, kw_only=True)
class _DepthCurve:
    """The mean score over the samples of all checkpoints and tasks at one length, by the depth of the answer."""

    length: int
    scores: tuple[float | None, ...]
    """One score for each of DEPTHS."""

    loss_in_the_middle: float | None
    """The mean of the outer fifths less that of the middle fifth, in points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes of all measures over the steps of a training run."""

    first_step: int
    last_step: int
    points: Mapping[str, float]
    """By measure, the change from the first step to the last."""

    together: tuple[_Pair, ...]
    """The pairs of measures whose changes from step to step go together, with intervals that exclude 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Analysis:
    """The numbers of many checkpoints."""

    checkpoints: tuple[_Checkpoint, ...]
    correlations: tuple[_Pair, ...]
    depths: tuple[_DepthCurve, ...]
    changes: Changes | None
    """None if fewer than two reports have a step, or if they have no measure in common."""

    missing: tuple[str, ...]
    """The measures that not all checkpoints have at a common length."""


def analyse(documents: Sequence[JsonReport], since: int | None = None) -> _Analysis:
    """Return the analysis of the latest report of each checkpoint; `since` is the first step of the changes.

    Raises ValueError for fewer than two checkpoints.
    """
    latest = {document.model.fingerprint: document for document in sorted(documents, key=_started)}
    if len(latest) < 2:
        raise ValueError(f"{len(latest)} checkpoints cannot be compared; give reports of two or more")
    checkpoints = sorted(
        _checkpoints(list(latest.values())), key=lambda one: (one.step is None, one.step or 0, one.name)
    )
    measures = checkpoints[0].scores
    return _Analysis(
        checkpoints=tuple(checkpoints),
        correlations=tuple(_correlations(measures, lambda name: [one.scores[name] for one in checkpoints])),
        depths=tuple(_depth_curves(list(latest.values()))),
        changes=_changes(checkpoints, since),
        missing=tuple(measure for measure in MEASURES if measure not in measures),
    )


def _started(document: JsonReport) -> str:
    return str(document.run.started)


def _checkpoints(documents: Sequence[JsonReport]) -> Iterator[_Checkpoint]:
    tables: list[dict[str, Mapping[str, float | None]]] = []
    for document in documents:
        tables.append({RULER: document.ruler.scores})
        if document.helmet is not None:
            tables[-1] |= {HELMET: document.helmet.average, **document.helmet.categories}
    shared = {
        measure: [
            length
            for length in tables[0].get(measure, {})
            if all(table.get(measure, {}).get(length) is not None for table in tables)
        ]
        for measure in MEASURES
    }
    for document, table in zip(documents, tables, strict=True):
        scores = {
            measure: _mean([score for one in lengths if (score := table[measure][one]) is not None])
            for measure, lengths in shared.items()
            if lengths
        }
        yield _Checkpoint(name=document.model.name, step=document.run.step, scores=scores)


def _depth_curves(documents: Sequence[JsonReport]) -> Iterator[_DepthCurve]:
    points: dict[int, dict[int, list[float]]] = {}
    for case in (case for document in documents for case in document.cases):
        for point in case.by_depth:
            tenth = min(DEPTH_TENTHS - 1, int(point.depth * DEPTH_TENTHS))
            at_depth = points.setdefault(case.length, {}).setdefault(tenth, [])
            at_depth += [point.score] * point.samples
    for length, by_tenth in sorted(points.items()):
        scores = tuple(_mean(by_tenth[tenth]) if tenth in by_tenth else None for tenth in range(DEPTH_TENTHS))
        ends, middle = ([score for tenth in tenths for score in by_tenth.get(tenth, ())] for tenths in (ENDS, MIDDLE))
        loss = _mean(ends) - _mean(middle) if ends and middle else None
        yield _DepthCurve(length=length, scores=scores, loss_in_the_middle=loss)


def _changes(checkpoints: Sequence[_Checkpoint], since: int | None) -> Changes | None:
    steps = [one for one in checkpoints if one.step is not None and one.step >= (since or 0)]
    if len(steps) < 2 or not steps[0].scores:
        return None
    first, last = steps[0], steps[-1]
    assert first.step is not None
    assert last.step is not None

    def moves(measure: str) -> list[float]:
        return [after.scores[measure] - before.scores[measure] for before, after in pairwise(steps)]

    # HELMET's mean moves with its parts.
    measures = [measure for measure in first.scores if measure != HELMET]
    return Changes(
        first_step=first.step,
        last_step=last.step,
        points={measure: last.scores[measure] - score for measure, score in first.scores.items()},
        together=tuple(pair for pair in _correlations(measures, moves) if pair.correlation.is_clear),
    )


def _correlations(
    measures: Sequence[str] | Mapping[str, float], values: Callable[[str], Sequence[float]]
) -> Iterator[_Pair]:
    for first, second in combinations(measures, 2):
        correlation = rank_correlation(values(first), values(second))
        if correlation is not None:
            yield _Pair(first=first, second=second, correlation=correlation)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def analysis_page(analysis: _Analysis) -> str:
    """Return the page as HTML."""
    measures = list(analysis.checkpoints[0].scores)
    labels = [f"{depth:.2f}" for depth in DEPTHS]
    none = [None] * len(labels)
    depths = []
    for curve in analysis.depths:
        loss = curve.loss_in_the_middle
        depths.append(
            Chart(
                name=f"at {short_length(curve.length)}",
                line=score_chart(labels, curve.scores, none, threshold=None),
                note="" if loss is None else f"ends less middle {loss:+.1f}",
                rows=chart_rows(labels, curve.scores, none),
            )
        )
    with_helmet = [pair for pair in analysis.correlations if HELMET in (pair.first, pair.second)]
    with_ruler = [pair for pair in analysis.correlations if pair.first == RULER and pair not in with_helmet]
    others = [pair for pair in analysis.correlations if pair not in with_helmet and pair not in with_ruler]
    correlations = {
        "with HELMET": [_row(pair, _other(pair, HELMET)) for pair in with_helmet],
        "with RULER": [_row(pair, _other(pair, RULER)) for pair in with_ruler],
        "between categories": _rows(others),
    }
    return render(
        "analysis.html.j2",
        title="Long context over many checkpoints",
        measures=measures,
        checkpoints=[
            (_checkpoint_label(one), [f"{one.scores[name]:.1f}" for name in measures]) for one in analysis.checkpoints
        ],
        missing=_missing_note(analysis),
        few=_few_note(analysis),
        correlations=[group for group in correlations.items() if group[1]],
        depths=depths,
        changes=analysis.changes,
        together=_rows(analysis.changes.together) if analysis.changes else [],
    )


def _other(pair: _Pair, measure: str) -> str:
    return pair.second if pair.first == measure else pair.first


def _rows(pairs: Iterable[_Pair]) -> list[IntervalRow]:
    return [_row(pair, f"{pair.first}, {pair.second}") for pair in pairs]


def _row(pair: _Pair, name: str) -> IntervalRow:
    return IntervalRow(name=name, value=pair.correlation.value, low=pair.correlation.low, high=pair.correlation.high)


SHOWN_NAME = 40


def analysis_lines(analysis: _Analysis) -> str:
    """Return the page."""
    shown, changes = list(analysis.checkpoints[0].scores), analysis.changes
    scores = [
        (markdown_text(_checkpoint_label(one), 2 * SHOWN_NAME), *(f"{one.scores[name]:.1f}" for name in shown))
        for one in analysis.checkpoints
    ]
    parts = [
        "# Many checkpoints",
        "Means over the lengths that all checkpoints were measured at.",
        _table(("", *shown), scores),
        _missing_note(analysis),
        f"## Rank correlation over {len(analysis.checkpoints)} checkpoints",
        "Spearman's, with 95 % intervals.",
        _few_note(analysis) or _pairs(analysis.correlations),
    ]
    if analysis.depths:
        head = ("", *(f"{depth:.2f}" for depth in DEPTHS), "ends less middle")
        depths = [
            (
                format_length(curve.length),
                *("-" if score is None else f"{score:.1f}" for score in curve.scores),
                "-" if curve.loss_in_the_middle is None else f"{curve.loss_in_the_middle:+.1f}",
            )
            for curve in analysis.depths
        ]
        about = "Means over the samples of all checkpoints and tasks."
        parts += ["## Score by depth of the answer", about, _table(head, depths)]
    if changes is not None:
        rows = [(measure, f"{points:+.1f}") for measure, points in changes.points.items()]
        parts += [f"## Changes from step {changes.first_step} to {changes.last_step}", _table(("", "change"), rows)]
        if changes.together:
            parts += ["Moved together from step to step (intervals without 0):", _pairs(changes.together)]
        else:
            parts.append("No two measures are shown to have moved together.")
    return "\n\n".join(part for part in parts if part) + "\n"


def _checkpoint_label(checkpoint: _Checkpoint) -> str:
    """Return the name of a checkpoint on one line, and its step."""
    step = "" if checkpoint.step is None else f", step {checkpoint.step}"
    return one_line(checkpoint.name, SHOWN_NAME) + step


def _missing_note(analysis: _Analysis) -> str:
    """Return a sentence about the measures that are left out; empty if there are none."""
    if not analysis.missing:
        return ""
    return f"Left out, because not all reports have them at a common length: {', '.join(analysis.missing)}."


def _few_note(analysis: _Analysis) -> str:
    """Return why there is no correlation at all; empty if there is one."""
    if analysis.correlations:
        return ""
    count = len(analysis.checkpoints)
    if count < FEWEST_PAIRS:
        return f"Not known: it needs {FEWEST_PAIRS} checkpoints, and there are {count}."
    return "Not known: it needs two measures that all reports have and that differ between checkpoints."


def _pairs(pairs: Iterable[_Pair]) -> str:
    rows = [
        (
            pair.first,
            pair.second,
            f"{pair.correlation.value:+.2f}",
            f"{pair.correlation.low:+.2f} to {pair.correlation.high:+.2f}",
        )
        for pair in pairs
    ]
    return _table(("", "", "correlation", "95 %"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
