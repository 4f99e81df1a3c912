"""Where the marks of a chart stand: plain numbers in the units of its view box, drawn by templates/charts.html.j2."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from plugins.gates.evidence_curves import Curve

# Cividis (Nuñez, Anderton and Renslow 2018): equally readable with every kind of colour vision.
CIVIDIS = ("00224e", "123570", "3b496c", "575d6d", "707173", "8a8678", "a59c74", "c3b369", "e1cc55", "fee838")
SHADES = 20
WIDTH, HEIGHT = 360, 210
LEFT, RIGHT, TOP, BOTTOM = 30, 12, 22, 24
EVIDENCE_WIDTH, EVIDENCE_HEIGHT = 260, 120
# Where every score is above the first, the upper half of the axis shows more.
HIGH, HALF = 52.0, 50.0
MOST_LABELS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One score: where it stands, what it says, and what was decided about it."""

    x: float
    y: float
    label: str
    above: bool
    word: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A score over ordered places (lengths or steps), its band as the points of polygons, its threshold."""

    points: tuple[Point, ...]
    path: str
    bands: tuple[str, ...]
    threshold: float | None
    ticks_x: tuple[tuple[float, str], ...]
    ticks_y: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Two curves against their bar; `decided` is where the first of them reached it."""

    above: str
    below: str
    bar: float
    zero: float
    decided: float | None
    last: int
    of: int


def shade(score: float) -> int:
    """The step of the scale for a score of 0 to 100: 0 to SHADES."""
    return max(0, min(SHADES, int(score * SHADES / 100)))


def shade_rules() -> str:
    """The scale as style rules, with the ink that is readable on each of its colours."""
    rules = []
    for step in range(SHADES + 1):
        red, green, blue = _between(step / SHADES)
        light = 0.2126 * _linear(red) + 0.7152 * _linear(green) + 0.0722 * _linear(blue)
        ink = "#fff" if 1.05 / (light + 0.05) >= (light + 0.05) / 0.05 else "#000"
        rules.append(f".s{step}{{background:#{red:02x}{green:02x}{blue:02x};color:{ink}}}")
    return "\n".join(rules)


def difference_class(points: float) -> str:
    """Worse and better in five steps each, of 2, 5, 10 and 20 points."""
    step = sum(abs(points) >= bound for bound in (0.5, 2, 5, 10, 20))
    return "d0" if not step else f"{'w' if points < 0 else 'b'}{step}"


def line(
    labels: Sequence[str],
    scores: Sequence[float | None],
    intervals: Sequence[Sequence[float] | None],
    *,
    threshold: float | None,
    words: Sequence[str | None] = (),
    floor: float = 0.0,
) -> Line:
    """A chart of scores from `floor` (see `floor_of`) to 100."""
    step = (WIDTH - LEFT - RIGHT) / max(1, len(labels))
    xs = [LEFT + step * (at + 0.5) for at in range(len(labels))]
    # Where there are more labels than room, every so many is written.
    every = -(-len(labels) * max((len(label) for label in labels), default=1) * 7 // (WIDTH - LEFT - RIGHT)) or 1

    def y(score: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - (score - floor) / (100 - floor)), 1)

    labelled = telling(scores)
    points = [
        Point(
            x=round(x, 1),
            y=y(score),
            label=f"{score:.1f}" if at in labelled else "",
            above=_label_above(scores, at),
            word=words[at] if at < len(words) else None,
        )
        for at, (x, score) in enumerate(zip(xs, scores, strict=True))
        if score is not None
    ]
    known = [(x, each) for x, each in zip(xs, intervals, strict=True)]
    return Line(
        points=tuple(points),
        path=" ".join(f"{point.x},{point.y}" for point in points),
        bands=tuple(_bands(known, y, step)),
        threshold=None if threshold is None else y(threshold),
        ticks_x=tuple(
            (round(x, 1), label) for at, (x, label) in enumerate(zip(xs, labels, strict=True)) if at % every == 0
        ),
        ticks_y=tuple((y(tick), f"{tick}") for tick in range(int(floor), 101, 10 if floor else 25)),
    )


