"""List the complete checkpoints of a directory while training still writes others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from longctx.ci.checkpoint_dirs import Step, read_step, source_in
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.checkpoints.safetensors import CheckpointError

# Name, size, modification time, time of change and inode of every file below a directory.
State = tuple[tuple[str, int, int, int, int], ...]
NUMBERED = re.compile(r"\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteCheckpoint:
    """A checkpoint that can be read; one with another fingerprint is another checkpoint, whatever its name."""

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
    waiting: dict[str, str] = field(default_factory=dict)
    """Reasons why the other checkpoints are not complete, by name, as of the last scan."""
    _states: dict[Path, State] = field(default_factory=dict)
    _complete: dict[Path, tuple[State, CompleteCheckpoint]] = field(default_factory=dict)

    def scan(self) -> list[CompleteCheckpoint]:
        """Return the complete checkpoints by step; raise OSError if the directory itself cannot be read."""
        self.waiting.clear()
        numbered = (path for path in self.directory.iterdir() if NUMBERED.search(path.name))
        # Some writers use a hidden name until they rename the finished directory.
        visible = (path for path in numbered if path.is_dir() and not path.name.startswith("."))
        steps = sorted((read_step(path, option="DIR") for path in visible), key=lambda step: step.number)
        checkpoints = []
        for step in steps:
            try:
                checkpoints.append(self._check(step))
            except (OSError, CheckpointError) as error:
                # Training may write or delete the files during the scan.
                self._states.pop(step.path, None)
                self.waiting[step.name] = str(error)
        return [checkpoint for checkpoint in checkpoints if checkpoint is not None]

    def _check(self, step: Step) -> CompleteCheckpoint | None:
        state = _state(step.path)
        last_state, self._states[step.path] = self._states.get(step.path), state
        if self.marker is not None and not (step.path / self.marker).exists():
            self.waiting[step.name] = f"{self.marker} is not there yet"
            return None
        known = self._complete.get(step.path)
        if known is not None and known[0] == state:
            return known[1]
        if self.marker is None and last_state != state:
            self.waiting[step.name] = "it is new, or has changed since the last scan"
            return None
        source = source_in(step.path, self.options)
        fingerprint = read_checkpoint(str(step.path)).fingerprint if source is None else source.fingerprint
        if _state(step.path) != state:
            self.waiting[step.name] = "it changed while it was read"
            return None
        complete = CompleteCheckpoint(step=step, fingerprint=fingerprint)
        self._complete[step.path] = (state, complete)
        return complete


def _state(folder: Path) -> State:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return tuple(
        (str(path.relative_to(folder)), (stat := path.stat()).st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
        for path in files
    )
