"""The loop of a watch: wait for complete checkpoints, run the gates on them, record and report the results."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from longctx.ci.checkpoint_dirs import CheckpointWatcher, CompleteCheckpoint, StepReader
from longctx.ci.launch import Execution
from longctx.ci.suite_process import LocalProcesses
from longctx.ci.watch.alert_text import AlertText, broken, culprit_text, headline, score_lines, write_index
from longctx.ci.watch.alerts import Alert, Gap, due_search, find_alerts, run_search
from longctx.ci.watch.baselines import ANCHOR, Baselines, ComparedCheckpoint
from longctx.ci.watch.history import ACCEPTED, History, Search, WatchedCheckpoint
from longctx.ci.watch.measure import SEVERITY, SuiteRunner
from longctx.ci.watch.notify import Notifier, due_stage, notified
from longctx.fixtures.cli import print_line
from longctx.plugins.report.tables import plural

LONGEST_SLEEP_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    """The settings of a watch, from its command line."""

    directory: Path
    """The directory that training writes checkpoints to."""
    interval_seconds: float
    """Pause between two scans of the directory."""
    marker: str | None
    """Name of a file that training writes last into every checkpoint."""
    gpus: tuple[str, ...]
    """Numbers as in CUDA_VISIBLE_DEVICES; empty for all GPUs."""
    notifier: Notifier
    searches: bool
    """True to search the skipped steps before the first bad step of an alert."""
    every_nth: int
    """1 to measure every checkpoint, N for every Nth."""
    out: Path
    """Folder for the history, reports and logs."""
    once: bool
    """True to end when every complete checkpoint is measured."""
    anchor: str | None
    """The step, checkpoint or report to compare all checkpoints with; None for the lowest step that passed."""
    runner: SuiteRunner
    """Measures a checkpoint, with the user's pytest options."""
    steps: StepReader
    execution: Execution
    launch: str | None
    """The template of --launch, for searches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Started:
    """A measurement or a search in progress."""

    gpus: tuple[str, ...]
    record: Callable[[Any, float], None]
    """Takes the result, and the elapsed seconds times the number of GPUs."""
    checkpoint: CompleteCheckpoint | None = None
    """The measured checkpoint; None for a search."""
    seconds: float = field(default_factory=time.monotonic)
    """When it began, on the monotonic clock."""


class Watch:
    """Measure the checkpoints of one directory into one history."""

    def __init__(self, settings: WatchSettings):
        self.settings, self.suite = settings, settings.runner.options
        self.watcher = CheckpointWatcher(
            settings.directory, settings.marker, self.suite.given, reader=settings.steps
        )  # fmt: skip
        self.history = History(settings.out)
        self.baselines = Baselines(
            self.history, settings.anchor, drop_points=self.suite.drop_points, needs_checkpoint=self.suite.seed_by_step
        )
        self.alert_text = AlertText(folder=settings.out, suite=self.suite, steps=settings.steps)
        self.alerts = find_alerts(self.history.by_step, self.history.searches)
        self._in_progress: dict[Future[Any], _Started] = {}
        # The GPUs of --gpus, shared out to the measurements that run at a time.
        parallel = settings.execution.parallel
        self._free_gpus = [settings.gpus[number::parallel] for number in range(parallel)]
        self._complete: list[CompleteCheckpoint] = []
        # The steps that were on disk since the start, complete or not.
        self._seen: set[int] = set()
        self._last_lines: dict[str, str] = {}
        # The checkpoints that were incomplete in the last scan.
        self._waiting: Collection[Path] = ()

    def run(self) -> int:
        """Watch without an end or, with `once`, until nothing is left; return the command's exit code."""
        idle_scans = 0
        with self.settings.execution:
            while True:
                measured = {checkpoint.step.path for checkpoint in self._measuring}
                new = [checkpoint for checkpoint in self._scan() if checkpoint.step.path not in measured]
                search = self._due_search(new)
                idle_scans = 0 if new or search or self._in_progress else idle_scans + 1
                # Without an anchor, the first measurements run one at a time.
                has_anchor = self.settings.anchor is not None or self.history.lowest_passed is not None
                may_start = bool(self._free_gpus)
                if search is not None and may_start:
                    self._start_search(*search)
                elif new and may_start and (has_anchor or not self._in_progress):
                    self._start(new[0])
                elif self._in_progress:
                    # Another measurement may be able to start meanwhile.
                    self._sleep()
                finished = [future for future in self._in_progress if future.done()]
                for future in finished:
                    started = self._in_progress.pop(future)
                    self._free_gpus.append(started.gpus)
                    gpu_seconds = (time.monotonic() - started.seconds) * max(1, len(started.gpus))
                    started.record(future.result(), round(gpu_seconds, 1))
                if finished or self._in_progress:
                    # A checkpoint that was written meanwhile may come first.
                    continue
                self._notify()
                # The first scan discovers a checkpoint, the second one sees that it has not changed.
                if self.settings.once and idle_scans >= 2:
                    break
                self._sleep()
        return self.exit_code

    def _sleep(self) -> None:
        """Sleep until the next scan is due or something in progress has ended."""
        ends = time.monotonic() + self.settings.interval_seconds
        # A signal that comes just before a sleep does not end it, so each one is short.
        while (left := ends - time.monotonic()) > 0 and not any(future.done() for future in self._in_progress):
            time.sleep(min(left, LONGEST_SLEEP_SECONDS))

    @property
    def exit_code(self) -> int:
        """0 if all checkpoints on disk were accepted, in earlier starts too, else 1.

        A watch that has refused checkpoints and measured none has accepted none.
        """
        known = self.history.measurements.values()
        has_measured = any(not each.is_gone for each in known)
        return int(any(each.is_failure for each in known) or (self.watcher.refused and not has_measured))

    def print_summary(self) -> None:
        for line in self._summary():
            print_timed(line)
        if self.history.measurements:
            print_timed(f"all checkpoints: {self._write_index()}")

    def _scan(self) -> list[CompleteCheckpoint]:
        """Return the complete checkpoints that are not measured yet, the lowest step first."""
        try:
            self._complete = self.watcher.scan()
        except OSError as error:
            self._print_changed("DIR", f"{self.settings.directory} cannot be read ({error.strerror})")
            return []
        self._mark_gone()
        # The first scan discovers a checkpoint, which may be about to be complete.
        waiting = dict(self.watcher.waiting)
        for path in waiting:
            if path in self._waiting:
                self._print_changed(str(path), f"{path}: waiting: {waiting[path]}")
        self._waiting = waiting
        numbers = self._chosen_steps()
        chosen = [one for one in self._complete if one.step.number in numbers]
        return [one for one in chosen if not self.history.is_settled(one.step.path, one.fingerprint)]

    def _chosen_steps(self) -> set[int]:
        """Return the steps that --every-nth chooses of all that were on disk since the start or are in the history."""
        self._seen.update(step.number for step in self.watcher.steps)
        measured = {known.step for known in self.history.measurements.values()}
        measured.update(checkpoint.step.number for checkpoint in self._measuring)
        return every_nth(self._seen, measured, self.settings.every_nth)

    def _mark_gone(self) -> None:
        """Record and name the measured checkpoints that had changed or gone in the last scan."""
        has_changed = False
        for known in [*self.history.measurements.values()]:
            loss = None if known.is_gone else self.watcher.find_loss(Path(known.checkpoint), known.fingerprint)
            if loss is not None:
                has_changed = True
                self.history.add(structs.replace(known, lost=loss))
                print_timed(f"step {known.step}: {loss}: {known.checkpoint}")
        if has_changed:
            self._update_alerts()

    @property
    def _measuring(self) -> list[CompleteCheckpoint]:
        return [started.checkpoint for started in self._in_progress.values() if started.checkpoint is not None]

    def _start(self, checkpoint: CompleteCheckpoint) -> None:
        step = checkpoint.step
        complete = [other.step for other in self._complete]
        baselines = self.baselines.of(step, complete)
        against = ", ".join(f"{baseline.role} ({baseline.name})" for baseline in baselines)
        print_timed(f"{step.name}: measuring" + (f", against {against}" if against else ""))
        report = self.settings.out / f"{step.name}-{checkpoint.fingerprint[:12]}.json"
        gpus = self._free_gpus.pop()
        record = partial(self._record, checkpoint, baselines)
        started = _Started(gpus=gpus, checkpoint=checkpoint, record=record)
        alerts = [alert for alert in self.alerts if alert.is_open and alert.first.step < step.number]
        alerted = {name for alert in alerts for name in alert.cases}
        runner = replace(self.settings.runner, gpus=gpus, alerted=alerted)
        future = self.settings.execution.submit(runner.measure, checkpoint, baselines, report)
        self._in_progress[future] = started

    def _due_search(self, new: Sequence[CompleteCheckpoint]) -> tuple[Alert, Gap] | None:
        """Return the next search of skipped steps; None during another one."""
        is_searching = any(started.checkpoint is None for started in self._in_progress.values())
        if is_searching or not self.settings.searches:
            return None
        pending = [checkpoint.step.number for checkpoint in (*new, *self._measuring)]
        return due_search(self.alerts, self.history.by_step, self._complete, pending)

    def _start_search(self, alert: Alert, gap: Gap) -> None:
        good, bad, settings = gap.good.step, gap.bad.step, self.settings
        print_timed(f"alert at step {alert.first.step}: searching {len(gap.between)} steps from {good} to {bad}")
        options = [*self.suite.given, *settings.steps.words]
        if settings.launch:
            options += ["--launch", settings.launch]
        processes = LocalProcesses(cancelled=settings.execution.cancelled)
        started = _Started(gpus=self._free_gpus.pop(), record=partial(self._record_search, alert))
        folder = self.alert_text.folder_of(alert)
        future = settings.execution.submit(run_search, alert, gap, options, folder, processes, started.gpus)
        self._in_progress[future] = started

    def _record_search(self, alert: Alert, search: Search, _: float) -> None:
        self.history.add(search)
        culprit = culprit_text(replace(alert, search=search))
        print_line(f"alert at step {alert.first.step}: the loss began at {culprit}" if culprit else search.line)
        self._update_alerts()
        self._notify()

    def _update_alerts(self) -> None:
        """Find the alerts of the measurements, print new ones and new states, and write the index page."""
        before, self.alerts = self.alerts, find_alerts(self.history.by_step, self.history.searches)
        for alert in self.alerts:
            known = next((each for each in before if alert.is_same(each)), None)
            if known is None:
                for line in self.alert_text.lines(alert):
                    print_line(line)
            elif known.status != alert.status:
                print_line(f"alert, {alert.status}: {headline(alert)}")
        self._write_index()

    def _record(
        self, checkpoint: CompleteCheckpoint, baselines: Sequence[ComparedCheckpoint], result: WatchedCheckpoint,
        gpu_seconds: float,
    ) -> None:  # fmt: skip
        lost = None
        if result.verdict not in ACCEPTED:
            lost = self.watcher.read_loss(checkpoint.step.path, checkpoint.fingerprint)
        if lost is not None:
            # Whatever a run says of a checkpoint that it could not read is no news.
            was = () if result.verdict == "error" else (f"its verdict was {result.verdict}", *result.failed)
            result = structs.replace(result, verdict="not measured", failed=(f"{lost} while it was measured", *was))
        anchor = next((baseline.name for baseline in baselines if baseline.role == ANCHOR), None)
        ended = datetime.now(UTC).isoformat(timespec="seconds")
        measurement = structs.replace(result, gpu_seconds=gpu_seconds, ended=ended, anchor=anchor, lost=lost)
        self.history.add(measurement)
        words = (measurement.verdict, measurement.suspicion)
        print_timed(f"step {measurement.step}: {': '.join(filter(None, words))}")
        for text in (*measurement.failed, *score_lines(measurement)):
            for line in broken(text):
                print_line(f"    {line}")
        self._update_alerts()
        self._notify()

    def _write_index(self) -> Path:
        directory, summary, counts_gpus = self.settings.directory, self._summary(), bool(self.settings.gpus)
        known = self.history.by_step
        return write_index(directory, self.alert_text, known, self.alerts, summary, counts_gpus=counts_gpus)

    def _summary(self) -> list[str]:
        measurements = self.history.by_step
        counts = Counter(known.verdict if known.counts else "gone" for known in measurements)
        texts = [f"{counts[word]} {word}" for word in (*reversed(SEVERITY), "gone") if counts[word]]
        shown = ", ".join(texts) or "nothing measured"
        lines = [f"{plural(len(measurements), 'checkpoint', 'checkpoints')}: {shown}"]
        if self.alerts:
            opened = [alert for alert in self.alerts if alert.is_open]
            closed = len(self.alerts) - len(opened)
            worst = f"; look first at: {headline(opened[0])}" if opened else ""
            lines.append(f"alerts: {len(opened)} open, {closed} closed{worst}")
        for path, reason in self.watcher.waiting.items():
            lines.append(f"not measured: {path}: {reason}")
        risk = f"{100 * (1 - self.suite.confidence):g} % of runs of {self.settings.runner.horizon} checkpoints"
        return [*lines, f"a gate fails by mistake in at most {risk}"]

    def _notify(self) -> None:
        """Deliver the news of the alerts, up to the first one that cannot be delivered."""
        notifier = self.settings.notifier
        for alert in self.alerts:
            stage = due_stage(alert, self.history.notified)
            if stage is None or not notifier.is_ready:
                continue
            problem = notifier.deliver(alert, stage)
            if problem is None:
                self.history.add(notified(alert, stage))
            else:
                self._print_changed(f"notification {alert.name}", f"{problem}; it will be retried")

    def _print_changed(self, subject: str, line: str) -> None:
        """Print a line about a subject unless it is the last one printed about it."""
        if self._last_lines.get(subject) != line:
            self._last_lines[subject] = line
            print_timed(line)


def every_nth(seen: Iterable[int], measured: Collection[int], number: int) -> set[int]:
    """Return the steps to measure: the lowest one, and each with `number` - 1 other steps since the last chosen one.

    `seen` are all steps that the watch knows of, complete or not, deleted ones included. Those that were `measured`
    stay chosen, so that a step that is written late changes nothing before it.
    """
    chosen: set[int] = set()
    since = number - 1
    for step in sorted({*seen, *measured}):
        since += 1
        if since >= number or step in measured:
            chosen.add(step)
            since = 0
    return chosen


def print_timed(line: str) -> None:
    print_line(f"{time.strftime('%H:%M:%S')} {line}")
