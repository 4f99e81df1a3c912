"""Alerts in words: the lines that the watch prints, notifications send and `longctx alerts` lists."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from longctx.ci.alerts.episodes import Kind, LostCase
from longctx.ci.alerts.log import OPEN, Alert, Search
from longctx.ci.alerts.repeat import diagnose_command, fresh_command, repeat_command
from longctx.fixtures.outside_files import parse_json, read_outside

MAX_CASES_SHOWN = 5
PAGE = "bisect.html"
WITHOUT_CASES: dict[Kind, str] = {
    "loss": "cases have lost points",
    "gates": "gates fail",
    "engine": "the engine fails --invariance",
    "underpowered": "the comparison has no baseline",
    "error": "the checkpoint cannot be measured",
}


def case_name(case: str) -> str:
    """Return the task and length in a case's id: `vt-4k` for `test_ruler[vt-4k]`."""
    return case.partition("[")[2].removesuffix("]") or case


def in_order(alerts: Iterable[Alert]) -> list[Alert]:
    """Return open alerts before closed ones, new before acknowledged ones, the largest loss over its noise first."""
    known = [*alerts]
    opened = sorted(
        (alert for alert in known if alert.is_open), key=lambda alert: (OPEN.index(alert.status), *_rank(alert))
    )
    closed = sorted((alert for alert in known if not alert.is_open), key=lambda alert: alert.closed or "", reverse=True)
    return [*opened, *closed]


def _rank(alert: Alert) -> tuple[bool, float, int]:
    return (alert.episode.kind != "loss", -alert.episode.severity, alert.id)


def headline(alert: Alert) -> str:
    """Return an alert in one line: the loss, and its step."""
    cases = alert.episode.cases
    if not cases:
        return f"{WITHOUT_CASES[alert.episode.kind]}, from {place(alert)} on"
    name, points = case_name(cases[0].id), cases[0].points
    others = f" and {len(cases) - 1} other case{'s' * (len(cases) > 2)}" if len(cases) > 1 else ""
    if points is None or points >= 0:
        return f"{name}{others} failed at {place(alert)}"
    # Of several cases, the number is that of the worst one.
    up_to = "up to " if len(cases) > 1 else ""
    if cases[0].against == "threshold":
        return f"{name}{others} fell {up_to}{-points:.1f} points below the threshold at {place(alert)}"
    return f"{name}{others} lost {up_to}{-points:.1f} points at {place(alert)}"


def place(alert: Alert) -> str:
    """Return the step at which the run became worse, as far as it is known."""
    culprit = alert.culprit
    if culprit is None:
        return f"step {alert.episode.first.step}"
    return (
        f"step {culprit.first}" if culprit.first == culprit.last else f"a step from {culprit.first} to {culprit.last}"
    )


def culprit_text(alert: Alert) -> str:
    """Return the result of the search, such as `step 15 (99.9 % sure)`; empty if no step is known."""
    return f"{place(alert)} ({percent(alert.culprit)} sure)" if alert.culprit is not None else ""


def percent(search: Search) -> str:
    """Return a probability in percent, rounded down, so that 99 % is not shown for less."""
    return f"{math.floor(1000 * (search.probability or 0.0) + 1e-9) / 10:g} %"


def case_line(case: LostCase) -> str:
    """Return the loss of a case, with its interval and its noise."""
    if case.points is None:
        return f"{case_name(case.id)}: not compared"
    interval = "" if case.interval is None else f" [{case.interval[0]:+.1f}, {case.interval[1]:+.1f}]"
    over, unit = ("", "pairs") if case.against == "baseline" else (" from the threshold", "samples")
    line = f"{case_name(case.id)}: {case.points:+.1f}{interval}{over} on {case.pairs} {unit}"
    if case.spread is None:
        return line
    # The noise that a loss is divided by is at least the points of one answer.
    sources = ["from step to step"] if case.noise == case.spread else []
    if case.noise is None:
        sources = ["by its samples", "that from step to step is not known yet"]
    elif not sources:
        sources = ["one answer", f"from step to step it is ±{case.noise:.1f}"]
    return f"{line}; {case.severity:.1f} times its noise of ±{case.spread:.1f} ({'; '.join(sources)})"


