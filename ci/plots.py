"""The search as a picture: SVG, written by hand, since a line with whiskers needs no library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from ci.bisect.search import Verdict

WIDTH, HEIGHT = 860, 380
LEFT, RIGHT, TOP, BOTTOM = 64, 20, 48, 56
COLOURS: dict[Verdict, str] = {"good": "#1b7f3b", "bad": "#b3261e", "skipped": "#8a8a8a"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A step that was looked at. `value` and `interval` are points of difference; None where it was skipped."""

    step: int
    word: Verdict
    value: float | None
    interval: tuple[float, float] | None


def plot(points: Sequence[Point], *, title: str, half_way: float, edge: tuple[int, int] | None) -> str:
    """Difference to the good end over steps, with intervals; the edge is shaded."""
    steps = [point.step for point in points]
    values: list[float] = [end for point in points for end in (*(point.interval or ()), point.value) if end is not None]
    low, high = min([0.0, half_way, *values]), max([0.0, *values])
    span = (high - low) or 1.0
    first, last = min(steps), max(steps)

    def x(step: float) -> float:
        return LEFT + (step - first) / max(1, last - first) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (high - value) / span * (HEIGHT - TOP - BOTTOM)

    drawn: list[str] = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="15">{escape(title)}</text>',
    ]
    if edge is not None:
        wide = max(2.0, x(edge[1]) - x(edge[0]))
        drawn.append(f'<rect x="{x(edge[0]):.1f}" y="{TOP}" width="{wide:.1f}" height="{HEIGHT - TOP - BOTTOM}" '
                     'fill="#f6d5d2"/>')  # fmt: skip
    for value, style, name in ((0.0, "", "0"), (half_way, ' stroke-dasharray="5 4"', f"{half_way:.1f}")):
        drawn.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" '
                     f'stroke="#888"{style}/>'
                     f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{name}</text>')  # fmt: skip
    for point in points:
        drawn.append(_mark(point, x(point.step), y))
    drawn += [
        f'<text x="{LEFT}" y="{HEIGHT - 32}">{first}</text>',
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 32}" text-anchor="end">{last}</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 10}" fill="#555">steps; points lost against the good end, with intervals; '
        "dashed: half of the drop; crosses: skipped</text>",
        "</svg>",
    ]
    return "\n".join(drawn) + "\n"


def _mark(point: Point, x: float, y: Callable[[float], float]) -> str:
    colour = COLOURS[point.word]
    if point.value is None:
        return f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 4}" text-anchor="middle" fill="{colour}">&#215;</text>'
    told = f"<title>step {point.step}: {point.word}, {point.value:+.1f} points</title>"
    dot = f'<circle cx="{x:.1f}" cy="{y(point.value):.1f}" r="4.5" fill="{colour}">{told}</circle>'
    if point.interval is None:
        return dot
    low, high = point.interval
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y(low):.1f}" y2="{y(high):.1f}" stroke="{colour}"/>{dot}'
