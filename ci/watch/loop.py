"""The loop of a watch: wait for complete checkpoints, run the gates on them, record and report the results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ci.suite_process import SuiteRun, run_suite
from ci.watch.checkpoint_watcher import CheckpointWatcher, CompleteCheckpoint
from ci.watch.history import History, Measurement, Verdict
from ci.watch.notify import Deliveries, Notifier
from fixtures.cli import print_line

# Many failures and a server that hangs must not keep the watch from measuring.
MAX_NOTIFYING_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    """The settings of a watch, from its command line."""

    directory: Path
    """The directory that training writes checkpoints to."""
    interval_seconds: float
    """Pause between two scans of the directory."""
    newest_first: bool
    marker: str | None
    """Name of a file that training writes last into every checkpoint."""
    gpus: tuple[str, ...]
    """Numbers as in CUDA_VISIBLE_DEVICES; empty for all GPUs."""
    max_gpu_seconds: float | None
    """GPU time after which the watch ends, over all checkpoints of the history."""
    notifier: Notifier
    out: Path
    """Folder for the history, reports and logs."""
    once: bool
    """True to end when every complete checkpoint is measured."""
    options: Sequence[str]
    """The user's pytest options, passed on unchanged."""


class Watch:
    """Measure the checkpoints of one directory into one history."""

    def __init__(self, settings: WatchSettings):
        self.settings = settings
        self.watcher = CheckpointWatcher(settings.directory, settings.marker)
        self.history = History(settings.out)
        self._deliveries = Deliveries(settings.notifier)
        self._last_lines: dict[str, str] = {}

    def run(self) -> int:
        """Watch until the GPU budget is spent or, with `once`, nothing is left; return the command's exit code."""
        idle_scans = 0
        while True:
            checkpoints = self._scan()
            if not checkpoints:
                idle_scans += 1
            while checkpoints and not self._is_spent():
                self._measure(checkpoints[0])
                idle_scans = 0
                # A checkpoint that was written meanwhile may come first.
                checkpoints = self._scan()
            self._notify()
            if self._is_spent():
                print_timed("the GPU budget is spent; a larger one measures the other checkpoints")
                break
            # The first scan discovers a checkpoint, the second one sees that it has not changed.
            if self.settings.once and idle_scans >= 2:
                break
            time.sleep(self.settings.interval_seconds)
        return self.exit_code

    @property
    def exit_code(self) -> int:
        """1 if a checkpoint failed or ended in an error, in earlier starts too, else 0."""
        return int(any(measurement.verdict != "pass" for measurement in self.history.measurements.values()))

    def _scan(self) -> list[CompleteCheckpoint]:
        """Return the complete checkpoints that are not measured yet, in the order in which to measure them."""
        try:
            complete = self.watcher.scan()
        except OSError as error:
            self._print_changed("DIR", f"{self.settings.directory} cannot be read ({error.strerror})")
            return []
        for name, reason in self.watcher.waiting.items():
            self._print_changed(name, f"{name}: waiting: {reason}")
        new = [checkpoint for checkpoint in complete if not self._is_settled(checkpoint)]
        return new[::-1] if self.settings.newest_first else new

    def _is_settled(self, checkpoint: CompleteCheckpoint) -> bool:
        path, sampled = checkpoint.step.path, checkpoint.sampled_fingerprint
        return self.history.is_settled(path, checkpoint.fingerprint) or self.history.was_settled_earlier(
            path, sampled, checkpoint.last_change
        )

    def _measure(self, checkpoint: CompleteCheckpoint) -> None:
        step = checkpoint.step
        baseline = self.history.last_good(step.number)
        print_timed(f"{step.name}: measuring" + (f", against step {baseline.step}" if baseline else ""))
        report = self.settings.out / f"{step.name}-{checkpoint.fingerprint[:12]}.json"
        started = time.monotonic()
        run = self._run_suite(checkpoint, baseline, report)
        gpu_seconds = (time.monotonic() - started) * max(1, len(self.settings.gpus))
        verdict, failed = verdict_of(run)
        measurement = Measurement(
            step=step.number,
            checkpoint=str(step.path),
            fingerprint=checkpoint.fingerprint,
            verdict=verdict,
            exit_code=run.exit_code,
            failed=failed,
            report=str(report),
            baseline=baseline.step if baseline else None,
            effective_length=run.report["ruler"]["effective_length_label"] if run.report else None,
            gpu_seconds=round(gpu_seconds, 1),
            ended=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        self.history.add(measurement)
        print_timed(f"{step.name}: {verdict}")
        for line in failed:
            print_line(f"    {line}")
        self._notify()

    def _run_suite(self, checkpoint: CompleteCheckpoint, baseline: Measurement | None, report: Path) -> SuiteRun:
        gpus = self.settings.gpus
        return run_suite(
            [
                *self.settings.options, *(["-n", str(len(gpus))] if len(gpus) > 1 else []),
                "--model", str(checkpoint.step.path), *(["--baseline", baseline.report] if baseline else []),
                "--junitxml", str(report.with_suffix(".xml")),
            ],
            report=report,
            log=report.with_suffix(".log"),
            fingerprints=[checkpoint.fingerprint],
            again=True,
            environment={"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else None,
        )  # fmt: skip

    def _notify(self) -> None:
        """Deliver the failures that were not delivered yet; stop for now when failed deliveries take too long."""
        started = time.monotonic()
        for measurement in filter(self._deliveries.is_due, self.history.unnotified):
            problem = self._deliveries.deliver(measurement)
            if problem is None:
                self.history.mark_notified(measurement)
                continue
            self._print_changed(f"notification {measurement.step}", f"{problem}; it will be retried")
            if time.monotonic() - started > MAX_NOTIFYING_SECONDS:
                return

    def _is_spent(self) -> bool:
        limit = self.settings.max_gpu_seconds
        return limit is not None and self.history.gpu_seconds >= limit

    def _print_changed(self, subject: str, line: str) -> None:
        """Print a line about a subject unless it is the last one printed about it."""
        if self._last_lines.get(subject) != line:
            self._last_lines[subject] = line
            print_timed(line)


def verdict_of(run: SuiteRun) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict of a finished run, and one line for every reason why it is not a pass."""
    if run.report is None:
        return "error", (run.reason,)
    if run.exit_code == 0:
        return "pass", ()
    gates = [gate for gate in run.report["gates"] if gate["blocking"] and gate["verdict"] in ("fail", "error")]
    cases = [case for case in run.report["cases"] if case["verdict"] in ("fail", "error")]
    is_error = any(result["verdict"] == "error" for result in (*gates, *cases))
    failed = tuple(
        [f"{gate['name']}: {gate['reason']}" for gate in gates]
        + [f"{case['id']}: {case['error'] or case['decided_by']}" for case in cases]
    )
    return ("error" if is_error else "fail"), failed or (f"pytest ended with code {run.exit_code}",)


def print_timed(line: str) -> None:
    """Print a line with the time of day."""
    print_line(f"{time.strftime('%H:%M:%S')} {line}")
