"""The charts of all reports as SVG, and the colours of scores and differences as style classes."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from markupsafe import Markup, escape

from longctx.plugins.report.tables import Cell, Row, Table, text_row

SHADES = 20
DIFFERENCE_STEPS = (0.5, 2, 5, 10, 20)
"""Differences in points at which the colour changes."""

WIDTH, HEIGHT = 360, 210
LEFT, RIGHT, TOP, BOTTOM = 30, 12, 22, 24
LABEL_WIDTH = 7
"""Width of one character of a tick label."""

MOST_LINES = 8
"""The lines of one chart that colours and dashes tell apart; style.css has a class for each."""

LEGEND_ROW = 15
"""Height of a row of a legend, which names two lines."""

MOST_LABELS = 9
"""With more points than this, only the most informative ones are labelled."""

UPPER_HALF, UPPER_HALF_MARGIN = 50.0, 2.0


def element(tag: str, *children: str, **attributes: str | float | None) -> Markup:
    """Return an element as markup. Children and attribute values are escaped unless they are markup themselves.

    An underscore in an attribute's name becomes a hyphen, and one at its end is dropped: `class_`, `text_anchor`.
    An attribute of None is left out; numbers are rounded to hundredths of a unit.
    """
    written = ""
    for name, value in attributes.items():
        if value is not None:
            shown_name = name.rstrip("_").replace("_", "-")
            written += f' {shown_name}="{escape(_formatted(value))}"'
    content = "".join(map(escape, children))
    return Markup(f"<{tag}{written}>{content}</{tag}>" if content else f"<{tag}{written}/>")


def _points(pairs: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{_formatted(x)},{_formatted(y)}" for x, y in pairs)


def _formatted(value: str | float) -> str:
    return value if isinstance(value, str) else f"{round(value, 2):g}"


def shade(score: float) -> int:
    """Return the shade of a score of 0 to 100: an integer from 0 to SHADES, of the classes in style.css."""
    return max(0, min(SHADES, int(score * SHADES / 100)))


def difference_class(points: float) -> str:
    """Return the class of a difference in points: `w1` to `w5` for worse, `b1` to `b5` for better, `d0` for neither."""
    step = sum(abs(points) >= bound for bound in DIFFERENCE_STEPS)
    return "d0" if not step else f"{'w' if points < 0 else 'b'}{step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One value over context lengths or training steps; None where it was not measured."""

    name: str
    values: tuple[float | None, ...]
    intervals: tuple[Sequence[float] | None, ...]
    threshold: float | None = None
    verdicts: tuple[str | None, ...] = ()
    """The verdicts on the values; empty for a series without a threshold."""

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

    def height(self, value: float) -> float:
        """Return the y coordinate of a value; what lies beyond the axis is drawn at its end."""
        within = min(self.high, max(self.low, value))
        bottom = HEIGHT - BOTTOM
        return round(bottom + (TOP - bottom) * (within - self.low) / (self.high - self.low), 1)

    def interval_text(self, ends: Sequence[float] | None) -> str:
        return "" if ends is None else f"{self.label(ends[0])} to {self.label(ends[1])}"


def score_axis(lowest: float = 0.0) -> Axis:
    """Return an axis of scores from `lowest` (see `_lowest_of`) to 100."""
    ticks = range(int(lowest), 101, 10 if lowest else 25)
    return Axis(low=lowest, high=100, ticks=tuple((tick, f"{tick}") for tick in ticks), label="{:.1f}".format)


def value_axis(series: Series) -> Axis:
    """Return an axis of values of any size, which holds 0, all intervals and the threshold."""
    drawn = [0.0, *(value for value in (*series.values, series.threshold) if value is not None)]
    for interval in series.intervals:
        drawn += interval or ()
    low, high = min(drawn), max(drawn)
    ticks = tuple((tick, f"{tick:.3g}") for tick in sorted({low, 0.0, high}))
    return Axis(low=low, high=high if high > low else low + 1, ticks=ticks, label="{:.2f}".format)