def floor_of(values: Iterable[float | None]) -> float:
    """Where the scale of charts that stand side by side begins: at 50 where none of their values lies near there."""
    return HALF if min((value for value in values if value is not None), default=0.0) > HIGH else 0.0


def telling(values: Sequence[float | None]) -> set[int]:
    """Which points get their number: all where there is room, else both ends, the lowest and the highest."""
    known = [at for at, value in enumerate(values) if value is not None]
    if len(values) <= MOST_LABELS or not known:
        return set(known)
    ranked = sorted(known, key=lambda at: values[at] or 0.0)
    return {known[0], known[-1], ranked[0], ranked[-1]}


def evidence(curve: Curve) -> Evidence:
    """The chart of a gate's evidence at one length; what lies far below zero stays at the lower edge."""
    ceiling = min(max(1.35 * curve.bar, *curve.above, *curve.below), 2.2 * curve.bar)
    bottom, last = -1.0, max(curve.seen[-1], curve.decided or 1)

    def x(seen: float) -> float:
        return round(26 + (EVIDENCE_WIDTH - 34) * seen / last, 1)

    def y(power: float) -> float:
        inside = max(bottom, min(ceiling, power))
        return round(8 + (EVIDENCE_HEIGHT - 30) * (1 - (inside - bottom) / (ceiling - bottom)), 1)

    def path(powers: Sequence[float]) -> str:
        return " ".join(f"{x(seen)},{y(power)}" for seen, power in zip(curve.seen, powers, strict=True))

    return Evidence(
        above=path(curve.above),
        below=path(curve.below),
        bar=y(curve.bar),
        zero=y(0.0),
        decided=None if curve.decided is None else x(curve.decided),
        last=last,
        of=curve.of,
    )


def stack(counts: Mapping[str, int], total: int, kinds: Sequence[str], width: float) -> list[tuple[str, float, float]]:
    """(kind, x, width) of one bar's parts, in the order of `kinds`."""
    parts, x = [], 0.0
    for kind in kinds:
        size = width * counts.get(kind, 0) / total if total else 0.0
        if size:
            parts.append((kind, round(x, 2), round(size, 2)))
        x += size
    return parts


def _bands(known: Sequence[tuple[float, Sequence[float] | None]], y: object, step: float) -> list[str]:
    """A polygon for each run of places that have bounds; a place alone is as wide as a quarter of a step."""
    assert callable(y)
    bands: list[str] = []
    run: list[tuple[float, Sequence[float]]] = []
    for x, bounds in [*known, (0.0, None)]:
        if bounds is not None:
            run.append((x, bounds))
            continue
        if len(run) == 1:
            middle, only = run[0]
            run = [(middle - step / 8, only), (middle + step / 8, only)]
        if run:
            ends = [(at, each[0]) for at, each in run] + [(at, each[1]) for at, each in reversed(run)]
            bands.append(" ".join(f"{at:.1f},{y(end)}" for at, end in ends))
        run = []
    return bands


def _label_above(scores: Sequence[float | None], at: int) -> bool:
    """Whether the number stands above its point: where the line does not rise past it on either side."""
    here = scores[at]
    beside = [score for score in (*scores[max(0, at - 1) : at], *scores[at + 1 : at + 2]) if score is not None]
    return here is None or here > 90 or not beside or sum(score > here for score in beside) * 2 <= len(beside)


def _between(share: float) -> tuple[int, int, int]:
    place = share * (len(CIVIDIS) - 1)
    low = min(int(place), len(CIVIDIS) - 2)
    first, second = (bytes.fromhex(CIVIDIS[at]) for at in (low, low + 1))
    red, green, blue = (round(a + (b - a) * (place - low)) for a, b in zip(first, second, strict=True))
    return red, green, blue


def _linear(channel: int) -> float:
    value = channel / 255
    return value / 12.92 if value <= 0.04045 else float(((value + 0.055) / 1.055) ** 2.4)
