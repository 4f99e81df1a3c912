"""Line charts: scores with their intervals and effective lengths over lengths or steps, and the evidence of a gate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from longctx.plugins.report.charts.svg import Scale, element, figure, points
from longctx.plugins.report.tables import Table, text_row
from longctx.plugins.verdicts.evaluation import Curve

WIDTH, HEIGHT = 360, 210
LEFT, RIGHT, TOP, BOTTOM = 30, 12, 22, 24
LABEL_WIDTH = 7
"""Width of one character of a tick label."""

LABEL_HEIGHT = 18
"""Height of a label and its distance from its point."""

MOST_LABELS = 9
"""With more points than this, only the most informative ones are labelled."""

UPPER_HALF, UPPER_HALF_MARGIN = 50.0, 2.0
EVIDENCE_WIDTH, EVIDENCE_HEIGHT = 260, 120
EVIDENCE_LEFT, EVIDENCE_RIGHT, EVIDENCE_TOP, EVIDENCE_BOTTOM = 26, 8, 8, 22
LOWEST_POWER = -1.0
"""Evidence below a tenth is drawn at the lower edge."""

Interval = Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """One value of a line chart."""

    x: float
    y: float
    label: str
    """The number written beside the point; empty if it has none."""

    label_above: bool
    verdict: str | None
    """The verdict at this point, which selects its mark: a cross for `fail`, an open circle for `undecided`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChart:
    """The geometry of a line chart, in units of its view box."""

    points: tuple[_Point, ...]
    bands: tuple[str, ...]
    """The intervals around the line as the corners of polygons, one polygon for every unbroken run of intervals."""

    threshold: float | None
    """The y coordinate of the threshold."""

    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One value over context lengths or training steps; None where it was not measured."""

    name: str
    values: tuple[float | None, ...]
    intervals: tuple[Interval | None, ...]
    threshold: float | None = None
    verdicts: tuple[str | None, ...] = ()
    """The verdicts on the values; empty for a series without a threshold."""

    @property
    def is_measured(self) -> bool:
        """True if at least one value is known."""
        return any(value is not None for value in self.values)


def score_line(series: Series, labels: Sequence[str], lowest: float = 0.0) -> LineChart:
    """Lay out a chart of scores from `lowest` (see `lowest_of`) to 100, one place for each label."""
    y = Scale(values=(lowest, 100), coordinates=(HEIGHT - BOTTOM, TOP))
    ticks = [(tick, f"{tick}") for tick in range(int(lowest), 101, 10 if lowest else 25)]
    return _laid_out(series, labels, y, ticks, "{:.1f}".format)


def value_line(series: Series, labels: Sequence[str]) -> LineChart:
    """Lay out a chart of values of any size, on a scale that holds 0, all intervals and the threshold."""
    drawn = [0.0, *(value for value in (*series.values, series.threshold) if value is not None)]
    for interval in series.intervals:
        drawn += interval or ()
    low, high = min(drawn), max(drawn)
    y = Scale(values=(low, high if high > low else low + 1), coordinates=(HEIGHT - BOTTOM, TOP))
    ticks = [(tick, f"{tick:.3g}") for tick in sorted({low, 0.0, high})]
    return _laid_out(series, labels, y, ticks, "{:.2f}".format)


def level_line(series: Series, labels: Sequence[str], names: Sequence[str]) -> LineChart:
    """Lay out a chart of levels, such as tested lengths: values and threshold are indices into `names`."""
    y = Scale(values=(0, max(1, len(names) - 1)), coordinates=(HEIGHT - BOTTOM, TOP))
    ticks = [(float(level), name) for level, name in enumerate(names)]

    def label(level: float) -> str:
        return names[int(level)]

    return _laid_out(series, labels, y, ticks, label, always_above=True)


def _laid_out(
    series: Series,
    labels: Sequence[str],
    y: Scale,
    ticks: Sequence[tuple[float, str]],
    label: Callable[[float], str],
    *,
    always_above: bool = False,
) -> LineChart:
    """Return the chart of a series on a scale; a threshold or a part of an interval beyond its ends is drawn there."""
    ends = sorted(y.values)

    def place(value: float) -> float:
        return y(min(ends[1], max(ends[0], value)))

    bands: list[Interval | None] = []
    for interval in series.intervals:
        bands.append(None if interval is None else [place(end) for end in interval])
    return LineChart(
        points=_points(series, y, label, always_above=always_above),
        bands=tuple(_bands(_places(len(labels)), bands)),
        threshold=None if series.threshold is None else place(series.threshold),
        x_ticks=_x_ticks(labels),
        y_ticks=tuple((y(tick), name) for tick, name in ticks),
    )


def _points(series: Series, y: Scale, label: Callable[[float], str], *, always_above: bool) -> tuple[_Point, ...]:
    """Return a point for each known value, the informative ones with their labels."""
    values, labelled, found = series.values, _informative(series.values), []
    for index, (x, value) in enumerate(zip(_places(len(values)), values, strict=True)):
        if value is not None:
            found.append(_Point(
                x=x,
                y=y(value),
                label=label(value) if index in labelled else "",
                label_above=always_above or _label_above(values, index),
                verdict=series.verdicts[index] if index < len(series.verdicts) else None,
            ))  # fmt: skip
    return tuple(found)


def line_svg(chart: LineChart, description: str) -> Markup:
    """Draw a line chart."""
    right = WIDTH - RIGHT
    drawn = []
    for y, label in chart.y_ticks:
        drawn.append(element("line", class_="grid", x1=LEFT, x2=right, y1=y, y2=y))
        drawn.append(element("text", label, class_="tick", x=LEFT - 5, y=y + 3.5, text_anchor="end"))
    drawn += [
        element("text", label, class_="tick", x=x, y=HEIGHT - 7, text_anchor="middle") for x, label in chart.x_ticks
    ]
    drawn += [element("polygon", class_="band", points=band) for band in chart.bands]
    if chart.threshold is not None:
        drawn.append(
            element("line", class_="threshold", x1=LEFT, x2=right, y1=chart.threshold, y2=chart.threshold)
        )  # fmt: skip
    drawn.append(element("polyline", class_="curve", points=points((point.x, point.y) for point in chart.points)))
    for point in chart.points:
        if point.verdict == "fail":
            drawn.append(element("path", class_="mark fail", d=f"M{point.x - 4:g},{point.y - 4:g}l8,8m0,-8l-8,8"))
        else:
            style = "mark open" if point.verdict == "undecided" else "mark"
            drawn.append(element("circle", class_=style, cx=point.x, cy=point.y, r=3.5))
        if point.label:
            # A label below a point at the bottom would cover the labels of the axis.
            above = point.label_above or point.y > HEIGHT - BOTTOM - LABEL_HEIGHT
            y = point.y - 9 if above else point.y + 17
            drawn.append(element("text", point.label, class_="value", x=point.x, y=y, text_anchor="middle"))
    return figure(WIDTH, HEIGHT, *drawn, description=description)


def lowest_of(values: Iterable[float | None]) -> float:
    """Return where the scales of charts that stand side by side begin: at 50 if all their values lie above it, else 0.

    Half of the axis shows twice as much.
    """
    smallest = min((value for value in values if value is not None), default=0.0)
    return UPPER_HALF if smallest > UPPER_HALF + UPPER_HALF_MARGIN else 0.0


def _informative(values: Sequence[float | None]) -> set[int]:
    """Return which points get a label: all if they are few, else the first, the last, the lowest and the highest."""
    known = {index: value for index, value in enumerate(values) if value is not None}
    if len(values) <= MOST_LABELS or not known:
        return set(known)
    ranked = sorted(known, key=known.__getitem__)
    return {min(known), max(known), ranked[0], ranked[-1]}


def _spacing(count: int) -> float:
    return (WIDTH - LEFT - RIGHT) / max(1, count)


def _places(count: int) -> list[float]:
    """Return the x coordinates of equally spaced points."""
    return [round(LEFT + _spacing(count) * (index + 0.5), 1) for index in range(count)]


def _x_ticks(labels: Sequence[str]) -> tuple[tuple[float, str], ...]:
    """Return the labels with their x coordinates, leaving out labels at equal distances where there are too many."""
    width = max(map(len, labels), default=1) * LABEL_WIDTH
    distance = math.ceil(len(labels) * width / (WIDTH - LEFT - RIGHT)) or 1
    ticks = zip(_places(len(labels)), labels, strict=True)
    return tuple(ticks)[::distance]


def _bands(places: Sequence[float], bands: Sequence[Interval | None]) -> Iterator[str]:
    """Yield a polygon for every unbroken run of intervals; a single one is a quarter as wide as the spacing."""
    half = _spacing(len(places)) / 8
    for is_known, group in groupby(zip(places, bands, strict=True), key=lambda pair: pair[1] is not None):
        run = [(x, band) for x, band in group if band is not None]
        if not is_known:
            continue
        if len(run) == 1:
            middle, only = run[0]
            run = [(round(middle - half, 1), only), (round(middle + half, 1), only)]
        lower = [(x, band[0]) for x, band in run]
        upper = [(x, band[1]) for x, band in reversed(run)]
        yield points([*lower, *upper])


def _label_above(scores: Sequence[float | None], index: int) -> bool:
    """True if the label stands above its point, which it does unless the line rises past it to the left and right."""
    score = scores[index]
    if score is None or score > 90:
        return True
    neighbours = [*scores[max(0, index - 1) : index], *scores[index + 1 : index + 2]]
    known = [neighbour for neighbour in neighbours if neighbour is not None]
    return not known or sum(neighbour > score for neighbour in known) * 2 <= len(known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A line chart with its heading and its numbers."""

    line: LineChart
    note: str
    """The text beside the heading."""

    table: Table
    """The value and the interval at every length or step; its name is the heading."""

    @property
    def description(self) -> str:
        """The chart as text, for screen readers."""
        return f"{self.table.name}: {', '.join(f'{row.name} {row.cells[0].text}' for row in self.table.rows)}"


