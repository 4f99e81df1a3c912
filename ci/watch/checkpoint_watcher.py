"""List the complete checkpoints of a directory while training still writes, replaces and deletes others."""

import stat
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from longctx.ci.checkpoint_dirs import Step, StepReader, fingerprint_of
from longctx.fixtures.checkpoints.safetensors import CheckpointError

# Name, size, modification time, time of change and inode of every file below a directory.
State = tuple[tuple[str, int, int, int, int], ...]
UNSETTLED = "it is new, or has changed since the last scan"
CHANGING = "it changed while it was read"
Loss = Literal["deleted", "replaced", "incomplete"]
"""The change of a checkpoint that is no longer on disk as it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteCheckpoint:
    """A checkpoint that can be read; one with another fingerprint is another checkpoint, even under the same name."""

    step: Step
    fingerprint: str


@dataclass(slots=True)
class CheckpointWatcher:
    """Scan a directory repeatedly for complete checkpoints.

    Without a marker, a checkpoint is complete if its weights match their index and headers, and if no file in it has
    changed since the last scan.
    """

    directory: Path
    marker: str | None = None
    """Name of a file that training writes last into every checkpoint."""
    options: Sequence[str] = ()
    """The options of the suite, which decide what a run can make a checkpoint of."""
    reader: StepReader = field(default_factory=StepReader)
    waiting: dict[Path, str] = field(default_factory=dict)
    """Reasons why the other checkpoints are not complete, by directory, as of the last scan."""
    steps: Sequence[Step] = ()
    """All checkpoints of the last scan, complete or not."""
    _unclear: Collection[Path] = ()
    """The directories without a step of their own, as of the last scan."""
    _states: dict[Path, State] = field(default_factory=dict)
    _fingerprints: dict[Path, tuple[State, str]] = field(default_factory=dict)
    _complete: dict[Path, CompleteCheckpoint] = field(default_factory=dict)
    """The complete checkpoints of the last scan, by directory."""

    def scan(self) -> list[CompleteCheckpoint]:
        """Return the complete checkpoints by step; raise OSError if the directory itself cannot be read."""
        directories = self.reader.find(self.directory)
        self.steps, self._unclear = directories.steps, directories.unclear
        self.waiting = dict(directories.unclear)
        self._complete.clear()
        for step in self.steps:
            try:
                reason = self._check(step)
            except (OSError, CheckpointError) as error:
                # Training may write or delete the files during the scan.
                self._states.pop(step.path, None)
                reason = str(error)
            if reason is not None:
                self.waiting[step.path] = reason
        return list(self._complete.values())

    def find_loss(self, checkpoint: Path, fingerprint: str) -> Loss | None:
        """Return how a known checkpoint has changed until the last scan; None if no change is known."""
        if (complete := self._complete.get(checkpoint)) is not None:
            return None if complete.fingerprint == fingerprint else "replaced"
        if not _exists(checkpoint):
            return "deleted"
        if checkpoint in self._unclear:
            # Another checkpoint of the same step does not change it.
            return None
        return "incomplete" if self.waiting.get(checkpoint, UNSETTLED) not in (UNSETTLED, CHANGING) else None

    @property
    def refused(self) -> bool:
        """True if a checkpoint of the last scan will not become complete by waiting."""
        return any(reason not in (UNSETTLED, CHANGING) and reason != self._absent for reason in self.waiting.values())

    @property
    def _absent(self) -> str:
        return f"{self.marker} is not there yet"

    def read_loss(self, checkpoint: Path, fingerprint: str) -> Loss | None:
        """Read a known checkpoint, and return how it has changed until now; None if it is as it was."""
        try:
            now = fingerprint_of(checkpoint, option="DIR", options=self.options)
        except CheckpointError:
            return "incomplete" if _exists(checkpoint) else "deleted"
        return None if now == fingerprint else "replaced"

    def _check(self, step: Step) -> str | None:
        state = _state(step.path)
        last_state, self._states[step.path] = self._states.get(step.path), state
        if self.marker is not None and not (step.path / self.marker).exists():
            return self._absent
        known_state, fingerprint = self._fingerprints.get(step.path, (None, ""))
        if known_state != state:
            if self.marker is None and last_state != state:
                return UNSETTLED
            fingerprint = fingerprint_of(step.path, option="DIR", options=self.options)
            if _state(step.path) != state:
                return CHANGING
            self._fingerprints[step.path] = (state, fingerprint)
        self._complete[step.path] = CompleteCheckpoint(step=step, fingerprint=fingerprint)
        return None


def _state(folder: Path) -> State:
    files = ((path, path.stat()) for path in sorted(folder.rglob("*")) if path.is_file())
    return tuple(
        (str(path.relative_to(folder)), facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino)
        for path, facts in files
    )


def _exists(directory: Path) -> bool:
    """Return False if it is certain that there is no such directory; a file system that does not answer is no proof."""
    try:
        return stat.S_ISDIR(directory.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
