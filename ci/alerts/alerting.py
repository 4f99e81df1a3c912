"""The alerts of a running watch: opened, moved and closed after every measurement, and searched where steps lack."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from longctx.ci.alerts.log import Alert, AlertLog, Notified, Search, Searched
from longctx.ci.alerts.reconcile import missing_events
from longctx.ci.alerts.repeat import repeat_options
from longctx.ci.alerts.search import Gap, find_gap, is_searched
from longctx.ci.alerts.words import alert_lines, culprit_text, headline, in_order, status_text
from longctx.ci.suite_options import SuiteOptions
from longctx.ci.watch.checkpoint_watcher import CompleteCheckpoint
from longctx.ci.watch.history import WatchedCheckpoint


class WatchAlerts:
    """The alerts in the folder of a running watch."""

    def __init__(self, folder: Path, suite: SuiteOptions, *, searches: bool, show: Callable[[str], None]):
        self.log = AlertLog(folder=folder)
        self.alerts: Mapping[int, Alert] = self.log.read()
        self._suite = suite
        self._searches = searches
        """True with `--on-failure bisect`."""
        self._show = show
        """Prints a line."""
        self._failed_searches: set[tuple[int, Gap]] = set()
        """Searches that could not be made; every one is tried once after every start."""

    def update(self, measurements: Sequence[WatchedCheckpoint]) -> None:
        """Bring the alerts in line with the measurements, which are in the order of steps, and print the changes."""
        before, most_samples = self.alerts, {known.step: known.most_samples for known in measurements}

        def options_of(step: int) -> tuple[str, ...]:
            return repeat_options(self._suite.for_step(step), most_samples.get(step))

        self.alerts = self.log.update(lambda known: missing_events(known, measurements, options_of))
        for alert in self.alerts.values():
            for line in self._news(before.get(alert.id), alert):
                self._show(line)

    def refresh(self) -> bool:
        """Read the users' latest events of the alerts; return True if there are any."""
        before, self.alerts = self.alerts, self.log.read()
        return before != self.alerts

    def due_search(
        self, measurements: Sequence[WatchedCheckpoint], on_disk: Sequence[CompleteCheckpoint], pending: Collection[int]
    ) -> tuple[Alert, Gap] | None:
        """Return the next alert to search for and the steps to search.

        `pending` are steps that the watch itself will measure: it waits for those that lie in a gap.
        """
        for alert in in_order(self.alerts.values()) if self._searches else ():
            gap = find_gap(alert, measurements, on_disk) if alert.is_open and alert.episode.cases else None
            if gap is None or is_searched(alert, gap) or (alert.id, gap) in self._failed_searches:
                continue
            if not any(gap.good.step < step < gap.bad.step for step in pending):
                return alert, gap
        return None

    def record_search(self, alert: Alert, gap: Gap, search: Search) -> None:
        """Write the result of a search into its alert, and print it."""
        self.alerts = self.log.update(lambda _: [Searched(alert=alert.id, search=search)])
        if not search.has_ended:
            self._failed_searches.add((alert.id, gap))
        culprit = culprit_text(self.alerts[alert.id])
        self._show(f"alert {alert.id}: {f'the loss began at {culprit}' if culprit else f'not found: {search.line}'}")

    @property
    def open(self) -> list[Alert]:
        """Open alerts, the worst one first."""
        return [alert for alert in in_order(self.alerts.values()) if alert.is_open]

    @property
    def unnotified(self) -> list[Alert]:
        """Open alerts that were not delivered yet, the worst one first."""
        return [alert for alert in self.open if not alert.is_notified]

    def mark_notified(self, alert: Alert) -> None:
        """Record that the user was notified of an alert."""
        self.alerts = self.log.update(lambda _: [Notified(alert=alert.id)])

    def cases_before(self, step: int) -> frozenset[str]:
        """Return the ids of the cases whose open alerts begin before a step."""
        before = [alert.episode for alert in self.open if alert.episode.first.step < step]
        return frozenset(case.id for episode in before for case in episode.cases)

    @property
    def search_gpu_seconds(self) -> float:
        """GPU time of all searches."""
        return sum(alert.search.gpu_seconds for alert in self.alerts.values() if alert.search is not None)

    def summary(self) -> list[str]:
        """Return a line about the open alerts; nothing without any alert."""
        opened = self.open
        if not self.alerts:
            return []
        first = f"; first alert {opened[0].id}: {headline(opened[0])}" if opened else ""
        return [f"alerts: {len(opened)} open, {len(self.alerts) - len(opened)} closed{first}"]

    def _news(self, before: Alert | None, alert: Alert) -> list[str]:
        """Return the lines about what has changed in an alert."""
        if before is None:
            return alert_lines(alert, self.log.folder)
        name, steps = f"alert {alert.id}", alert.episode.steps
        if before.status != alert.status:
            return [f"{name}: {status_text(alert)}: {headline(alert)}"]
        if before.episode.first.step != steps[0].step:
            return [f"{name}: the first bad step is {steps[0].step}, no longer {before.episode.first.step}"]
        if len(steps) > len(before.episode.steps):
            return [f"{name}: step {steps[-1].step} fails the same cases; no news"]
        return []
