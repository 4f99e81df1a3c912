"""Write the index page of a watch: the alerts with their steps, and every checkpoint."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longctx.ci.suite_process import read_report
from longctx.ci.watch.alert_text import AlertText, culprit_text, headline
from longctx.ci.watch.alerts import Alert
from longctx.ci.watch.history import WatchedCheckpoint
from longctx.ci.watch.measure import ENGINE_CHECK, LAST_GOOD
from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.shown_text import visible, visible_data, visible_line
from longctx.plugins.report.history import StepReport, step_charts
from longctx.plugins.report.html.page import render

INDEX = "index.html"


def write_index(
    directory: Path, text: AlertText, measurements: Sequence[WatchedCheckpoint], alerts: Sequence[Alert],
    summary: Sequence[str], *, counts_gpus: bool,
) -> Path:  # fmt: skip
    """Write the index of a watch of a directory, and return its path.

    The measurements are in the order of their steps. Open alerts come first, and the worst first. The cost of a
    checkpoint is in GPU minutes if `counts_gpus`, else in minutes.
    """
    path = text.folder / INDEX
    rows = [_row(text.folder, measurement, alerts) for measurement in measurements]
    word, verdict, why = _headline(measurements, alerts)
    html = render(
        "watch.html.j2",
        title=f"Watch of {visible(directory.name)}",
        directory=visible(str(directory)),
        word=word,
        headline=verdict,
        why=visible_line(why),
        last=max((known.ended for known in measurements), default=""),
        alerts=[_alert(alert, text) for alert in alerts],
        rows=rows[::-1],
        **step_charts(_reports(measurements)),
        summary=[visible_line(line) for line in summary],
        unit="GPU minutes" if counts_gpus else "minutes",
    )
    write_file(path, html.encode("utf-8", errors="replace"))
    return path


def _headline(measurements: Sequence[WatchedCheckpoint], alerts: Sequence[Alert]) -> tuple[str, str, str]:
    known = [measurement for measurement in measurements if measurement.counts]
    if not known:
        return "open", "Nothing measured", ""
    last, failures = known[-1], [measurement for measurement in known if measurement.is_failure]
    if not failures:
        suspected = next((measurement for measurement in known if measurement.is_suspected), None)
        headline = f"No checkpoint fails, up to step {last.step:,}"
        if suspected is None:
            return "pass", headline, ""
        return "open", f"{headline}; a loss is suspected at step {suspected.step:,}", _reason(suspected, None)
    worst = failures[-1]
    alert = next((alert for alert in alerts if worst in alert.steps), None)
    if worst is not last:
        return "open", f"Step {worst.step:,} failed; step {last.step:,} does not", _reason(worst, alert)
    first = worst if alert is None else alert.first
    since = (alert and culprit_text(alert)) or f"step {first.step:,}"
    good = None if alert is None else alert.good_step
    before = "" if good is None else f"; the last good one is step {good:,}"
    return "fail", f"{last.verdict.upper()} since {since}{before}", _reason(first, alert)


def _alert(alert: Alert, text: AlertText) -> dict[str, Any]:
    facts = []
    for name, value in text.facts(alert) if alert.is_open else ():
        facts.append((name, visible_line(value), _link(value, text.folder)))
    title = f"Alert, {alert.status}: {headline(alert)}"
    return {"name": visible(alert.name), "headline": visible_line(title), "facts": facts}


def _link(text: str, folder: Path) -> str:
    """Return the address of a page that a fact names, relative to the index; empty for any other text."""
    return os.path.relpath(text, folder) if text.endswith(".html") and os.path.isfile(text) else ""


def _reason(measurement: WatchedCheckpoint, alert: Alert | None) -> str:
    """Return what the alert of a checkpoint says, or else the first reason of its verdict, which is longer."""
    if alert is not None and alert.cases:
        return headline(alert) + ("" if alert.is_open else f"; {alert.status}")
    return measurement.failed[0] if measurement.failed else ""


def _reports(measurements: Sequence[WatchedCheckpoint]) -> list[StepReport]:
    step_reports = []
    for measurement in measurements:
        path = Path(measurement.report)
        document = read_report(path) if measurement.counts else None
        if document is not None and any(case.score is not None for case in document.cases):
            step_reports.append(StepReport(step=measurement.step, path=path, document=visible_data(document)))
    return step_reports


def score_lines(measurement: WatchedCheckpoint) -> list[str]:
    """Return a line for every score: its samples, and the change against the anchor on the same samples."""
    lines = []
    for name, panel in measurement.panels.items():
        line = f"{name}: {panel.score:.1f} on {panel.samples} samples"
        if panel.points is not None:
            line += f"; {panel.points:+.1f} against the anchor on {panel.pairs} pairs"
        lines.append(line)
    return lines


def _row(folder: Path, measurement: WatchedCheckpoint, alerts: Sequence[Alert]) -> dict[str, Any]:
    # Texts, because the history may hold a path that no file can have.
    report, _ = os.path.splitext(measurement.report)
    name = os.path.basename(report)
    files = {
        "page": f"{report}.html",
        "log": f"{report}.log",
        "on fewer samples": os.path.join(folder, f"{name}.html") if measurement.most_samples else "",
        "against the last good step": os.path.join(folder, LAST_GOOD, f"{name}.html"),
        "invariance": os.path.join(folder, ENGINE_CHECK, f"{name}.html"),
    }
    gone = [f"{measurement.lost} since it was measured"] if measurement.is_gone else []
    return {
        "step": f"{measurement.step:,}",
        "alerts": [visible(alert.name) for alert in alerts if measurement in alert.steps],
        "verdict": measurement.verdict,
        "suspicion": measurement.suspicion,
        "scores": score_lines(measurement),
        "reasons": [visible_line(line) for line in (*gone, *measurement.failed)],
        "minutes": f"{measurement.gpu_seconds / 60:.1f}",
        "links": [(name, os.path.relpath(path, folder)) for name, path in files.items() if os.path.isfile(path)],
    }
