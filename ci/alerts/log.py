"""The file `alerts.jsonl` of a watch's folder: everything that happened to its alerts, one event a line.

Events are only appended, under a lock and synced, so the file can be read at any time, also after a kill: a last line
that is not complete counts as not written. The alerts are what all events together say.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Literal

import msgspec
from msgspec import Struct

from longctx.ci.alerts.episodes import Episode, MeasuredStep
from longctx.ci.watch.lock import NO_LOCKS

Status = Literal["new", "acknowledged", "fixed", "invalid", "infra"]
OPEN: tuple[Status, ...] = ("new", "acknowledged")


def now() -> str:
    """Return the time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Search(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of the search between the last good step of an alert and its first bad one."""

    good: MeasuredStep
    bad: MeasuredStep
    exit_code: int
    """The verdict of `longctx bisect`."""
    line: str
    """Its result in one line."""
    first: int | None = None
    """The first step at which the run may have become worse; None if nothing was found."""
    last: int | None = None
    """The last such step; the first one if the search names a single step."""
    last_good: int | None = None
    """The step before the first one."""
    last_path: str = ""
    """The checkpoint of the last such step, which is bad for certain; empty if nothing was found."""
    last_good_path: str = ""
    """The checkpoint of the step before the first one."""
    probability: float | None = None
    """The probability that the run became worse at one of these steps."""
    checkpoints: int = 0
    """Checkpoints that the search measured between the two."""
    tokens: int = 0
    """Tokens that it computed."""
    gpu_seconds: float = 0.0
    """Elapsed seconds times the number of GPUs."""

    @property
    def has_ended(self) -> bool:
        """True if the same search would end alike, False if it could not be made."""
        return self.exit_code in (0, 1, 2)


class _Event(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event"):
    alert: int
    """The alert's id."""
    time: str = msgspec.field(default_factory=now)


class Opened(_Event, frozen=True, kw_only=True, omit_defaults=True, tag="opened"):
    """A step failed for which no alert was open."""

    episode: Episode
    options: tuple[str, ...]
    """The options of the suite without those that select cases, for commands that repeat the measurement."""


class Extended(_Event, frozen=True, kw_only=True, omit_defaults=True, tag="extended"):
    """Later steps fail the same cases."""

    steps: tuple[MeasuredStep, ...]


class Changed(_Event, frozen=True, kw_only=True, omit_defaults=True, tag="changed"):
    """The first bad step has moved, or other facts have."""

    episode: Episode


class Fixed(_Event, frozen=True, kw_only=True, omit_defaults=True, tag="fixed"):
    """A later step passes the same cases."""

    step: int


class Invalid(_Event, frozen=True, kw_only=True, omit_defaults=True, tag="invalid"):
    """Nothing on disk fails any more, and no later step passes either."""

    reason: str


class Reopened(_Event, frozen=True, kw_only=True, omit_defaults=True, tag="reopened"):
    """The cases of a closed alert still fail."""

    is_news: bool = False
    """True if the user had closed it, and is notified again."""


class Searched(_Event, frozen=True, kw_only=True, omit_defaults=True, tag="searched"):
    """The steps between the last good and the first bad one were searched."""

    search: Search


class Notified(_Event, frozen=True, kw_only=True, omit_defaults=True, tag="notified"):
    """The user was notified."""


class Noted(_Event, frozen=True, kw_only=True, omit_defaults=True, tag="noted"):
    """A user changed the status, the owner or the note; None leaves it as it is."""

    status: Status | None = None
    owner: str | None = None
    note: str | None = None


Event = Opened | Extended | Changed | Fixed | Invalid | Reopened | Searched | Notified | Noted


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A step at which the run became worse, or at which it could not be measured."""

    id: int
    opened: str
    """Time in UTC, ISO 8601."""
    episode: Episode
    """What is known of its steps and cases; its end is in the other fields."""
    options: tuple[str, ...]
    status: Status = "new"
    open_status: Status = "new"
    """The last status that it had while it was open."""
    closed: str | None = None
    """Time in UTC, ISO 8601; None for an open alert."""
    closed_by_user: bool = False
    fixed_by: int | None = None
    """The step that passes the same cases; None if none is known to."""
    reason: str = ""
    """Why it is invalid, if the watch found it so."""
    owner: str = ""
    note: str = ""
    is_notified: bool = False
    search: Search | None = None
    known_steps: tuple[MeasuredStep, ...] = field(default=())
    """The failed steps that were known when a user closed the alert."""

    @property
    def is_open(self) -> bool:
        return self.status in OPEN

    @property
    def culprit(self) -> Search | None:
        """The search that found the step, unless later measurements contradict it; None without one."""
        search, good = self.search, self.episode.last_good
        if search is None or search.first is None or search.last is None:
            return None
        is_between = (good is None or good.step < search.first) and search.last <= self.episode.first.step
        return search if is_between else None


def fold(events: Iterable[Event]) -> dict[int, Alert]:
    """Return the alerts that all events together describe, by id."""
    alerts: dict[int, Alert] = {}
    for event in events:
        if isinstance(event, Opened):
            alert = Alert(id=event.alert, opened=event.time, episode=event.episode, options=event.options)
            alerts.setdefault(event.alert, alert)
        elif event.alert in alerts:
            alerts[event.alert] = _after(alerts[event.alert], event)
    return alerts


def _after(alert: Alert, event: Event) -> Alert:
    """Return an alert after an event that is not its first."""
    match event:
        case Extended():
            return replace(alert, episode=replace(alert.episode, steps=(*alert.episode.steps, *event.steps)))
        case Changed():
            return replace(alert, episode=event.episode)
        case Fixed():
            return replace(_closed(alert, "fixed", event.time), fixed_by=event.step)
        case Invalid():
            return replace(_closed(alert, "invalid", event.time), reason=event.reason)
        case Reopened():
            opened = _open_again(alert, "new" if event.is_news else alert.open_status)
            return replace(opened, is_notified=alert.is_notified and not event.is_news)
        case Searched():
            return replace(alert, search=event.search)
        case Notified():
            return replace(alert, is_notified=True)
        case Noted():
            noted = replace(alert, owner=_or(event.owner, alert.owner), note=_or(event.note, alert.note))
            if event.status is None:
                return noted
            if event.status in OPEN:
                return _open_again(noted, event.status)
            closed = _closed(noted, event.status, event.time)
            return replace(closed, closed_by_user=True, known_steps=alert.episode.steps)
    return alert


def _open_again(alert: Alert, status: Status) -> Alert:
    return replace(
        alert, status=status, open_status=status, closed=None, closed_by_user=False, fixed_by=None, reason=""
    )


def _closed(alert: Alert, status: Status, time: str) -> Alert:
    return replace(alert, status=status, closed=time, closed_by_user=False, fixed_by=None, reason="")


def _or(given: str | None, known: str) -> str:
    return known if given is None else given


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertLog:
    """The alerts in a folder."""

    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / "alerts.jsonl"

    def read(self) -> dict[int, Alert]:
        """Return the alerts by id, in the order in which they were opened; raises OSError."""
        return fold(self.events())

    def events(self) -> list[Event]:
        """Return all complete events."""
        with contextlib.suppress(FileNotFoundError), self.path.open("rb") as file:
            return _events(file)
        return []

    @property
    def is_torn(self) -> bool:
        """True if the last line is not complete: its event, of a process that was killed, counts as not written."""
        with contextlib.suppress(FileNotFoundError), self.path.open("rb") as file:
            return any(not line.endswith(b"\n") and not _events([line]) for line in file)
        return False

    def update(self, decide: Callable[[Mapping[int, Alert]], Sequence[Event]]) -> dict[int, Alert]:
        """Append the events that `decide` returns for the alerts as they are; return the alerts after them.

        No other process appends in between.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file, _locked(file):
            file.seek(0)
            events = _events(file)
            new = decide(fold(events))
            if new:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(0, end - 1))
                # A torn line must not become part of the next one.
                torn = file.read() not in (b"", b"\n")
                file.write(b"\n" * torn + b"".join(msgspec.json.encode(event) + b"\n" for event in new))
                file.flush()
                os.fsync(file.fileno())
        return fold([*events, *new])


def _events(lines: Iterable[bytes]) -> list[Event]:
    events: list[Event] = []
    for line in lines:
        # A torn line, or one of another version, is none of ours.
        with contextlib.suppress(ValueError, RecursionError):
            events.append(msgspec.json.decode(line, type=Event))
    return events


@contextlib.contextmanager
def _locked(file: IO[bytes]) -> Iterator[None]:
    """Hold a lock on an open file, where its file system has locks; closing the file releases it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    yield
