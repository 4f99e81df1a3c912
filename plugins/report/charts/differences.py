"""A chart of score differences over training steps, as an SVG file of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from longctx.plugins.report.charts.svg import Scale, element

WIDTH, HEIGHT = 860, 380
LEFT, RIGHT, TOP, BOTTOM = 64, 20, 48, 56
CROSS = "\u00d7"
CAP = 6
"""Half the width of the ends of an interval."""
COLOURS = {"good": "#1b7f3b", "bad": "#b3261e", "skipped": "#8a8a8a"}
PAPER, INK, SHADE, SOFT = "#fff", "#1b1f24", "#f6d5d2", "#555"
DARK = {
    PAPER: "#1b1f25", INK: "#e8eaed", SHADE: "#4d2c27", SOFT: "#a2abb6", COLOURS["good"]: "#4fcfa9",
    COLOURS["bad"]: "#ff9168",
}  # fmt: skip
"""The colour on a dark screen for each colour of the chart that needs another one there."""
_RULES = "".join(
    f':is(.differences,.differences *)[{attribute}="{colour}"]{{{attribute}:{other}}}'
    for colour, other in DARK.items()
    for attribute in ("fill", "stroke")
)
STYLE = f"@media screen and (prefers-color-scheme:dark){{{_RULES}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDifference:
    """A training step and how its checkpoint compares with a reference checkpoint."""

    step: int
    verdict: Literal["good", "bad", "skipped"]
    difference: float | None
    """The checkpoint's score minus the reference's, in points; None if the step was skipped."""

    interval: tuple[float, float] | None


def difference_svg(
    differences: Sequence[StepDifference],
    *,
    title: str,
    caption: str,
    dashed: float,
    shaded_steps: tuple[int, int] | None,
) -> str:
    """Draw differences in points with their intervals over steps; a cross on the axis marks a skipped step.

    A solid line marks 0, a dashed line the difference `dashed`; the range `shaded_steps` is shaded, and
    its end labelled as the first bad step.
    """
    x, y = _scales(differences, dashed)
    bottom = HEIGHT - BOTTOM
    drawn = [
        element("style", Markup(STYLE)),
        element("rect", width=WIDTH, height=HEIGHT, fill=PAPER),
        element("text", title, x=LEFT, y=24, font_size=15),
    ]
    if shaded_steps is not None:
        start, end = (x(step) for step in shaded_steps)
        drawn.append(
            element("rect", x=start, y=TOP, width=max(2.0, end - start), height=bottom - TOP, fill=SHADE)
        )  # fmt: skip
        anchor = "end" if end > WIDTH / 2 else "start"
        label = f"first bad step {shaded_steps[1]}"
        drawn.append(element("line", x1=end, x2=end, y1=TOP, y2=bottom, stroke=COLOURS["bad"], stroke_dasharray="2 5"))
        drawn.append(
            element("text", label, x=end, y=TOP - 5, text_anchor=anchor, fill=COLOURS["bad"], font_weight="bold")
        )  # fmt: skip
    drawn += _level(y(0.0), "0", None)
    drawn += _level(y(dashed), f"{dashed:.1f}", "5 4")
    drawn += [part for difference in differences for part in _marked(difference, x, y)]
    steps = [difference.step for difference in differences]
    drawn += [
        element("text", f"{min(steps)}", x=LEFT, y=HEIGHT - 32),
        element("text", f"{max(steps)}", x=WIDTH - RIGHT, y=HEIGHT - 32, text_anchor="end"),
        element("text", caption, x=LEFT, y=HEIGHT - 10, fill=SOFT),
    ]
    whole = element(
        "svg", *drawn,
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {HEIGHT}", font_family="sans-serif", font_size=12,
        class_="differences", fill=INK,
    )  # fmt: skip
    return f"{whole}\n"


def _scales(differences: Sequence[StepDifference], dashed: float) -> tuple[Scale, Scale]:
    """Return the scales of x and y, wide enough for all steps, intervals and both horizontal lines."""
    steps = [difference.step for difference in differences]
    values = [0.0, dashed]
    for shown in differences:
        values += [] if shown.difference is None else [shown.difference]
        values += shown.interval or ()
    low, high = min(values), max(values)
    last_step = max(max(steps), min(steps) + 1)
    x = Scale(values=(min(steps), last_step), coordinates=(LEFT, WIDTH - RIGHT))
    y = Scale(values=(low if low < high else high - 1, high), coordinates=(HEIGHT - BOTTOM, TOP))
    return x, y


def _level(y: float, label: str, dashes: str | None) -> tuple[Markup, Markup]:
    return (
        element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, stroke="#888", stroke_dasharray=dashes),
        element("text", label, x=LEFT - 8, y=y + 4, text_anchor="end"),
    )


def _marked(shown: StepDifference, x: Scale, y: Scale) -> list[Markup]:
    colour, place = COLOURS[shown.verdict], x(shown.step)
    if shown.difference is None:
        return [element("text", CROSS, x=place, y=HEIGHT - BOTTOM + 4, text_anchor="middle", fill=colour)]
    tooltip = element("title", f"step {shown.step}: {shown.verdict}, {shown.difference:+.1f} points")
    marks = [element("circle", tooltip, cx=place, cy=y(shown.difference), r=4.5, fill=colour)]
    if shown.interval is not None:
        low, high = map(y, shown.interval)
        # Its ends show it where the line of the first bad step covers it.
        outline = f"M{place - CAP:g},{low:g}h{2 * CAP}m-{CAP},0V{high:g}m-{CAP},0h{2 * CAP}"
        marks.insert(0, element("path", d=outline, stroke=colour, stroke_width=2, fill="none"))
    return marks