def chart(series: Series, labels: Sequence[str], line: LineChart, note: str, decimals: int = 1) -> Chart:
    """Return a chart with the numbers of its series."""
    rows = []
    for label, value, ends in zip(labels, series.values, series.intervals, strict=True):
        shown = "-" if value is None else f"{value:.{decimals}f}"
        interval = "-" if ends is None else f"{ends[0]:.{decimals}f} to {ends[1]:.{decimals}f}"
        rows.append(text_row(label, shown, interval))
    table = Table(name=series.name, corner="at", columns=("score", "interval"), rows=tuple(rows))
    return Chart(line=line, note=note, table=table)


def score_charts(series: Sequence[Series], labels: Sequence[str]) -> list[Chart]:
    """Return charts of scores, all on one scale; those that were not measured are left out."""
    shown, drawn = [one for one in series if one.is_measured], list[float | None]()
    for one in shown:
        drawn += [*one.values, one.threshold, *(interval[0] for interval in one.intervals if interval)]
    lowest, charts = lowest_of(drawn), []
    for one in shown:
        note = "" if one.threshold is None else f"threshold {one.threshold:g}"
        charts.append(chart(one, labels, score_line(one, labels, lowest), note))
    return charts


def evidence_svg(curve: Curve, description: str) -> Markup:
    """Draw the evidence for a pass and for a fail, in powers of ten, over the samples in the order of the queue.

    Evidence of 1 says nothing; evidence of 1/alpha decides, where alpha is the error probability that the gate allows.
    """
    last = max(curve.seen[-1], curve.decided or 1)
    # There is room above the limit, but not for all that lies far beyond it.
    highest_power = min(max(1.35 * curve.bar, *curve.above, *curve.below), 2.2 * curve.bar)
    x = Scale(values=(0, last), coordinates=(EVIDENCE_LEFT, EVIDENCE_WIDTH - EVIDENCE_RIGHT))
    y = Scale(values=(LOWEST_POWER, highest_power), coordinates=(EVIDENCE_HEIGHT - EVIDENCE_BOTTOM, EVIDENCE_TOP))
    drawn = [
        *_level("grid", "1", y(0.0)),
        *_level("threshold", "1/\u03b1", y(curve.bar)),
    ]
    if curve.decided is not None:
        place = x(curve.decided)
        drawn.append(
            element("line", class_="decided", x1=place, x2=place, y1=EVIDENCE_TOP, y2=EVIDENCE_HEIGHT - EVIDENCE_BOTTOM)
        )
    drawn += [
        element("polyline", class_="curve below", points=_path(curve, curve.below, x, y)),
        element("polyline", class_="curve above", points=_path(curve, curve.above, x, y)),
        element("text", "0", class_="tick", x=EVIDENCE_LEFT, y=EVIDENCE_HEIGHT - 6),
        element(
            "text",
            f"{last:,} samples",
            class_="tick",
            x=EVIDENCE_WIDTH - EVIDENCE_RIGHT,
            y=EVIDENCE_HEIGHT - 6,
            text_anchor="end",
        ),
    ]
    return figure(EVIDENCE_WIDTH, EVIDENCE_HEIGHT, *drawn, description=description)


def _level(style: str, label: str, y: float) -> tuple[Markup, Markup]:
    return (
        element("line", class_=style, x1=EVIDENCE_LEFT, x2=EVIDENCE_WIDTH - EVIDENCE_RIGHT, y1=y, y2=y),
        element("text", label, class_="tick", x=EVIDENCE_LEFT - 4, y=y + 3.5, text_anchor="end"),
    )


def _path(curve: Curve, powers: Sequence[float], x: Scale, y: Scale) -> str:
    lowest, highest = y.values
    return points(
        (x(samples), y(max(lowest, min(highest, power)))) for samples, power in zip(curve.seen, powers, strict=True)
    )
