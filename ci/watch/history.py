"""The folder of a watch: its measurements as JSON lines, synced one by one, and the lock that one watch holds on it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal

import msgspec
from msgspec import Struct

from longctx.ci.watch.checkpoint_watcher import Loss
from longctx.ci.watch.outcomes import CaseOutcome

LOCK = "watch.lock"
POLL_SECONDS = 1.0
# The errors of file systems without locks, and of those whose lock server is not there.
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)
MOST_HOLDER_BYTES = 512

Verdict = Literal["pass", "inconclusive", "gone", "underpowered", "fail", "error"]
ACCEPTED: tuple[Verdict, ...] = ("pass", "inconclusive")
# A checkpoint's directory and fingerprint: a checkpoint that is written again is another one.
Key = tuple[str, str]
# Keys of the history file and the webhook that differ from the names of the fields.
JSON_KEYS = {"verdict": "word", "exit_code": "code", "is_gone": "gone", "is_suspected": "suspected"}
FIELDS = {key: name for name, key in JSON_KEYS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The difference between a checkpoint and its anchor on samples that both have answered."""

    points: float
    """The mean over the tasks; negative for a loss."""
    pairs: int


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
    """Mean scores, 0 to 100, by family and length, such as `ruler 4k`. A verdict that was clear
    early rests on fewer samples, so scores of two checkpoints may not be comparable; `changes` are."""
    samples: Mapping[str, int] = field(default_factory=dict)
    """The numbers of samples under the scores."""
    changes: Mapping[str, Change] = field(default_factory=dict)
    """The differences from the anchor, by family and length; empty if nothing was compared with it."""
    cases: Mapping[str, CaseOutcome] = field(default_factory=dict)
    """The outcome of the gates for every case, by id; empty if nothing was measured."""
    compared_with: str | None = None
    """The checkpoint, or else the report, that the cases were compared with; None without a baseline."""
    tokens: int | None = None
    """The tokens that the checkpoint computed for its gates; None if they were not run or are not known."""
    most_samples: int | None = None
    """The most samples of a case, if a suspected loss took more of them than the options plan; None elsewhere."""
    is_suspected: bool = False
    """True if it is inconclusive because of a loss that few unchanged models have, and that is not shown."""
    is_gone: bool = False
    """True if the checkpoint is no longer on disk as it was measured."""
    is_deleted: bool = False
    """True if it is gone because its directory is not there any more."""

    @property
    def key(self) -> Key:
        return (self.checkpoint, self.fingerprint)

    @property
    def suspicion(self) -> str:
        """What is said beside the verdict of a suspected loss; empty without one."""
        return "a loss is suspected, but not shown" if self.is_suspected else ""

    def as_json(self) -> dict[str, Any]:
        """Return the measurement under the keys of the history file."""
        fields = asdict(self) | {"cases": msgspec.to_builtins(self.cases)}
        return {JSON_KEYS.get(name, name): value for name, value in fields.items()}


