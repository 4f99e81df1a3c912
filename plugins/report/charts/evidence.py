"""The chart of a gate's evidence at one length: two curves, and the limit at which one of them decides."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from longctx.plugins.report.charts.svg import Scale, element, figure, points
from longctx.plugins.verdicts.evaluation import Curve

WIDTH, HEIGHT = 260, 120
LEFT, RIGHT, TOP, BOTTOM = 26, 8, 8, 22
LOWEST_POWER = -1.0
"""Evidence below a tenth is drawn at the lower edge."""


def evidence_svg(curve: Curve, description: str) -> Markup:
    """Draw the evidence for a pass and for a fail, in powers of ten, over the samples in the order of the queue.

    Evidence of 1 says nothing; evidence of 1/alpha decides, where alpha is the error probability that the gate allows.
    """
    last = max(curve.seen[-1], curve.decided or 1)
    # There is room above the limit, but not for all that lies far beyond it.
    highest_power = min(max(1.35 * curve.bar, *curve.above, *curve.below), 2.2 * curve.bar)
    x = Scale(values=(0, last), coordinates=(LEFT, WIDTH - RIGHT))
    y = Scale(values=(LOWEST_POWER, highest_power), coordinates=(HEIGHT - BOTTOM, TOP))
    drawn = [
        *_level("grid", "1", y(0.0)),
        *_level("threshold", "1/\u03b1", y(curve.bar)),
    ]
    if curve.decided is not None:
        place = x(curve.decided)
        drawn.append(element("line", class_="decided", x1=place, x2=place, y1=TOP, y2=HEIGHT - BOTTOM))
    drawn += [
        element("polyline", class_="curve below", points=_path(curve, curve.below, x, y)),
        element("polyline", class_="curve above", points=_path(curve, curve.above, x, y)),
        element("text", "0", class_="tick", x=LEFT, y=HEIGHT - 6),
        element("text", f"{last:,} samples", class_="tick", x=WIDTH - RIGHT, y=HEIGHT - 6, text_anchor="end"),
    ]
    return figure(WIDTH, HEIGHT, *drawn, description=description)


def _level(style: str, label: str, y: float) -> tuple[Markup, Markup]:
    return (
        element("line", class_=style, x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y),
        element("text", label, class_="tick", x=LEFT - 4, y=y + 3.5, text_anchor="end"),
    )


def _path(curve: Curve, powers: Sequence[float], x: Scale, y: Scale) -> str:
    lowest, highest = y.values
    return points(
        (x(samples), y(max(lowest, min(highest, power)))) for samples, power in zip(curve.seen, powers, strict=True)
    )
