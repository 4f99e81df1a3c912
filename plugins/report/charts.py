"""The charts of all reports, which charts.html.j2 draws, and the colours of scores and differences as style classes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from longctx.plugins.report.tables import Cell, Row, Table

SHADES = 20
DIFFERENCE_STEPS = (0.5, 2, 5, 10, 20)
"""Differences in points at which the colour changes."""

WIDTH, HEIGHT = 318, 164
"""The size of the area in which points are drawn. Its upper left corner has the coordinates 0, 0."""

LABEL_WIDTH = 7
"""Width of one character of a tick label."""

MOST_LINES = 8
"""The lines of one chart that colours and dashes tell apart; style.css has a class for each."""

Values = tuple[float | None, ...]
Interval = Sequence[float]


def shade(score: float) -> int:
    """Return the shade of a score of 0 to 100: an integer from 0 to SHADES, of the classes in style.css."""
    return max(0, min(SHADES, int(score * SHADES / 100)))


def difference_class(points: float) -> str:
    """Return the class of a difference in points: `w1` to `w5` for worse, `b1` to `b5` for better, `d0` for neither."""
    step = sum(abs(points) >= bound for bound in DIFFERENCE_STEPS)
    direction = "w" if points < 0 else "b"
    return f"{direction}{step}" if step else "d0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One value over context lengths or training steps; None where it was not measured."""

    name: str
    values: Values
    intervals: tuple[Interval | None, ...] = ()
    threshold: float | None = None
    verdicts: tuple[str | None, ...] = ()
    """The verdicts on the values. Both are empty where none are known."""

    @property
    def is_measured(self) -> bool:
        return any(value is not None for value in self.values)


def series_of(name: str, items: Sequence[Any], value: str = "measured", threshold: float | None = None) -> Series:
    """Return the series of an attribute of gates, cases or estimates, with intervals and verdicts; None stays None."""
    return Series(
        name=name,
        values=tuple(getattr(item, value, None) for item in items),
        intervals=tuple(getattr(item, "interval", None) for item in items),
        threshold=threshold,
        verdicts=tuple(getattr(item, "verdict", None) for item in items),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    """The values with a line of the grid, each with its text."""
    label: Callable[[float], str]
    """Return a value as text, beside its point and in the table of the numbers."""

    def y(self, value: float) -> float:
        """Return the y coordinate of a value; what lies beyond the axis is drawn at its end."""
        within = min(self.high, max(self.low, value))
        share = (within - self.low) / (self.high - self.low)
        return round(HEIGHT * (1 - share), 1)


SCORES = Axis(low=0, high=100, ticks=tuple((tick, f"{tick}") for tick in range(0, 101, 25)), label="{:.1f}".format)


def value_axis(series: Series) -> Axis:
    """Return an axis of values of any size, which holds 0, all intervals and the threshold."""
    drawn = [0.0, *(value for value in (*series.values, series.threshold) if value is not None)]
    for interval in series.intervals:
        drawn += interval or ()
    low, high = min(drawn), max(drawn)
    ticks = tuple((tick, f"{tick:.3g}") for tick in sorted({low, 0.0, high}))
    return Axis(low=low, high=high if high > low else low + 1, ticks=ticks, label="{:.2f}".format)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    note: str
    """The text beside the heading."""
    axis: Axis
    labels: Sequence[str]
    """The lengths or steps, from left to right."""
    lines: Sequence[Series]
    table: Table
    """The values and intervals at every length or step; its name is the heading."""

    def x(self, place: int) -> float:
        return round(WIDTH / len(self.labels) * (place + 0.5), 1)

    @property
    def label_distance(self) -> int:
        """The number of places from one label that is written to the next, so that they do not overlap."""
        longest = max(map(len, self.labels))
        return math.ceil(len(self.labels) * longest * LABEL_WIDTH / WIDTH)


def chart(name: str, group: Sequence[Series], labels: Sequence[str], axis: Axis = SCORES, note: str = "") -> Chart:
    """Return a chart with a line for each series."""
    rows = []
    for place, label in enumerate(labels):
        rows.append(Row(name=label, cells=tuple(_cell(axis, series, place) for series in group)))
    columns = tuple(series.name for series in group)
    table = Table(name=name, corner="at", columns=columns, rows=tuple(rows))
    return Chart(note=note, axis=axis, labels=labels, lines=group, table=table)


def _cell(axis: Axis, series: Series, place: int) -> Cell:
    value, interval = series.values[place], series.intervals[place] if series.intervals else None
    text = "-" if value is None else axis.label(value)
    if interval is None:
        return Cell(text=text)
    low, high = map(axis.label, interval)
    return Cell(text=text, interval=f"{low} to {high}")


def score_charts(series: Sequence[Series], labels: Sequence[str]) -> list[Chart]:
    """Return a chart of scores for each series; those that were not measured are left out."""
    charts = []
    for one in series:
        note = "" if one.threshold is None else f"threshold {one.threshold:g}"
        if one.is_measured:
            charts.append(chart(one.name, [one], labels, note=note))
    return charts
