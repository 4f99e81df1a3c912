"""Line charts over context lengths or training steps: scores with their intervals, and effective lengths."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from longctx.plugins.report.charts.svg import Scale, element, figure, points
from longctx.plugins.report.formats import both_ends, shown_number

WIDTH, HEIGHT = 360, 210
LEFT, RIGHT, TOP, BOTTOM = 30, 12, 22, 24
LABEL_WIDTH = 7
"""Width of one character of a tick label."""

LABEL_HEIGHT = 18
"""Height of a label and its distance from its point."""

MOST_LABELS = 9
"""With more points than this, only the most informative ones are labelled."""

UPPER_HALF, UPPER_HALF_MARGIN = 50.0, 2.0
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
    """The verdict at this point, which selects its mark: a cross for `fail`, an open circle for `inconclusive`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LineChart:
    """The geometry of a line chart, in units of its view box."""

    points: tuple[_Point, ...]
    bands: tuple[str, ...]
    """The intervals around the line as the corners of polygons, one polygon for every unbroken run of intervals."""

    threshold: float | None
    """The y coordinate of the threshold."""

    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]


def score_chart(
    labels: Sequence[str],
    scores: Sequence[float | None],
    intervals: Sequence[Interval | None],
    *,
    threshold: float | None,
    verdicts: Sequence[str | None] = (),
    lowest: float = 0.0,
) -> _LineChart:
    """Lay out a chart of scores from `lowest` (see `lowest_of`) to 100, one place for each label."""
    y = Scale(values=(lowest, 100), coordinates=(HEIGHT - BOTTOM, TOP))
    # The parts of the intervals that the scale has room for.
    drawn_intervals: list[Interval | None] = []
    for interval in intervals:
        drawn_intervals.append(None if interval is None else [min(100.0, max(lowest, end)) for end in interval])
    return _LineChart(
        points=_points(scores, y, "{:.1f}".format, verdicts),
        bands=tuple(_bands(_places(len(labels)), drawn_intervals, y)),
        threshold=None if threshold is None else y(threshold),
        x_ticks=_x_ticks(labels),
        y_ticks=tuple((y(tick), f"{tick}") for tick in range(int(lowest), 101, 10 if lowest else 25)),
    )


def value_chart(
    labels: Sequence[str],
    values: Sequence[float | None],
    intervals: Sequence[Interval | None],
    *,
    threshold: float | None = None,
    verdicts: Sequence[str | None] = (),
) -> _LineChart:
    """Lay out a chart of values of any size, on a scale that holds 0, all intervals and the threshold."""
    drawn = [0.0, *(value for value in (*values, threshold) if value is not None)]
    for interval in intervals:
        drawn += interval or ()
    low, high = min(drawn), max(drawn)
    y = Scale(values=(low, high if high > low else low + 1), coordinates=(HEIGHT - BOTTOM, TOP))
    return _LineChart(
        points=_points(values, y, "{:.2f}".format, verdicts),
        bands=tuple(_bands(_places(len(labels)), intervals, y)),
        threshold=None if threshold is None else y(threshold),
        x_ticks=_x_ticks(labels),
        y_ticks=tuple((y(tick), f"{tick:.3g}") for tick in sorted({low, 0.0, high})),
    )


def level_chart(
    labels: Sequence[str], levels: Sequence[int | None], names: Sequence[str], *, threshold: int | None
) -> _LineChart:
    """Lay out a chart of levels, such as tested lengths: `levels` and `threshold` are indices into `names`."""
    highest = max(1, len(names) - 1)
    y = Scale(values=(0, highest), coordinates=(HEIGHT - 24, TOP))
    return _LineChart(
        points=_points(levels, y, lambda level: names[int(level)], always_above=True),
        bands=(),
        threshold=None if threshold is None else y(threshold),
        x_ticks=_x_ticks(labels),
        y_ticks=tuple((y(level), name) for level, name in enumerate(names)),
    )


def _points(
    values: Sequence[float | None],
    y: Scale,
    label: Callable[[float], str],
    verdicts: Sequence[str | None] = (),
    *,
    always_above: bool = False,
) -> tuple[_Point, ...]:
    """Return a point for each known value, the informative ones with their labels."""
    labelled, found = _informative(values), []
    for index, (x, value) in enumerate(zip(_places(len(values)), values, strict=True)):
        if value is not None:
            found.append(_Point(
                x=x,
                y=y(value),
                label=label(value) if index in labelled else "",
                label_above=always_above or _label_above(values, index),
                verdict=verdicts[index] if index < len(verdicts) else None,
            ))  # fmt: skip
    return tuple(found)


def line_svg(chart: _LineChart, description: str) -> Markup:
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
            style = "mark open" if point.verdict in ("inconclusive", "near") else "mark"
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


def _bands(places: Sequence[float], intervals: Sequence[Interval | None], y: Scale) -> Iterator[str]:
    """Yield a polygon for every unbroken run of intervals; a single one is a quarter as wide as the spacing."""
    pairs = list(zip(places, intervals, strict=True))
    for is_known, group in groupby(pairs, key=lambda pair: pair[1] is not None):
        run = [(x, interval) for x, interval in group if interval is not None]
        if not is_known:
            continue
        if len(run) == 1:
            ((middle, only),) = run
            half = _spacing(len(places)) / 8
            run = [(round(middle - half, 1), only), (round(middle + half, 1), only)]
        lower = [(x, y(interval[0])) for x, interval in run]
        upper = [(x, y(interval[1])) for x, interval in reversed(run)]
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

    name: str
    line: _LineChart
    note: str
    rows: tuple[tuple[str, str, str], ...]
    """Length or step, score and interval of every point."""

    @property
    def description(self) -> str:
        """The chart as text, for screen readers."""
        return f"{self.name}: {', '.join(f'{place} {score}' for place, score, _ in self.rows)}"


def threshold_note(threshold: float | None) -> str:
    """Return the note beside a chart's heading; empty without a threshold."""
    return "" if threshold is None else f"threshold {threshold:g}"


def chart_rows(
    labels: Sequence[str], scores: Sequence[float | None], intervals: Sequence[Sequence[float] | None]
) -> tuple[tuple[str, str, str], ...]:
    """Return the numbers of a chart as text."""
    return tuple(
        (label, shown_number(score), both_ends(interval))
        for label, score, interval in zip(labels, scores, intervals, strict=True)
    )
