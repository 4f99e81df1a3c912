"""The folder of a watch: its measurements as JSON lines, synced one by one, and the lock that one watch holds on it."""

import contextlib
import fcntl
import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from longctx.ci.checkpoint_dirs import Loss
from longctx.fixtures.records.report_parts import Interval

LOCK = "watch.lock"

Verdict = Literal["pass", "undecided", "not measured", "fail", "error"]
ACCEPTED: tuple[Verdict, ...] = ("pass", "undecided")
State = Literal["pass", "undecided", "lost", "fail"]
STATES: tuple[State, ...] = ("pass", "undecided", "lost", "fail")


class CaseOutcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part that one case has in the verdict on a checkpoint."""

    length: int
    """In tokens."""
    state: State
    """`fail` if the case is shown to be bad in a gate that failed; `lost` if it has lost points in a failed gate of
    which no case is; `undecided` if a gate that it is in is undecided, or failed for other cases."""
    gates: tuple[str, ...] = ()
    """The failed gates that the case has lost in."""
    points: float | None = None
    """The difference from the baseline, or from what the failed gate requires; negative for a loss. None if neither is
    known."""
    against: Literal["baseline", "threshold"] = "baseline"
    interval: Interval | None = None
    """Confidence interval of `points`, about the model."""
    pairs: int = 0
    """Samples, or pairs of samples, that the points are from."""
    error: float | None = None
    """Standard error of `points` from the samples alone; None without points."""

    @property
    def has_lost(self) -> bool:
        return self.state in ("lost", "fail")


class PanelScore(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The mean score of a family at one length.

    A verdict that was clear early rests on fewer samples, so scores of two checkpoints may not be comparable. The
    points are on samples that both have answered.
    """

    score: float
    """From 0 to 100, over the cases."""
    samples: int
    points: float | None = None
    """The difference from the anchor, negative for a loss; None if nothing was compared with it."""
    pairs: int = 0


class WatchedCheckpoint(
    Struct, frozen=True, kw_only=True, tag_field="event", tag="measured",
    rename={"verdict": "word", "is_suspected": "suspected"},
):  # fmt: skip
    """One run of the gates on a checkpoint."""

    step: int
    checkpoint: str
    """The checkpoint's path."""
    fingerprint: str
    verdict: Verdict
    failed: tuple[str, ...]
    """One line for every failed gate, case or property of the engine, or the only reason why nothing was measured."""
    report: str
    """Path of the JSON report; that of --invariance if the check failed or could not be made."""
    gpu_seconds: float
    """Elapsed seconds times the number of GPUs."""
    ended: str
    """Time in UTC, ISO 8601."""
    anchor: str | None = None
    """The anchor against which the checkpoint was compared; None for the first one."""
    panels: Mapping[str, PanelScore] = {}
    """The scores by family and length, such as `ruler 4k`."""
    cases: Mapping[str, CaseOutcome] = {}
    """The outcome of the gates for every case, by id; empty if nothing was measured."""
    compared_with: str | None = None
    """The checkpoint, or else the report, that the cases were compared with; None without a baseline."""
    most_samples: int | None = None
    """The most samples of a case, if a suspected loss took more of them than the options plan; None elsewhere."""
    is_suspected: bool = False
    """True if it is undecided because of a loss that few unchanged models have, and that is not shown."""
    lost: Loss | None = None
    """How the checkpoint has changed since it was measured; None while it is on disk as it was."""

    @property
    def is_gone(self) -> bool:
        return self.lost is not None

    @property
    def says_nothing(self) -> bool:
        """True if the checkpoint was not measured, or if another one has replaced it."""
        return self.verdict == "not measured" or self.lost == "replaced"

    @property
    def is_good(self) -> bool:
        """True for a checkpoint that passed, also after it was deleted."""
        return self.verdict == "pass" and not self.says_nothing

    @property
    def counts(self) -> bool:
        """False for a failure that is no longer on disk, and for what says nothing."""
        return not self.says_nothing and (self.verdict in ACCEPTED or not self.is_gone)

    @property
    def is_failure(self) -> bool:
        """True for a checkpoint on disk that was not accepted."""
        return self.counts and self.verdict not in ACCEPTED

    @property
    def suspicion(self) -> str:
        return "a loss is suspected, but not shown" if self.is_suspected else ""


