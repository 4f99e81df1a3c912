"""Write the index page of a watch: every checkpoint with its verdict, scores and cost, and links to its reports."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longctx.ci.watch.history import WatchedCheckpoint, noise, score_lines, steady_scores
from longctx.ci.watch.measure import ENGINE_CHECK, LAST_GOOD, SCREEN, screen_lines
from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.shown_text import visible_line
from longctx.plugins.report.charts.lines import Chart, chart_rows, lowest_of, score_chart
from longctx.plugins.report.html.page import render

INDEX = "index.html"


def write_index(folder: Path, measurements: Sequence[WatchedCheckpoint], summary: Sequence[str]) -> Path:
    """Write the index of the measurements, which are in the order of their steps, and return its path."""
    path = folder / INDEX
    rows = [
        _row(folder, measurement, steady_scores(measurements[:position]))
        for position, measurement in enumerate(measurements)
    ]
    names = dict.fromkeys(name for measurement in measurements for name in measurement.scores)
    labels = [str(measurement.step) for measurement in measurements]
    charts = []
    for name in names:
        values = [measurement.scores.get(name) for measurement in measurements]
        spread = noise([scores[name] for scores in steady_scores(measurements) if name in scores])
        intervals = [None if spread is None or value is None else (value - spread, value + spread) for value in values]
        lowest = lowest_of(value for value in values if value is not None)
        charts.append(
            Chart(
                name=name,
                line=score_chart(labels, values, intervals, threshold=None, verdicts=(), lowest=lowest),
                note="band: noise from step to step",
                rows=chart_rows(labels, values, intervals),
            )
        )
    html = render("watch.html.j2", title="Watched checkpoints", rows=rows[::-1], charts=charts, summary=summary)
    write_file(path, html.encode("utf-8", errors="replace"))
    return path


def _row(folder: Path, measurement: WatchedCheckpoint, earlier: Sequence[Any]) -> dict[str, Any]:
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
