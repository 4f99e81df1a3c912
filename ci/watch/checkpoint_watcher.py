"""Which checkpoints of a directory are there whole, while training still writes others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ci.checkpoint_dirs import Step, read_step
from fixtures.checkpoints.checkpoint import CheckpointError, read_checkpoint

# Name, size and time of change of every file below a directory.
State = tuple[tuple[str, int, int], ...]
NUMBERED = re.compile(r"\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A checkpoint that can be read; another fingerprint is another checkpoint, whatever its name."""

    step: Step
    fingerprint: str


@dataclass(slots=True)
class Watcher:
    """Looks at a directory again and again; `marker` is a file that training writes last, if it does.

    Without a marker a checkpoint is whole when its weights fit their index and headers and nothing in
    it has changed since the last look. `waiting` says of each other one, by name, what it lacks.
    """

    directory: Path
    marker: str | None = None
    waiting: dict[str, str] = field(default_factory=dict)
    _states: dict[Path, State] = field(default_factory=dict)
    _prints: dict[Path, tuple[State, str]] = field(default_factory=dict)

    def look(self) -> list[Whole]:
        """The whole ones, by step. Raises OSError where the directory itself cannot be read."""
        self.waiting.clear()
        found = [self._whole(step) for step in self._steps()]
        return [each for each in found if each is not None]

    def _steps(self) -> Sequence[Step]:
        folders = (path for path in self.directory.iterdir() if NUMBERED.search(path.name))
        # Writers that rename at the end use hidden names until then.
        shown = (path for path in folders if path.is_dir() and not path.name.startswith("."))
        return sorted((read_step(path, option="DIR") for path in shown), key=lambda step: step.number)

    def _whole(self, step: Step) -> Whole | None:
        try:
            return self._checked(step)
        except (OSError, CheckpointError) as error:
            # It may be deleted or written while we look.
            self._states.pop(step.path, None)
            self.waiting[step.name] = str(error)
            return None

    def _checked(self, step: Step) -> Whole | None:
        now = _state(step.path)
        was, self._states[step.path] = self._states.get(step.path), now
        if self.marker is not None and not (step.path / self.marker).exists():
            self.waiting[step.name] = f"{self.marker} is not there yet"
            return None
        known = self._prints.get(step.path)
        if known is not None and known[0] == now:
            return Whole(step=step, fingerprint=known[1])
        if self.marker is None and was != now:
            self.waiting[step.name] = "it was not there at the last look, or has changed since"
            return None
        fingerprint = read_checkpoint(str(step.path)).fingerprint
        if _state(step.path) != now:
            self.waiting[step.name] = "it changed while it was read"
            return None
        self._prints[step.path] = (now, fingerprint)
        return Whole(step=step, fingerprint=fingerprint)


def _state(folder: Path) -> State:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return tuple((str(path.relative_to(folder)), (seen := path.stat()).st_size, seen.st_mtime_ns) for path in files)
