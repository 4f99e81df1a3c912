"""The page of the analysis over many checkpoints."""

from __future__ import annotations

from collections.abc import Iterable

from plugins.report.analysis import DEPTHS, HELMET, RULER, Analysis, Correlation, DepthCurve
from plugins.report.analysis_lines import checkpoint_label, few_note, missing_note
from plugins.report.charts.intervals import IntervalRow
from plugins.report.charts.lines import score_chart
from plugins.report.html.page import render
from plugins.report.html.tables import short_length
from plugins.report.html.views import Chart, chart_rows


def analysis_page(analysis: Analysis) -> str:
    """Return the page as HTML."""
    measures = list(analysis.checkpoints[0].scores)
    return render(
        "analysis.html.j2",
        title="Long context over many checkpoints",
        measures=measures,
        checkpoints=[
            (checkpoint_label(one), [f"{one.scores[name]:.1f}" for name in measures]) for one in analysis.checkpoints
        ],
        missing=missing_note(analysis),
        few=few_note(analysis),
        correlations=[group for group in _groups(analysis.correlations) if group[1]],
        depths=[_depth_chart(curve) for curve in analysis.depths],
        changes=analysis.changes,
        together=_rows(analysis.changes.together) if analysis.changes else [],
    )


def _groups(pairs: Iterable[Correlation]) -> list[tuple[str, list[IntervalRow]]]:
    """Return the correlations with HELMET, with RULER, and of the categories with each other."""
    pairs = list(pairs)
    with_helmet = [pair for pair in pairs if HELMET in (pair.first, pair.second)]
    with_ruler = [pair for pair in pairs if pair.first == RULER and pair not in with_helmet]
    others = [pair for pair in pairs if pair not in with_helmet and pair not in with_ruler]
    return [
        ("with HELMET", [_row(pair, _other(pair, HELMET)) for pair in with_helmet]),
        ("with RULER", [_row(pair, _other(pair, RULER)) for pair in with_ruler]),
        ("between categories", _rows(others)),
    ]


def _other(pair: Correlation, measure: str) -> str:
    return pair.second if pair.first == measure else pair.first


def _rows(pairs: Iterable[Correlation]) -> list[IntervalRow]:
    return [_row(pair, f"{pair.first}, {pair.second}") for pair in pairs]


def _row(pair: Correlation, name: str) -> IntervalRow:
    return IntervalRow(name=name, value=pair.found.value, low=pair.found.low, high=pair.found.high)


def _depth_chart(curve: DepthCurve) -> Chart:
    labels = [f"{depth:.2f}" for depth in DEPTHS]
    none = [None] * len(labels)
    loss = curve.loss_in_the_middle
    return Chart(
        name=f"at {short_length(curve.length)}",
        line=score_chart(labels, curve.scores, none, threshold=None),
        note="" if loss is None else f"ends less middle {loss:+.1f}",
        rows=chart_rows(labels, curve.scores, none),
    )
