"""A watch in words: its alerts with the commands that look further, its scores, and its index page."""

import os
import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longctx.ci.bisect.report import percent
from longctx.ci.checkpoint_dirs import StepReader
from longctx.ci.suite_options import SuiteOptions
from longctx.ci.suite_process import read_report
from longctx.ci.watch.alerts import Alert, Kind, lowest_case, search_words, searched_cases
from longctx.ci.watch.history import WatchedCheckpoint
from longctx.ci.watch.measure import ENGINE_CHECK, LAST_GOOD
from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.outside_files import absolute
from longctx.fixtures.shown_text import visible, visible_data, visible_line
from longctx.plugins.report.history import StepReport, step_charts
from longctx.plugins.report.html.page import render

MAX_CASES_SHOWN = 5
COLUMNS = 100
Facts = list[tuple[str, str]]
"""Names and texts."""
# The facts that are commands.
COMMANDS = ("bisect", "cause")
WITHOUT_CASES: dict[Kind, str] = {
    "loss": "cases have lost points",
    "gates": "gates fail",
    "error": "the checkpoint cannot be measured",
}


def broken(text: str, *, is_command: bool = False) -> list[str]:
    """Return a text in lines of at most COLUMNS columns where words allow it; a command stays one for a shell."""
    if not is_command or len(text) <= COLUMNS:
        return textwrap.wrap(text, COLUMNS, break_long_words=False, break_on_hyphens=False) or [""]
    lines = [""]
    for word in map(shlex.quote, shlex.split(text)):
        is_full = len(lines[-1]) + len(word) + 3 > COLUMNS
        lines[-1:] = [f"{lines[-1]} \\", word] if is_full else [f"{lines[-1]} {word}".strip()]
    return lines


def headline(alert: Alert) -> str:
    """Return an alert in one line: the loss, and its step."""
    if not alert.cases:
        return f"{WITHOUT_CASES[alert.kind]}, from {place(alert)} on"
    worst, *others = alert.cases
    name, case = case_name(worst), alert.cases[worst]
    if others:
        name += f" and {len(others)} other case{'s' * (len(others) > 1)}"
    if case.points is None or case.points >= 0:
        return f"{name} failed at {place(alert)}"
    # Of several cases, the number is that of the worst one.
    points = f"{'up to ' if others else ''}{-case.points:.1f} points"
    if case.against == "threshold":
        return f"{name} fell {points} below the threshold at {place(alert)}"
    return f"{name} lost {points} at {place(alert)}"


def case_name(case: str) -> str:
    """Return the task and length in a case's id: `vt-4k` for `test_ruler[vt-4k]`."""
    return case.partition("[")[2].removesuffix("]") or case


def place(alert: Alert) -> str:
    """Return the step at which the run became worse, as far as it is known."""
    culprit = alert.culprit
    if culprit is None:
        return f"step {alert.first.step}"
    if culprit.first == culprit.last:
        return f"step {culprit.first}"
    return f"a step from {culprit.first} to {culprit.last}"


def culprit_text(alert: Alert) -> str:
    """Return the result of the search, such as `step 15 (99.9 % sure)`; empty if no step is known."""
    culprit = alert.culprit
    return "" if culprit is None else f"{place(alert)} ({percent(culprit.probability or 0.0)} sure)"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertText:
    """The sentences of a watch about its alerts."""

    folder: Path
    """The folder of the watch."""
    suite: SuiteOptions
    steps: StepReader

    def folder_of(self, alert: Alert) -> Path:
        """Return the folder for the search and the diagnosis of an alert."""
        return absolute(self.folder) / "alerts" / alert.name

    def lines(self, alert: Alert) -> list[str]:
        """Return an alert in full: its headline, and a line for everything that one needs to act on it."""
        lines = [f"alert, {alert.status}: {headline(alert)}"]
        for name, text in self.facts(alert):
            first, *others = broken(text, is_command=name in COMMANDS)
            lines += [f"  {name:<10}  {first}", *(f"{'':<14}{other}" for other in others)]
        return lines

    def facts(self, alert: Alert) -> Facts:
        """Return everything that one needs to act on an alert, by name."""
        rows = [("since", _since(alert))]
        names = list(alert.cases)
        for name in names[:MAX_CASES_SHOWN]:
            first = next(known for known in alert.steps if known.cases.get(name) == alert.cases[name])
            rows.append(("case", _case_line(name, first)))
        for known in alert.undecided[-MAX_CASES_SHOWN:]:
            lowest = lowest_case(known, names)
            assert lowest is not None
            rows.append(("undecided", f"step {known.step}: {_case_line(lowest, known)}"))
        if not names:
            rows += [("reason", reason) for reason in alert.first.failed[:MAX_CASES_SHOWN]]
        if alert.search is not None:
            page = str(self.folder_of(alert) / "bisect.html")
            rows.append(("search", alert.search.line if alert.culprit is None else page))
        return [*rows, *_checkpoints(alert), *self._commands(alert)]

    def _commands(self, alert: Alert) -> Facts:
        if not alert.cases:
            return []
        search = "" if alert.culprit is not None else self._search_command(alert)
        rows = [("bisect", search), ("cause", self._diagnosis_command(alert))]
        return [(name, command) for name, command in rows if command]

    def _search_command(self, alert: Alert) -> str:
        """Return the command that searches the skipped steps before an alert; empty if there are none."""
        good, bad = alert.last_good, alert.first
        run = Path(bad.checkpoint).parent
        saved = self.steps.find(run).steps if run.is_dir() else ()
        if good is None or not any(good.step < step.number < bad.step for step in saved):
            return ""
        options = [*self.suite.given, *self.steps.words]
        words = search_words(searched_cases(alert.cases), good, bad, options, self.folder_of(alert))
        return shlex.join([*words, f"{run}/*[0-9]*"])

    def _diagnosis_command(self, alert: Alert) -> str:
        """Return the command that compares the checkpoints on disk that are nearest to the loss; empty if none are."""
        goods, bads = _neighbours(alert)
        goods = [path for path in (*goods, alert.first.compared_with or "") if os.path.isdir(path)]
        bads = [path for path in bads if os.path.isdir(path)]
        if not goods or not bads:
            return ""
        words = ["longctx", "diagnose", goods[0], bads[0], "--report", alert.first.report]
        return shlex.join([*words, "--case", next(iter(alert.cases)), "--out", str(self.folder_of(alert))])