def level_axis(names: Sequence[str]) -> Axis:
    """Return an axis of levels, such as tested lengths: values are indices into `names`."""
    ticks = tuple((float(level), name) for level, name in enumerate(names))
    return Axis(low=0, high=max(1, len(names) - 1), ticks=ticks, label=lambda level: names[int(level)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    svg: Markup
    note: str
    """The text beside the heading."""
    table: Table
    """The value and the interval at every length or step; its name is the heading."""


def chart(series: Series, labels: Sequence[str], axis: Axis, note: str) -> Chart:
    rows, spoken = [], []
    for label, value, ends in zip(labels, series.values, series.intervals, strict=True):
        shown = "-" if value is None else axis.label(value)
        rows.append(text_row(label, shown, axis.interval_text(ends) or "-"))
        spoken.append(f"{label} {shown}")
    table = Table(name=series.name, corner="at", columns=("value", "interval"), rows=tuple(rows))
    # Screen readers announce the numbers.
    description = f"{series.name}: {', '.join(spoken)}"
    view = f"0 0 {WIDTH} {HEIGHT}"
    svg = element("svg", *_drawn(series, labels, axis), viewBox=view, role="img", aria_label=description)
    return Chart(svg=svg, note=note, table=table)


def score_charts(series: Sequence[Series], labels: Sequence[str]) -> list[Chart]:
    """Return charts of scores, all on one scale; those that were not measured are left out."""
    shown, drawn = [one for one in series if one.is_measured], list[float | None]()
    for one in shown:
        drawn += [*one.values, one.threshold, *(interval[0] for interval in one.intervals if interval)]
    axis, charts = score_axis(_lowest_of(drawn)), []
    for one in shown:
        note = "" if one.threshold is None else f"threshold {one.threshold:g}"
        charts.append(chart(one, labels, axis, note))
    return charts


def lines_charts(groups: Mapping[str, Sequence[Series]], labels: Sequence[str]) -> list[Chart]:
    """Return a chart for each group of series of scores, with a line for each series; all are on one scale."""
    values = list[float | None]()
    for group in groups.values():
        for series in group:
            values += series.values
    axis = score_axis(_lowest_of(values))
    return [_lines_chart(name, group, labels, axis) for name, group in groups.items()]


def _lines_chart(name: str, group: Sequence[Series], labels: Sequence[str], axis: Axis) -> Chart:
    places, drawn, rows = _places(len(labels)), [*_grid(labels, axis)], []
    for number, series in enumerate(group):
        points = [(places[place], axis.height(value)) for place, value in enumerate(series.values) if value is not None]
        drawn.append(element("polyline", class_=f"line l{number}", points=_points(points)))
        drawn += [element("circle", class_=f"dot l{number}", cx=x, cy=y, r=3) for x, y in points]
        x, y = LEFT + number % 2 * (WIDTH - LEFT) / 2, HEIGHT + LEGEND_ROW * (number // 2 + 1)
        drawn.append(element("line", class_=f"line l{number}", x1=x, x2=x + 22, y1=y - 4, y2=y - 4))
        drawn.append(element("text", series.name, class_="tick", x=x + 27, y=y))
        cells = []
        for value, ends in zip(series.values, series.intervals, strict=True):
            text = "-" if value is None else axis.label(value)
            cells.append(Cell(text=text, interval=axis.interval_text(ends)))
        rows.append(Row(name=series.name, cells=tuple(cells)))
    spoken = "; ".join(f"{row.name} {', '.join(cell.text for cell in row.cells)}" for row in rows)
    view = f"0 0 {WIDTH} {HEIGHT + LEGEND_ROW * math.ceil(len(group) / 2) + 5}"
    svg = element("svg", *drawn, viewBox=view, role="img", aria_label=f"{name} at {', '.join(labels)}: {spoken}")
    table = Table(name=name, corner="setting", columns=tuple(labels), rows=tuple(rows))
    return Chart(svg=svg, note="", table=table)


def _lowest_of(values: Iterable[float | None]) -> float:
    """Return where axes side by side begin: at 50, which shows twice as much, if all values lie above it, else at 0."""
    smallest = min((value for value in values if value is not None), default=0.0)
    return UPPER_HALF if smallest > UPPER_HALF + UPPER_HALF_MARGIN else 0.0


def _grid(labels: Sequence[str], axis: Axis) -> Iterator[Markup]:
    for value, label in axis.ticks:
        y = axis.height(value)
        yield element("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y)
        yield element("text", label, class_="tick", x=LEFT - 5, y=y + 3.5, text_anchor="end")
    width = max(map(len, labels), default=1) * LABEL_WIDTH
    every = math.ceil(len(labels) * width / (WIDTH - LEFT - RIGHT)) or 1
    for x, label in [*zip(_places(len(labels)), labels, strict=True)][::every]:
        yield element("text", label, class_="tick", x=x, y=HEIGHT - 7, text_anchor="middle")


def _drawn(series: Series, labels: Sequence[str], axis: Axis) -> Iterator[Markup]:
    places = _places(len(labels))
    yield from _grid(labels, axis)
    bands = [None if ends is None else (axis.height(ends[0]), axis.height(ends[1])) for ends in series.intervals]
    for band in _bands(places, bands):
        yield element("polygon", class_="band", points=band)
    if series.threshold is not None:
        y = axis.height(series.threshold)
        yield element("line", class_="threshold", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y)
    known = [(place, value) for place, value in enumerate(series.values) if value is not None]
    points = [(places[place], axis.height(value)) for place, value in known]
    yield element("polyline", class_="curve", points=_points(points))
    labelled = _informative(dict(known))
    for (place, value), (x, y) in zip(known, points, strict=True):
        verdict = series.verdicts[place] if place < len(series.verdicts) else None
        if verdict == "fail":
            yield element("path", class_="mark fail", d=f"M{x - 4:g},{y - 4:g}l8,8m0,-8l-8,8")
        else:
            style = "mark" if verdict in (None, "pass") else "mark open"
            yield element("circle", class_=style, cx=x, cy=y, r=3.5)
        if place in labelled:
            yield element("text", axis.label(value), class_="value", x=x, y=y - 9, text_anchor="middle")


def _informative(known: Mapping[int, float]) -> set[int]:
    """Return which points get a label: all if they are few, else the first, the last, the lowest and the highest."""
    if len(known) <= MOST_LABELS:
        return set(known)
    ranked = sorted(known, key=known.__getitem__)
    return {min(known), max(known), ranked[0], ranked[-1]}


def _places(count: int) -> list[float]:
    spacing = (WIDTH - LEFT - RIGHT) / max(1, count)
    return [round(LEFT + spacing * (index + 0.5), 1) for index in range(count)]


def _bands(places: Sequence[float], bands: Sequence[tuple[float, float] | None]) -> Iterator[str]:
    """Yield a polygon for every unbroken run of intervals; a single one is a quarter as wide as the spacing."""
    half = (WIDTH - LEFT - RIGHT) / max(1, len(places)) / 8
    for is_known, group in groupby(zip(places, bands, strict=True), key=lambda pair: pair[1] is not None):
        run = [(x, band) for x, band in group if band is not None]
        if not is_known:
            continue
        if len(run) == 1:
            middle, only = run[0]
            run = [(round(middle - half, 1), only), (round(middle + half, 1), only)]
        lower = [(x, band[0]) for x, band in run]
        upper = [(x, band[1]) for x, band in reversed(run)]
        yield _points([*lower, *upper])
