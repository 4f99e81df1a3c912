"""The measurements of a watch as JSON lines, synced one by one, so that a restart continues and loses nothing."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

Verdict = Literal["pass", "screened", "inconclusive", "underpowered", "fail", "error"]
ACCEPTED: tuple[Verdict, ...] = ("pass", "screened", "inconclusive")
# A checkpoint's path and fingerprint: a checkpoint that is written again is another one.
Key = tuple[str, str]
# Keys of the history file and the webhook that differ from the names of the fields.
JSON_KEYS = {"verdict": "word", "exit_code": "code"}
FIELDS = {key: name for name, key in JSON_KEYS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """The result of a screen by likelihood, which decides no gate."""

    verdict: Literal["no loss", "change", "loss", "not possible"]
    """The word that the screen alone would have said about the checkpoint; a change is a gain that is no noise."""
    lines: tuple[str, ...]
    """One line for every family at every length, or the reasons why the screen was not possible."""
    tokens: int | None
    """The tokens that the checkpoint computed for the screen; None if they are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedCheckpoint:
    """One run of the gates on a checkpoint."""

    step: int
    checkpoint: str
    """The checkpoint's path."""
    fingerprint: str
    verdict: Verdict
    exit_code: int
    """pytest's exit code."""
    failed: tuple[str, ...]
    """One line for every failed gate, case or property of the engine, or the only reason why nothing was measured."""
    report: str
    """Path of the JSON report; that of --invariance if the check failed or could not be made."""
    baseline: int | None
    """The last good step before this one; None for the first one."""
    effective_length: str | None
    gpu_seconds: float
    """Elapsed seconds times the number of GPUs."""
    ended: str
    """Time in UTC, ISO 8601."""
    anchor: str | None = None
    """The anchor against which the checkpoint was compared; None for the first one."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """Mean scores, 0 to 100, by family and length, such as `ruler 4k`; empty for a screened checkpoint."""
    screen: Screening | None = None
    """None for a checkpoint that was not screened."""
    tokens: int | None = None
    """The tokens that the checkpoint computed for its gates; None if they were not run or are not known."""

    @property
    def key(self) -> Key:
        return (self.checkpoint, self.fingerprint)

    def as_json(self) -> dict[str, Any]:
        """Return the measurement under the keys of the history file."""
        return {JSON_KEYS.get(name, name): value for name, value in asdict(self).items()}


class History:
    """The file `history.jsonl` of a folder; a torn last line counts as not written."""

    measurements: dict[Key, WatchedCheckpoint]
    """The last measurement of every checkpoint."""
    notified: set[Key]
    """Checkpoints whose last verdict was delivered to the user's command and webhook."""
    gpu_seconds: float
    """Sum over all measurements, retries included."""

    def __init__(self, folder: Path):
        self.path = folder / "history.jsonl"
        self.measurements = {}
        self.notified = set()
        self.gpu_seconds = 0.0
        self._settled: set[Key] = set()
        folder.mkdir(parents=True, exist_ok=True)
        text = self.path.read_bytes() if self.path.exists() else b""
        for line in text.split(b"\n"):
            # A line that is not a complete event is skipped.
            with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
                data = json.loads(line)
                event = data.pop("event")
                if event == "measured":
                    fields = {FIELDS.get(key, key): value for key, value in data.items()}
                    measurement = msgspec.convert(fields, WatchedCheckpoint)
                    self._remember(measurement)
                    if measurement.verdict != "error":
                        self._settled.add(measurement.key)
                elif event == "told":
                    self.notified.add((data["checkpoint"], data["fingerprint"]))
        # The next line must not be appended to a torn one.
        self._is_torn = bool(text) and not text.endswith(b"\n")

    def add(self, measurement: WatchedCheckpoint) -> None:
        """Append a measurement; its checkpoint is then settled until the next start."""
        self._append({"event": "measured", **measurement.as_json()})
        self._remember(measurement)
        self._settled.add(measurement.key)

    def mark_notified(self, measurement: WatchedCheckpoint) -> None:
        """Record that the user was notified of this failure."""
        self._append({"event": "told", "checkpoint": measurement.checkpoint, "fingerprint": measurement.fingerprint})
        self.notified.add(measurement.key)

    def is_settled(self, checkpoint: Path, fingerprint: str) -> bool:
        """Return True if the checkpoint need not be measured; errors are retried once after every start."""
        return (str(checkpoint), fingerprint) in self._settled

    @property
    def first_accepted(self) -> WatchedCheckpoint | None:
        """The first checkpoint that passed, in the order of measurement."""
        return next((known for known in self.measurements.values() if known.verdict == "pass"), None)

    def latest(self, step: int) -> WatchedCheckpoint | None:
        """Return the last measurement of a step that did not end in an error."""
        of_step = [known for known in self.measurements.values() if known.step == step and known.verdict != "error"]
        return of_step[-1] if of_step else None

    @property
    def by_step(self) -> list[WatchedCheckpoint]:
        """The last measurements of all checkpoints in the order of their steps."""
        return sorted(self.measurements.values(), key=lambda measurement: measurement.step)

    def last_good(self, before: int) -> WatchedCheckpoint | None:
        """Return the nearest step before this one that passed and that still has its report."""
        passed = [
            measurement
            for measurement in self.measurements.values()
            if measurement.verdict == "pass" and measurement.step < before and os.path.isfile(measurement.report)
        ]
        return max(passed, key=lambda measurement: measurement.step, default=None)

    @property
    def unnotified(self) -> list[WatchedCheckpoint]:
        """Failures that were not delivered yet."""
        return [
            measurement
            for key, measurement in self.measurements.items()
            if measurement.verdict not in ACCEPTED and key not in self.notified
        ]

    def _append(self, line: Mapping[str, Any]) -> None:
        data = b"\n" * self._is_torn + json.dumps(line).encode("ascii") + b"\n"
        with self.path.open("ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self._is_torn = False

    def _remember(self, measurement: WatchedCheckpoint) -> None:
        last = self.measurements.get(measurement.key)
        if last is not None and last.verdict != measurement.verdict:
            # A notification of an error does not cover the failure that follows it.
            self.notified.discard(measurement.key)
        self.measurements[measurement.key] = measurement
        self.gpu_seconds += measurement.gpu_seconds


# The noise is that of so many last steps; fewer than the second number show none.
STEPS, MIN_STEPS = 8, 3


def noise(scores: Sequence[float]) -> float | None:
    """Return the standard deviation of a score, in points, from the differences of consecutive steps.

    Differences leave out a slow trend, and vary twice as much as a score. Returns None for fewer than MIN_STEPS steps.
    """
    last = scores[-STEPS:]
    if len(last) < MIN_STEPS:
        return None
    differences = [after - before for before, after in itertools.pairwise(last)]
    return math.sqrt(math.fsum(difference**2 for difference in differences) / (2 * len(differences)))


def steady_scores(measurements: Iterable[WatchedCheckpoint]) -> list[Mapping[str, float]]:
    """Return the scores of the checkpoints that did not fail: a loss that was shown is no noise."""
    return [measurement.scores for measurement in measurements if measurement.verdict != "fail"]


def score_lines(scores: Mapping[str, float], earlier: Sequence[Mapping[str, float]]) -> list[str]:
    """Return a line for every score, with the noise over the earlier steps that have it."""
    lines = []
    for name, score in scores.items():
        before = [known[name] for known in earlier if name in known][-STEPS:]
        spread = noise(before)
        beside = "" if spread is None else f", noise ±{spread:.1f} over the last {len(before)} steps"
        lines.append(f"{name}: {score:.1f}{beside}")
    return lines
