"""The last days of a watch on one page, in Markdown: alerts, measurements, moves of single cases, and cost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from longctx.ci.alerts.episodes import case_noise
from longctx.ci.alerts.log import Alert, AlertLog
from longctx.ci.alerts.words import case_name, headline, in_order, status_text
from longctx.ci.watch.history import History, WatchedCheckpoint, step_name
from longctx.ci.watch.measure import SEVERITY
from longctx.plugins.report.formats import markdown_table, markdown_text
from longctx.plugins.verdicts.evaluate import shown_verdict

MOST_MOVES, MOST_STEPS = 3, 10
TEXT_CHARACTERS, REASON_CHARACTERS = 200, 500


def digest(folder: Path, since: datetime, until: datetime) -> str:
    """Return the page about what a watch's folder says of this time."""
    measurements, alerts = History(folder).by_step, in_order(AlertLog(folder=folder).read().values())
    # A clock that was put back leaves times in the future, which belong to the last days too.
    recent = [known for known in measurements if since <= _time(known.ended)]
    lines = [f"# {_name(folder, measurements)}: {since:%d %B} to {until:%d %B %Y}", "", _first_line(alerts, since), ""]
    lines += ["## Alerts", "", *_alerts(alerts, since), "", "## Measured", "", *_measured(recent), ""]
    lines += ["## Largest moves", "", *_moves(measurements, recent), "", "## Cost", "", _cost(recent, alerts, since)]
    return "\n".join(lines) + "\n"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _text(text: str, most_characters: int = TEXT_CHARACTERS) -> str:
    """Return text for Markdown; an underscore within a word has no meaning there."""
    return re.sub(r"(?<=\w)\\_(?=\w)", "_", markdown_text(text, most_characters))


def _name(folder: Path, measurements: Sequence[WatchedCheckpoint]) -> str:
    """Return the directory of the checkpoints; that of the watch if nothing was measured."""
    path = Path(measurements[-1].checkpoint).parent if measurements else folder
    return _text(str(path))


def _is_new(alert: Alert, since: datetime) -> bool:
    return _time(alert.opened) >= since


def _was_closed(alert: Alert, since: datetime) -> bool:
    return alert.closed is not None and _time(alert.closed) >= since


def _first_line(alerts: Sequence[Alert], since: datetime) -> str:
    """Return the numbers of alerts, and the one to look at first."""
    opened = [alert for alert in alerts if alert.is_open]
    new, closed = sum(_is_new(alert, since) for alert in alerts), sum(_was_closed(alert, since) for alert in alerts)
    line = f"**{new} new alert{'s' * (new != 1)}, {closed} closed, {len(opened)} open.**"
    if not opened:
        return f"{line} Nothing to look at."
    return f"{line} Look first at alert {opened[0].id}: {_text(headline(opened[0]))}."


def _alerts(alerts: Sequence[Alert], since: datetime) -> list[str]:
    """Return a table of the alerts that are open, or were opened or closed in the time."""
    shown = [alert for alert in alerts if alert.is_open or _is_new(alert, since) or _was_closed(alert, since)]
    if not shown:
        return ["None."]
    rows = [("alert", "status", "what", "over its noise", "owner and note")]
    for alert in shown:
        age = "new, " if _is_new(alert, since) and alert.status != "new" else ""
        severity = f"{alert.episode.severity:.1f} times" if alert.episode.cases else "-"
        remark = "; ".join(filter(None, (alert.owner, alert.note))) or "-"
        rows.append((str(alert.id), f"{age}{status_text(alert)}", headline(alert), severity, remark))
    return _table(rows)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *others = ([_text(cell) for cell in row] for row in rows)
    return markdown_table(head, others).splitlines()