class Search(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a search for the step at which a loss began, between a good and a bad checkpoint."""

    good: str
    """The fingerprint of the good checkpoint."""
    bad: str
    cases: tuple[str, ...]
    """The ids of the cases that were searched on."""
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
    gpu_seconds: float = 0.0
    """Elapsed seconds times the number of GPUs."""


Stage = Literal["begun", "found", "closed"]
"""The news of an alert: it has begun, a search has found its step, or a later step has closed it."""


class Notified(Struct, frozen=True, kw_only=True):
    """A delivered notification, with what identifies its alert."""

    stage: Stage
    kind: str
    fingerprints: tuple[str, ...]
    cases: tuple[str, ...]


class History:
    """The file `history.jsonl` of a folder; a torn last line counts as not written.

    The last measurement of a directory is the one that counts. Another watch may append to the same file.
    """

    measurements: dict[str, WatchedCheckpoint]
    """The last measurement of every directory, by its path."""
    searches: list[Search]
    notified: list[Notified]
    gpu_seconds: float
    """Sum over all measurements, retries included, and all searches."""
    _retried: set[str]
    """The directories whose last measurement is an error from before this start, which is retried once."""

    def __init__(self, folder: Path):
        self.path = folder / "history.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        self._clear()
        self.refresh()
        self._retried = {path for path, known in self.measurements.items() if known.verdict == "error"}

    def refresh(self) -> None:
        """Read the lines that were appended since the last call."""
        with contextlib.suppress(FileNotFoundError), self.path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < self._read_bytes:
                self._clear()
            file.seek(self._read_bytes)
            for line in file:
                # A last line without its end may be complete, torn, or still being written by another watch.
                if self._is_event(line) or line.endswith(b"\n"):
                    self._read_bytes += len(line)

    def add(self, measurement: WatchedCheckpoint) -> None:
        """Append a measurement; its checkpoint is then settled until the next start."""
        self._append({"event": "measured", **measurement.as_json()})

    def add_search(self, search: Search) -> None:
        """Append the result of a search."""
        self._append({"event": "searched", **msgspec.to_builtins(search)})

    def add_notified(self, notified: Notified) -> None:
        """Append a notification that every recipient has accepted."""
        self._append({"event": "notified", **msgspec.to_builtins(notified)})

    def mark_gone(self, measurement: WatchedCheckpoint, loss: Loss) -> None:
        """Record that a checkpoint is no longer on disk as it was measured.

        Its failure then counts no longer. An accepted one that was deleted stays a baseline, by its report.
        """
        place = {"checkpoint": measurement.checkpoint, "fingerprint": measurement.fingerprint}
        self._append({"event": "gone", "step": measurement.step, **place, "reason": loss})

    def is_settled(self, checkpoint: Path, fingerprint: str) -> bool:
        """Return True if the checkpoint need not be measured; errors are retried once after every start."""
        known = self.measurements.get(str(checkpoint))
        is_known = known is not None and known.fingerprint == fingerprint and not known.is_gone
        return is_known and str(checkpoint) not in self._retried

    @property
    def lowest_passed(self) -> WatchedCheckpoint | None:
        """The lowest step that passed, whenever it was measured."""
        return next((known for known in self.by_step if known.verdict == "pass"), None)

    def latest(self, step: int) -> WatchedCheckpoint | None:
        """Return the last measurement of a step that has a result."""
        of_step = [known for known in self.by_step if known.step == step and known.verdict not in ("error", "gone")]
        return of_step[-1] if of_step else None

    @property
    def by_step(self) -> list[WatchedCheckpoint]:
        """The measurements in the order of their steps.

        A checkpoint that was moved is there once: in the directories where it is on disk, or else in the last one.
        """
        known = sorted(self.measurements.values(), key=lambda each: (not each.is_gone, each.ended))
        last = {each.fingerprint: each for each in known}
        present = [each for each in known if not each.is_gone or last[each.fingerprint] is each]
        return sorted(present, key=lambda each: (each.step, each.checkpoint))

    def last_good(self, before: int) -> WatchedCheckpoint | None:
        """Return the nearest step before this one that passed and that still has its report."""
        for known in reversed(self.by_step):
            if known.step < before and known.verdict == "pass" and os.path.isfile(known.report):
                return known
        return None

    @property
    def failures(self) -> list[WatchedCheckpoint]:
        """The checkpoints on disk that were not accepted."""
        return [known for known in self.measurements.values() if known.verdict not in (*ACCEPTED, "gone")]

    def _clear(self) -> None:
        self.measurements, self.searches, self.notified = {}, [], []
        self.gpu_seconds = 0.0
        self._retried: set[str] = set()
        self._read_bytes = 0

    def _append(self, event: Mapping[str, Any]) -> None:
        with self.path.open("a+b") as file:
            # The line must not be appended to a torn one.
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - 1))
            torn = file.read() not in (b"", b"\n")
            file.write(b"\n" * torn + json.dumps(event).encode("ascii") + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.refresh()

    def _is_event(self, line: bytes) -> bool:
        """Take in a line, and return True if it is a complete event; any other line changes nothing."""
        try:
            data = json.loads(line)
            event = data.pop("event")
            if event == "measured":
                self._take_measurement(data)
            elif event == "searched":
                search = msgspec.convert(data, Search)
                self.searches.append(search)
                self.gpu_seconds += search.gpu_seconds
            elif event == "notified":
                self.notified.append(msgspec.convert(data, Notified))
            elif event == "gone":
                known = self.measurements.get(data["checkpoint"])
                if known is not None and known.fingerprint == data["fingerprint"]:
                    self.measurements[known.checkpoint] = _gone(known, data["reason"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return False
        return True

    def _take_measurement(self, data: Mapping[str, Any]) -> None:
        fields = {FIELDS.get(key, key): value for key, value in data.items()}
        measurement = msgspec.convert(fields, WatchedCheckpoint)
        self.measurements[measurement.checkpoint] = measurement
        self._retried.discard(measurement.checkpoint)
        self.gpu_seconds += measurement.gpu_seconds


def _gone(measurement: WatchedCheckpoint, loss: Loss) -> WatchedCheckpoint:
    """Return the measurement of a checkpoint that is no longer on disk as it was."""
    if measurement.verdict == "gone" or (measurement.verdict in ACCEPTED and loss != "replaced"):
        return replace(measurement, is_gone=True, is_deleted=loss == "deleted")
    reason = f"{loss} after its verdict, {measurement.verdict}"
    return replace(
        measurement, is_gone=True, is_deleted=loss == "deleted", verdict="gone", failed=(reason, *measurement.failed)
    )


def step_name(step: int) -> str:
    """Return the name of a step as an anchor."""
    return f"step {step}"


def open_lock(folder: Path) -> IO[bytes]:
    """Return the open lock file of a folder, which is made if it is not there; raise ValueError, with one line."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / LOCK).open("a+b", buffering=0)
    except OSError as error:
        raise ValueError(
            f"--out: cannot write {error.filename or folder} ({error.strerror}); give a folder that can be written"
        ) from None


@contextlib.contextmanager
def locked(file: IO[bytes], folder: Path, *, waits: bool, show: Callable[[str], None]) -> Iterator[bool]:
    """Hold the lock on a folder, and close its file; yield False if another watch holds it and `waits` is False.

    The operating system releases the lock when its process ends, however it ends. `show` prints a line about another
    holder, and about a file system without locks, on which the folder counts as locked.
    """
    with file:
        holds = _try_lock(file, folder, show)
        if not holds:
            then = "waiting until it ends" if waits else "nothing to do here"
            show(f"another watch measures into {folder} ({_holder(file)}); {then}")
        while waits and not holds:
            time.sleep(POLL_SECONDS)
            holds = _try_lock(file, folder, show)
        yield holds
        if holds:
            file.truncate(0)


def _try_lock(file: IO[bytes], folder: Path, show: Callable[[str], None]) -> bool:
    """Lock the file, and name this process in it; return False if another one has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        show(f"the file system of {folder} has no locks ({error.strerror}); start only one watch with this --out")
        return True
    started = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
    file.truncate(0)
    file.write(f"process {os.getpid()} on {platform.node()}, since {started}\n".encode())
    return True


def _holder(file: IO[bytes]) -> str:
    """Return the line with which the holder named itself."""
    file.seek(0)
    return file.read(MOST_HOLDER_BYTES).decode("utf-8", "replace").strip() or "a process that has just started"
