"""The page of a report history: effective length, mean scores and gates over training steps."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from fixtures.shown_text import visible
from plugins.gates.findings import shown_verdict
from plugins.report.charts.lines import level_chart, lowest_of, score_chart, value_chart
from plugins.report.history import History, Report, Track
from plugins.report.history_samples import page_of, samples_of_runs
from plugins.report.html.page import embedded, render, resource
from plugins.report.html.tables import short_length
from plugins.report.html.views import Chart, chart_rows, threshold_note


def steps_page(history: History, folder: Path | None = None) -> str:
    """Return the page as HTML; `folder` is the directory it is written to, from which it links to other pages."""
    labels = [_short_step(step) for step in history.steps]
    samples = samples_of_runs(history.reports, labels)
    lowest = lowest_of(value for track in history.means for value in _drawn_values(track))
    return render(
        "history.html.j2",
        title="Long context over training steps",
        steps=labels,
        reports=[
            {
                "step": f"{report.step:,}",
                "name": report.document["model"]["name"],
                "effective_length": _length_text(length),
                "gates": _gate_counts(report),
                "link": _link(report, folder),
            }
            for report, length in zip(history.reports, history.effective_lengths, strict=True)
        ],
        effective_lengths=_effective_length_chart(history, labels),
        charts=[_mean_chart(track, labels, lowest) for track in history.means],
        likelihoods=[_likelihood_chart(track, labels) for track in history.likelihoods],
        gate_charts=[_gate_chart(track, labels) for track in history.gate_values],
        gates=history.gates,
        samples=samples,
        has_flips=any("flip" in row for row in samples),
        script=resource("script.js") if samples else "",
        data=embedded({"rows": samples}),
        skipped=[visible(line) for line in history.skipped],
    )


def _gate_counts(report: Report) -> str:
    """Return how many blocking gates of a report have each verdict."""
    counts = Counter(shown_verdict(gate["verdict"]) for gate in report.document["gates"] if gate["blocking"])
    return ", ".join(f"{count} {word}" for word, count in counts.items()) or "-"


def _link(report: Report, folder: Path | None) -> str | None:
    page = page_of(report)
    return None if page is None or folder is None else os.path.relpath(page, folder)


def _gate_chart(track: Track, labels: list[str]) -> Chart:
    is_difference = track.threshold is not None and track.threshold < 0
    chart = value_chart if is_difference else score_chart
    return Chart(
        name=track.name,
        line=chart(labels, track.values, track.intervals, threshold=track.threshold, verdicts=track.verdicts),
        note=f"requires {track.threshold:g}",
        rows=chart_rows(labels, track.values, track.intervals),
    )


def _drawn_values(track: Track) -> Iterable[float | None]:
    return (*track.values, track.threshold, *(interval[0] for interval in track.intervals if interval))


def _mean_chart(track: Track, labels: list[str], lowest: float) -> Chart:
    name, at, length = track.name.partition(" at ")
    return Chart(
        name=f"{name} at {short_length(int(length))}" if at else f"HELMET {name}",
        line=score_chart(
            labels, track.values, track.intervals, threshold=track.threshold, verdicts=track.verdicts, lowest=lowest
        ),
        note=threshold_note(track.threshold),
        rows=chart_rows(labels, track.values, track.intervals),
    )


def _likelihood_chart(track: Track, labels: list[str]) -> Chart:
    name, _, length = track.name.partition(" at ")
    return Chart(
        name=f"{name} at {short_length(int(length))}",
        line=value_chart(labels, track.values, track.intervals),
        note="in nats per token" if name.endswith("gain") else "0 to 100; it screens, answers decide",
        rows=tuple(
            (
                label,
                "-" if value is None else f"{value:.2f}",
                "-" if ends is None else f"{ends[0]:.2f} to {ends[1]:.2f}",
            )
            for label, value, ends in zip(labels, track.values, track.intervals, strict=True)
        ),
    )


def _effective_length_chart(history: History, labels: list[str]) -> Chart | None:
    """Return the chart with one level for each tested length, and one below them; None if nothing was measured."""
    if all(length is None for length in history.effective_lengths):
        return None
    levels = {length: level for level, length in enumerate((0, *history.lengths))}
    tested_claim = max((length for length in history.lengths if length <= (history.claimed_length or 0)), default=None)
    line = level_chart(
        labels,
        [None if length is None else levels.get(length) for length in history.effective_lengths],
        [_length_text(length) for length in levels],
        threshold=None if tested_claim is None else levels[tested_claim],
    )
    rows = tuple(
        (label, _length_text(length), "-") for label, length in zip(labels, history.effective_lengths, strict=True)
    )
    return Chart(name="Effective length", line=line, note="dashed: longest tested length within the claim", rows=rows)


def _length_text(length: int | None) -> str:
    if length is None:
        return "-"
    return short_length(length) if length else "none"


def _short_step(step: int) -> str:
    """Return a step with a unit where that is exact: 1000 is 1k, 1500 is 1.5k, 1234 stays."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if step >= size and step * 10 % size == 0:
            return f"{step / size:g}{unit}"
    return str(step)