def _measured(recent: Sequence[WatchedCheckpoint]) -> list[str]:
    """Return how many checkpoints have which verdict, worst last."""
    if not recent:
        return ["Nothing."]
    steps = {verdict: [known.step for known in recent if known.verdict == verdict] for verdict in reversed(SEVERITY)}
    parts = []
    for verdict, of_verdict in steps.items():
        named = ", ".join(map(str, of_verdict[:MOST_STEPS])) + (", ..." if len(of_verdict) > MOST_STEPS else "")
        if of_verdict:
            word = f"{len(of_verdict)} {shown_verdict(verdict)}"
            parts.append(word if verdict in ("pass", "screened") else f"{word} ({named})")
    count = f"{len(recent)} checkpoint{'s' * (len(recent) != 1)}"
    suspected = [known for known in recent if known.is_suspected]
    reasons = [f"- Step {known.step}: {_text(known.failed[0], REASON_CHARACTERS)}" for known in suspected]
    return [
        f"{count}, steps {recent[0].step} to {recent[-1].step}: {', '.join(parts)}.",
        *(["", "A loss is suspected, but not shown:", "", *reasons] if suspected else []),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Move:
    """The change of a case over the time, in points."""

    case: str
    before: tuple[int, float]
    """The step from which it moved, and the difference from the anchor there."""
    after: tuple[int, float]
    noise: float | None

    @property
    def points(self) -> float:
        return self.after[1] - self.before[1]


def _moves(measurements: Sequence[WatchedCheckpoint], recent: Sequence[WatchedCheckpoint]) -> list[str]:
    """Return a table of the cases that moved furthest in either direction, over their noise."""
    compared = [known for known in recent if known.anchor is not None]
    if not compared:
        return ["No checkpoint was compared with an anchor."]
    anchor = compared[-1].anchor
    moves = [
        move
        for name in sorted({name for known in compared for name in known.cases})
        if (move := _move(name, anchor, measurements, recent)) is not None and move.points
    ]
    ordered = sorted(moves, key=lambda move: move.points / (move.noise or 1.0))
    down = [move for move in ordered if move.points < 0][:MOST_MOVES]
    up = [move for move in reversed(ordered) if move.points > 0][:MOST_MOVES]
    if not down and not up:
        return [f"No case moved against the anchor, {anchor}."]
    rows = [("case", "move", "noise", f"against the anchor, {anchor}")]
    for move in (*down, *up):
        noise = "not known yet" if move.noise is None else f"±{move.noise:.1f}"
        (first, before), (last, after) = move.before, move.after
        ends = f"{before:+.1f} at step {first}, {after:+.1f} at step {last}"
        rows.append((case_name(move.case), f"{move.points:+.1f}", noise, ends))
    return _table(rows)


def _move(
    name: str, anchor: str | None, measurements: Sequence[WatchedCheckpoint], recent: Sequence[WatchedCheckpoint]
) -> _Move | None:
    """Return the move of a case from the last step before the time, or the first one in it, to the last one in it."""
    points = []
    for known in measurements:
        outcome = known.cases.get(name)
        if outcome is None or anchor not in (known.anchor, step_name(known.step)):
            continue
        if known.anchor != anchor:
            points.append((known, 0.0))
        elif outcome.points is not None and outcome.against == "baseline":
            points.append((known, outcome.points))
    within = [place for place, (known, _) in enumerate(points) if known in recent]
    if not within:
        return None
    # From the last step before the time, if there is one.
    ends = [(points[place][0].step, points[place][1]) for place in (max(0, within[0] - 1), within[-1])]
    return _Move(case=name, before=ends[0], after=ends[1], noise=case_noise(name, anchor, measurements))


def _cost(recent: Sequence[WatchedCheckpoint], alerts: Sequence[Alert], since: datetime) -> str:
    """Return tokens and time of measurements and searches."""
    searches = [alert.search for alert in alerts if alert.search is not None and _is_new(alert, since)]
    tokens = sum((known.tokens or 0) + ((known.screen and known.screen.tokens) or 0) for known in recent)
    minutes = (sum(known.gpu_seconds for known in recent) + sum(search.gpu_seconds for search in searches)) / 60
    time = f"{minutes:.0f} minutes" if minutes < 100 else f"{minutes / 60:.1f} hours"
    line = f"{tokens:,} tokens computed by checkpoints for their gates"
    if searches:
        found = sum(search.tokens for search in searches)
        line += f", {found:,} by {len(searches)} search{'es' * (len(searches) != 1)}, endpoints included"
    return f"{line}; {time} (elapsed time, times the GPUs of --gpus)."