class Search(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event", tag="searched"):
    """The result of a search for the step at which a loss began, between a good and a bad checkpoint."""

    good: str
    """The fingerprint of the good checkpoint."""
    bad: str
    cases: tuple[str, ...]
    """The ids of the cases that were searched on."""
    line: str
    """Its result in one line."""
    first: int | None = None
    """The first step at which the run may have become worse; None without a result."""
    last: int | None = None
    """The last such step; the first one if the search names a single step."""
    last_good: int | None = None
    """The step before the first one."""
    last_path: str = ""
    """The checkpoint of the last such step, which is bad for certain; empty without a result."""
    last_good_path: str = ""
    """The checkpoint of the step before the first one."""
    probability: float | None = None
    """The probability that the run became worse at one of these steps."""
    checkpoints: int = 0
    """Checkpoints that the search measured between the two."""
    was_killed: bool = False
    """True if its process was killed; the next start of the watch searches again."""


Stage = Literal["begun", "found"]
"""The news of an alert: it has begun, or a search has found its step."""


class Notified(Struct, frozen=True, kw_only=True, tag_field="event", tag="notified"):
    """A delivered notification, with the identity of its alert."""

    stage: Stage
    kind: str
    fingerprints: tuple[str, ...]
    cases: tuple[str, ...]


Event = WatchedCheckpoint | Search | Notified


class History:
    """The file `history.jsonl` of a folder; a torn last line counts as not written.

    The last measurement of a directory is the one that counts.
    """

    measurements: dict[str, WatchedCheckpoint]
    """The last measurement of every directory, by its path."""
    searches: list[Search]
    notified: list[Notified]

    def __init__(self, folder: Path):
        self.path = folder / "history.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        self.measurements, self.searches, self.notified = {}, [], []
        self._retried: set[str] = set()
        if self.path.exists():
            for line in self.path.read_bytes().split(b"\n"):
                self._read(line)
        self.searches = [search for search in self.searches if not search.was_killed]
        # An error from before this start is retried once.
        self._retried = {path for path, known in self.measurements.items() if known.verdict == "error"}

    def add(self, event: Event) -> None:
        """Append an event; a checkpoint that was measured is then settled until the next start."""
        with self.path.open("a+b") as file:
            # The line must not be appended to a torn one.
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - 1))
            torn = file.read() not in (b"", b"\n")
            line = json.dumps(msgspec.to_builtins(event)).encode("ascii")
            file.write(b"\n" * torn + line + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._take(event)

    def is_settled(self, checkpoint: Path, fingerprint: str) -> bool:
        """Return True if the checkpoint need not be measured; errors are retried once after every start."""
        known = self.measurements.get(str(checkpoint))
        is_known = known is not None and known.fingerprint == fingerprint and not known.is_gone
        return is_known and str(checkpoint) not in self._retried

    @property
    def lowest_passed(self) -> WatchedCheckpoint | None:
        """The lowest step that passed, whenever it was measured; one that was deleted counts too, by its report."""
        return next((known for known in self.by_step if known.is_good), None)

    def latest(self, step: int) -> WatchedCheckpoint | None:
        """Return a measurement of a step that has a result."""
        of_step = [known for known in self.measurements.values() if known.step == step and not known.says_nothing]
        return next((known for known in of_step if known.verdict != "error"), None)

    @property
    def by_step(self) -> list[WatchedCheckpoint]:
        """The measurements in the order of their steps; a checkpoint that was moved counts where it is, or was last."""
        by_time = sorted(self.measurements.values(), key=lambda known: (not known.is_gone, known.ended))
        last = {known.fingerprint: known for known in by_time}
        present = [known for known in by_time if not known.is_gone or last[known.fingerprint] is known]
        return sorted(present, key=lambda known: (known.step, known.checkpoint))

    def last_good(self, before: int) -> WatchedCheckpoint | None:
        """Return the nearest step before this one that passed and that still has its report."""
        for known in reversed(self.by_step):
            if known.step < before and known.is_good and os.path.isfile(known.report):
                return known
        return None

    def _read(self, line: bytes) -> None:
        """Take in a line that is a complete event; any other one changes nothing."""
        with contextlib.suppress(ValueError, RecursionError):
            self._take(msgspec.convert(json.loads(line), Event))

    def _take(self, event: Event) -> None:
        match event:
            case WatchedCheckpoint():
                self.measurements[event.checkpoint] = event
                self._retried.discard(event.checkpoint)
            case Search():
                self.searches.append(event)
            case Notified():
                self.notified.append(event)


def step_name(step: int) -> str:
    return f"step {step}"


@contextlib.contextmanager
def locked(folder: Path, *, waits: bool, show: Callable[[str], None]) -> Iterator[bool]:
    """Make a folder if it is not there, and hold its lock; yield False if another watch does and `waits` is False.

    The operating system releases the lock when its process ends, however it ends. `show` prints a line about another
    holder, and about a file system without locks, on which the folder counts as locked. Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+b", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().decode("utf-8", "replace").strip()
            then = "waiting until it ends" if waits else "nothing to do here"
            show(f"another watch measures into {folder} ({holder}); {then}")
            if not waits:
                yield False
                return
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            show(f"the file system of {folder} has no locks ({error.strerror}); start only one watch with this --out")
        started = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}, since {started}\n".encode())
        yield True
        file.truncate(0)
