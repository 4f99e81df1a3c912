"""The history of a training run as one page."""

from __future__ import annotations

from plugins.report.charts import HEIGHT, LEFT, RIGHT, TOP, WIDTH, Line, Point, floor_of, line, telling
from plugins.report.escape import visible
from plugins.report.history import History, Track
from plugins.report.html.page import render
from plugins.report.html.tables import bounds, number, short_length
from plugins.report.html.views import Chart


def steps_page(found: History) -> str:
    """Effective length, means by length and category, and gates over the steps."""
    labels = [_short(step) for step in found.steps]
    tracks = [_named(track) for track in found.means]
    floor = floor_of(
        value
        for track in found.means
        for value in (*track.values, track.threshold, *(each[0] for each in track.intervals if each))
    )
    return render(
        "history.html.j2",
        title="Long context over training steps",
        steps=labels,
        reports=[
            {"step": f"{each.step:,}", "name": visible(each.document["model"]["name"]), "effective": _length(length)}
            for each, length in zip(found.reports, found.effective, strict=True)
        ],
        effective=_ladder(found, labels) if any(each is not None for each in found.effective) else None,
        charts=[_chart(track, labels, floor) for track in tracks],
        gates=found.gates,
        skipped=[visible(each) for each in found.skipped],
        words=("pass", "fail", "inconclusive", "error", "not measured"),
    )


def _named(track: Track) -> tuple[str, Track]:
    name, at, length = track.name.partition(" at ")
    return (f"{name} at {short_length(int(length))}" if at else f"HELMET {name}"), track


def _chart(named: tuple[str, Track], labels: list[str], floor: float) -> Chart:
    name, track = named
    return Chart(
        name=name,
        line=line(labels, track.values, track.intervals, threshold=track.threshold, words=track.words, floor=floor),
        note="" if track.threshold is None else f"threshold {track.threshold:g}",
        rows=tuple(
            (label, number(value), bounds(interval))
            for label, value, interval in zip(labels, track.values, track.intervals, strict=True)
        ),
    )


def _ladder(found: History, labels: list[str]) -> Chart:
    """The effective length over the steps; each tested length is one rung, below them all the lowest."""
    rungs = [0, *found.lengths]
    height = (HEIGHT - TOP - 24) / max(1, len(rungs) - 1)
    ys = {rung: round(TOP + height * (len(rungs) - 1 - at), 1) for at, rung in enumerate(rungs)}
    base = line(labels, [None] * len(labels), [None] * len(labels), threshold=None)
    step = (WIDTH - LEFT - RIGHT) / len(labels)
    labelled = telling(found.effective)
    points = tuple(
        Point(
            x=round(LEFT + step * (at + 0.5), 1),
            y=ys[length],
            label=_length(length) if at in labelled else "",
            above=True,
            word=None,
        )
        for at, length in enumerate(found.effective)
        if length is not None and length in ys
    )
    claimed = max((length for length in found.lengths if length <= (found.claimed or 0)), default=None)
    drawn = Line(
        points=points,
        path=" ".join(f"{point.x},{point.y}" for point in points),
        bands=(),
        threshold=None if claimed is None else ys[claimed],
        ticks_x=base.ticks_x,
        ticks_y=tuple((y, _length(rung)) for rung, y in ys.items()),
    )
    rows = tuple((label, _length(length), "-") for label, length in zip(labels, found.effective, strict=True))
    return Chart(name="Effective length", line=drawn, note="dashed: the claim, as far as it was tested", rows=rows)


def _length(length: int | None) -> str:
    if length is None:
        return "-"
    return short_length(length) if length else "none"


def _short(step: int) -> str:
    """1000 is 1k, 1500 is 1.5k; what does not become shorter exactly stays."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if step >= size and step * 10 % size == 0:
            return f"{step / size:g}{unit}"
    return str(step)