def alert_lines(alert: Alert, folder: Path, *, most_cases: int = MAX_CASES_SHOWN) -> list[str]:
    """Return an alert in full: its headline, and a line for everything that one needs to act on it."""
    return [
        f"alert {alert.id}, {status_text(alert)}: {headline(alert)}",
        *(f"  {name:<10}  {text}" for name, text in alert_facts(alert, folder, most_cases=most_cases)),
    ]


def alert_facts(alert: Alert, folder: Path, *, most_cases: int = MAX_CASES_SHOWN) -> list[tuple[str, str]]:
    """Return everything that one needs to act on an alert, by name."""
    episode = alert.episode
    rows = [("since", _since(alert))]
    take = shlex.join(["longctx", "alerts", str(folder), "ack", str(alert.id), "--owner"])
    rows.append(("owner", alert.owner or f"nobody yet; {take} NAME"))
    rows += [("note", alert.note)] * bool(alert.note)
    rows += [("case", case_line(case)) for case in episode.cases[:most_cases]]
    if len(episode.cases) > most_cases:
        rows.append(("", f"and {len(episode.cases) - most_cases} more; longctx alerts {folder} show {alert.id}"))
    if not episode.cases:
        rows += [("reason", reason) for reason in episode.reasons[:most_cases]]
    rows += _diagnosis(folder / f"alert-{alert.id}")
    if alert.search is not None:
        rows.append(
            ("search", alert.search.line if alert.culprit is None else str(folder / f"alert-{alert.id}" / PAGE))
        )
    culprit = alert.culprit
    good = (culprit and culprit.last_good_path) or (episode.last_good and episode.last_good.checkpoint)
    rows.append(("first bad", (culprit and culprit.last_path) or episode.first.checkpoint))
    if good:
        rows.append(("last good", good))
    if rows[-1 - bool(good)][1] != episode.first.checkpoint:
        rows.append(("failed", episode.first.checkpoint))
    if episode.compared_with not in (None, good):
        rows.append(("baseline", episode.compared_with or ""))
    # A text, because the history may hold a path that no file can have.
    rows.append(("report", f"{os.path.splitext(episode.first.report)[0]}.html"))
    if (again := repeat_command(alert, folder)) is not None:
        rows.append(("again", again))
        fresh = fresh_command(alert)
        rows.append(("fresh", fresh or "not possible: the baseline's checkpoint is gone"))
    if (cause := diagnose_command(alert, folder)) is not None:
        rows.append(("cause", cause))
    return rows


def _diagnosis(folder: Path) -> list[tuple[str, str]]:
    """Return the conclusion and the page of a diagnosis that the command of an alert has made; nothing before."""
    try:
        conclusion = str(parse_json(read_outside(folder / "diagnosis.json"))["conclusion"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [("found", conclusion.removeprefix("cause: ")), ("diagnosis", str(folder / "diagnosis.html"))]


def status_text(alert: Alert) -> str:
    """Return the status, with the step or the reason that closed it."""
    by = f" by step {alert.fixed_by}" if alert.fixed_by is not None else f" ({alert.reason})" if alert.reason else ""
    return f"{alert.status}{by}"


def _since(alert: Alert) -> str:
    """Return the steps between which the run became worse, how they were found, and which steps fail since then."""
    steps, good, culprit = alert.episode.steps, alert.episode.last_good, alert.culprit
    if culprit is not None:
        since = f"{place(alert)} ({sureness(culprit)}); step {culprit.last_good} is good"
    else:
        since = f"step {steps[0].step}; "
        since += "no step before it passed" if good is None else f"the last good one measured is step {good.step}"
    lasting = f". {len(steps)} measured steps fail, {steps[0].step} to {steps[-1].step}" if len(steps) > 1 else ""
    return since + lasting


def sureness(search: Search) -> str:
    """Return how sure a search is of its steps, and by which measurements."""
    number = search.checkpoints
    more = f"{number} more measurement{'s' * (number != 1)} between steps {search.good.step} and {search.bad.step}"
    return f"{percent(search)} sure, by {more}"
