"""Write the index page of a watch: every checkpoint with its verdict, scores and cost, and links to its reports."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ci.watch.history import Measurement
from ci.watch.measure import ENGINE_CHECK, LAST_GOOD
from ci.watch.noise import noise, score_lines, steady_scores
from ci.watch.screen import SCREEN, screen_lines
from fixtures.atomic_files import write_file
from fixtures.shown_text import visible_line
from plugins.report.charts.lines import lowest_of, score_chart
from plugins.report.html.page import render
from plugins.report.html.views import Chart, chart_rows

INDEX = "index.html"


def write_index(folder: Path, measurements: Sequence[Measurement], summary: Sequence[str]) -> Path:
    """Write the index of the measurements, which are in the order of their steps, and return its path."""
    path = folder / INDEX
    rows = [
        _row(folder, measurement, steady_scores(measurements[:position]))
        for position, measurement in enumerate(measurements)
    ]
    names = dict.fromkeys(name for measurement in measurements for name in measurement.scores)
    charts = [_chart(name, measurements) for name in names]
    html = render("watch.html.j2", title="Watched checkpoints", rows=rows[::-1], charts=charts, summary=summary)
    write_file(path, html.encode("utf-8", errors="replace"))
    return path


def _row(folder: Path, measurement: Measurement, earlier: Sequence[Any]) -> dict[str, Any]:
    # Texts, because the history may hold a path that no file can have.
    report, _ = os.path.splitext(measurement.report)
    directory, name = os.path.split(report)
    files = {
        "page": f"{report}.html",
        "log": f"{report}.log",
        "against the last good step": os.path.join(directory, LAST_GOOD, f"{name}.html"),
        "invariance": os.path.join(directory, ENGINE_CHECK, f"{name}.html"),
        "screen": os.path.join(directory, SCREEN, f"{name}.html"),
    }
    return {
        "step": f"{measurement.step:,}",
        "verdict": measurement.verdict,
        "scores": score_lines(measurement.scores, earlier),
        "reasons": [visible_line(line) for line in (*measurement.failed, *screen_lines(measurement.screen))],
        "gpu_minutes": f"{measurement.gpu_seconds / 60:.1f}",
        "links": [(name, os.path.relpath(path, folder)) for name, path in files.items() if os.path.isfile(path)],
    }


def _chart(name: str, measurements: Sequence[Measurement]) -> Chart:
    labels = [str(measurement.step) for measurement in measurements]
    values = [measurement.scores.get(name) for measurement in measurements]
    spread = noise([scores[name] for scores in steady_scores(measurements) if name in scores])
    intervals = [None if spread is None or value is None else (value - spread, value + spread) for value in values]
    lowest = lowest_of(value for value in values if value is not None)
    return Chart(
        name=name,
        line=score_chart(labels, values, intervals, threshold=None, verdicts=(), lowest=lowest),
        note="band: noise from step to step",
        rows=chart_rows(labels, values, intervals),
    )
