"""Values between -1 and 1 with their intervals, one below the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from longctx.plugins.report.charts.svg import Scale, element, figure

WIDTH, ROW_HEIGHT = 360, 20
LEFT, RIGHT, BOTTOM = 130, 44, 24
TICKS = (-1.0, -0.5, 0.0, 0.5, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalRow:
    """One value of the chart."""

    name: str
    value: float
    low: float
    high: float


def interval_svg(rows: Sequence[IntervalRow], description: str) -> Markup:
    """Draw a point with a whisker for each row, over a scale from -1 to 1."""
    x = Scale(values=(-1, 1), coordinates=(LEFT, WIDTH - RIGHT))
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
            element("text", f"{row.value:+.2f}", class_="value", x=WIDTH - 4, y=y + 3.5, text_anchor="end"),
        ]
    return figure(WIDTH, bottom + BOTTOM, *drawn, description=description)
