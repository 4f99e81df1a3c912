"""Horizontal bars: shares of a whole, a score with its interval, and values between -1 and 1 with theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from longctx.plugins.report.charts.svg import Scale, bar_figure, element, figure

WIDTH = 300
INTERVALS_WIDTH, ROW_HEIGHT = 360, 20
LEFT, RIGHT, BOTTOM = 130, 44, 24
TICKS = (-1.0, -0.5, 0.0, 0.5, 1.0)
SHARE_HEIGHT, SCORE_HEIGHT, SWATCH_SIZE = 16, 18, 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One kind's part of a bar."""

    kind: str
    x: float
    width: float


def shares_of(counts: Mapping[str, int], total: int, kinds: Sequence[str]) -> list[Share]:
    """Return the parts of a bar in the order of `kinds`, without the empty ones; `total` is the whole bar."""
    shares, x = [], 0.0
    for kind in kinds:
        width = WIDTH * counts.get(kind, 0) / total if total else 0.0
        if width:
            shares.append(Share(kind=kind, x=round(x, 2), width=round(width, 2)))
        x += width
    return shares


def shares_svg(shares: Sequence[Share]) -> Markup:
    """Draw a bar of parts, coloured by kind."""
    parts = [
        element("rect", class_=_kind_class(share.kind), x=share.x, y=1, width=share.width, height=SHARE_HEIGHT - 2)
        for share in shares
    ]
    return bar_figure(WIDTH, SHARE_HEIGHT, *parts)


def score_svg(score: float, interval: Sequence[float] | None) -> Markup:
    """Draw a score of 0 to 100 as a bar, with a whisker from one end of the interval to the other."""
    unit = WIDTH / 100
    parts = [
        element("rect", class_="track", x=0, y=3, width=WIDTH, height=SCORE_HEIGHT - 6),
        element("rect", class_="fill", x=0, y=3, width=unit * score, height=SCORE_HEIGHT - 6),
    ]
    if interval:
        low, high = (round(unit * end, 2) for end in interval)
        parts.append(element("path", class_="whisker", d=f"M{low:g},{SCORE_HEIGHT // 2}H{high:g}"))
    return bar_figure(WIDTH, SCORE_HEIGHT, *parts)


def swatch_svg(kind: str) -> Markup:
    """Draw a small square in a kind's colour, for a legend."""
    square = element("rect", class_=_kind_class(kind), width=SWATCH_SIZE, height=SWATCH_SIZE)
    return element("svg", square, viewBox=f"0 0 {SWATCH_SIZE} {SWATCH_SIZE}", aria_hidden="true")


def _kind_class(kind: str) -> str:
    """Return the style class of a kind of failure."""
    return f"k-{kind.replace(' ', '-')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalRow:
    """One value of the chart."""

    name: str
    value: float
    low: float
    high: float


def interval_svg(rows: Sequence[IntervalRow], description: str) -> Markup:
    """Draw a point with a whisker for each row, over a scale from -1 to 1."""
    x = Scale(values=(-1, 1), coordinates=(LEFT, INTERVALS_WIDTH - RIGHT))
    bottom = ROW_HEIGHT * len(rows) + 6
    drawn = []
    for tick in TICKS:
        style = "threshold" if tick == 0 else "grid"
        drawn.append(element("line", class_=style, x1=x(tick), x2=x(tick), y1=2, y2=bottom))
        drawn.append(element("text", f"{tick:g}", class_="tick", x=x(tick), y=bottom + 15, text_anchor="middle"))
    for number, row in enumerate(rows):
        y = ROW_HEIGHT * (number + 0.5) + 4
        drawn += [
            element("text", row.name, class_="tick", x=LEFT - 8, y=y + 3.5, text_anchor="end"),
            element("path", class_="whisker", d=f"M{x(row.low):g},{y:g}H{x(row.high):g}"),
            element("circle", class_="mark", cx=x(row.value), cy=y, r=3.5),
            element("text", f"{row.value:+.2f}", class_="value", x=INTERVALS_WIDTH - 4, y=y + 3.5, text_anchor="end"),
        ]
    return figure(INTERVALS_WIDTH, bottom + BOTTOM, *drawn, description=description)
