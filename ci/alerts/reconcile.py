"""Find the events that bring the alerts of a watch in line with its measurements. Pure.

Whenever it is called, also after a kill, it returns the events that are missing and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from longctx.ci.alerts.episodes import Episode, MeasuredStep, episodes
from longctx.ci.alerts.log import Alert, Changed, Event, Extended, Fixed, Invalid, Opened, Reopened
from longctx.ci.watch.history import WatchedCheckpoint


def missing_events(
    alerts: Mapping[int, Alert], measurements: Sequence[WatchedCheckpoint], options_of: Callable[[int], Sequence[str]]
) -> list[Event]:
    """Return the events that the alerts lack; `measurements` are in the order of their steps.

    `options_of` returns the options of the suite that repeat the measurement of a step.
    """
    current = episodes(measurements)
    matches = _match(alerts, current)
    events: list[Event] = []
    number = max(alerts, default=0)
    for place, episode in enumerate(current):
        if place in matches:
            events += _changes(alerts[matches[place]], episode)
        elif not episode.is_lost:
            number += 1
            events.append(
                Opened(alert=number, episode=_without_end(episode), options=tuple(options_of(episode.first.step)))
            )
            if episode.fixed_by is not None:
                events.append(Fixed(alert=number, step=episode.fixed_by))
    for alert in alerts.values():
        if alert.is_open and alert.id not in matches.values():
            events.append(_end_without_episode(alert, current, matches, measurements))
    return events


def _match(alerts: Mapping[int, Alert], current: Sequence[Episode]) -> dict[int, int]:
    """Return the ids of alerts by the positions of their episodes; each alert has one, and each episode at most one.

    They belong together if they are of one kind, share a failed checkpoint, and share a case or have none. Earlier
    alerts come first, and episodes that are on the disk before those that are gone.
    """
    matches: dict[int, int] = {}
    places = sorted(range(len(current)), key=lambda place: current[place].is_lost)
    for alert in alerts.values():
        for place in places:
            if place not in matches and _belong_together(alert.episode, current[place]):
                matches[place] = alert.id
                break
    return matches


def _belong_together(one: Episode, other: Episode) -> bool:
    cases = {case.id for case in one.cases}
    has_common_case = not cases or any(case.id in cases for case in other.cases)
    return one.kind == other.kind and has_common_case and bool(_weights(one.steps) & _weights(other.steps))


def _weights(steps: Iterable[MeasuredStep]) -> set[str]:
    """Return the fingerprints of steps: a failed checkpoint that gets another number is the same case."""
    return {step.fingerprint for step in steps}


def _without_end(episode: Episode) -> Episode:
    """Return an episode without its end, which is an event of its own."""
    return replace(episode, fixed_by=None, is_lost=False)


def _changes(alert: Alert, episode: Episode) -> list[Event]:
    """Return the events that bring an alert in line with its episode."""
    events: list[Event] = []
    facts, known = _without_end(episode), alert.episode
    added = facts.steps[len(known.steps) :]
    if facts != known:
        is_longer = bool(added) and facts == replace(known, steps=(*known.steps, *added))
        events.append(Extended(alert=alert.id, steps=added) if is_longer else Changed(alert=alert.id, episode=facts))
    if episode.fixed_by is not None:
        # What a user said of an alert stays.
        if alert.is_open or (
            alert.status == "fixed" and not alert.closed_by_user and alert.fixed_by != episode.fixed_by
        ):
            events.append(Fixed(alert=alert.id, step=episode.fixed_by))
    elif episode.is_lost:
        if alert.is_open:
            events.append(Invalid(alert=alert.id, reason=GONE))
    elif not alert.is_open:
        if not alert.closed_by_user:
            events.append(Reopened(alert=alert.id))
        elif alert.status != "invalid" and _weights(episode.steps) - _weights(alert.known_steps):
            events.append(Reopened(alert=alert.id, is_news=True))
    return events


GONE, REWRITTEN = "gone", "rewritten"


def _end_without_episode(
    alert: Alert, current: Sequence[Episode], matches: Mapping[int, int], measurements: Sequence[WatchedCheckpoint]
) -> Event:
    """Return the end of an open alert of which no step fails any more."""
    for place, episode in enumerate(current):
        if _belong_together(alert.episode, episode) and place in matches:
            return Invalid(alert=alert.id, reason=f"the same as alert {matches[place]}")
    weights = _weights(alert.episode.steps)
    again = [known.step for known in measurements if known.fingerprint in weights and not known.is_gone]
    if again:
        return Fixed(alert=alert.id, step=again[0])
    paths = {step.checkpoint for step in alert.episode.steps}
    is_there = any(known.checkpoint in paths and not known.is_deleted for known in measurements)
    return Invalid(alert=alert.id, reason=REWRITTEN if is_there else GONE)