def _since(alert: Alert) -> str:
    first, culprit = alert.first.step, alert.culprit
    if culprit is not None:
        return f"{culprit_text(alert)}, by {culprit.checkpoints} more measured steps; step {culprit.last_good} is good"
    if alert.good_step is None:
        return f"step {first}; no step before it passed"
    return f"step {first}; the last good one measured is step {alert.good_step}"


def _case_line(name: str, known: WatchedCheckpoint) -> str:
    case = known.cases[name]
    if case.points is None:
        return f"{case_name(name)}: not compared"
    interval = ""
    if case.interval is not None:
        low, high = case.interval
        interval = f" [{low:+.1f}, {high:+.1f}]"
    if case.against == "threshold":
        return f"{case_name(name)}: {case.points:+.1f}{interval} from the threshold on {case.pairs} samples"
    against = f" against {Path(known.compared_with).name}" if known.compared_with else ""
    return f"{case_name(name)}: {case.points:+.1f}{interval}{against} on {case.pairs} pairs"


def _checkpoints(alert: Alert) -> Facts:
    goods, bads = _neighbours(alert)
    # A text, because the history may hold a path that no file can have.
    page = f"{os.path.splitext(alert.first.report)[0]}.html"
    reports = [("report", path) for path in (page, alert.first.report) if os.path.isfile(path)]
    return [("first bad", bads[0]), ("last good", goods[0] if goods else "none"), *reports[:1]]


def _neighbours(alert: Alert) -> tuple[list[str], list[str]]:
    """Return good checkpoints before the loss of an alert and bad ones behind it, the nearest to it first."""
    goods = [alert.last_good.checkpoint] if alert.last_good else []
    bads = [known.checkpoint for known in alert.steps]
    if alert.culprit is not None and alert.culprit.last_path:
        goods, bads = [alert.culprit.last_good_path, *goods], [alert.culprit.last_path, *bads]
    return goods, bads


def write_index(
    directory: Path, text: AlertText, measurements: Sequence[WatchedCheckpoint], alerts: Sequence[Alert],
    summary: Sequence[str], *, counts_gpus: bool,
) -> Path:  # fmt: skip
    """Write the index of a watch of a directory, and return its path.

    The measurements are in the order of their steps. Open alerts come first, and the worst first. The cost of a
    checkpoint is in GPU minutes if `counts_gpus`, else in minutes.
    """
    path = text.folder / "index.html"
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
        # The address of a page that a fact names, relative to the index.
        is_page = value.endswith(".html") and os.path.isfile(value)
        link = os.path.relpath(value, text.folder) if is_page else ""
        facts.append((name, visible_line(value), link))
    title = f"Alert, {alert.status}: {headline(alert)}"
    return {"name": visible(alert.name), "headline": visible_line(title), "facts": facts}


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
    return {
        "known": visible_data(measurement),
        "alerts": [visible(alert.name) for alert in alerts if measurement in alert.steps],
        "scores": score_lines(measurement),
        "links": [(name, os.path.relpath(path, folder)) for name, path in files.items() if os.path.isfile(path)],
    }
