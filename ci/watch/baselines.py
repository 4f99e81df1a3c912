"""Choose the checkpoints that a checkpoint is compared with: the anchor of the watch, and the last good one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from longctx.ci.checkpoint_dirs import Step, fingerprint_of, read_step
from longctx.ci.suite_process import read_report
from longctx.ci.watch.history import History, WatchedCheckpoint
from longctx.fixtures.checkpoints.safetensors import CheckpointError
from longctx.fixtures.outside_files import absolute, expanded

ANCHOR, LAST_GOOD = "the anchor", "the last good step"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCheckpoint:
    """A checkpoint to compare with."""

    role: str
    """ANCHOR or LAST_GOOD."""
    name: str
    """The step, or the path that --anchor gave."""
    step: int | None
    """None for a path that --anchor gave."""
    argument: str | None
    """The value of pytest's --baseline: a report or a checkpoint; None if neither exists any more."""


class Baselines:
    """The baselines of a watch.

    A comparison with only the last good step would let many small losses pass one by one, so every checkpoint is also
    compared with an anchor that stays: the first accepted checkpoint, or the one of --anchor.
    """

    def __init__(self, history: History, anchor: str | None, *, needs_checkpoint: bool):
        self.history = history
        self._anchor = anchor
        self._needs_checkpoint = needs_checkpoint
        """True if no report can be used, because every checkpoint has samples of its own."""

    def of(self, step: Step, complete: Sequence[Step]) -> tuple[ComparedCheckpoint, ...]:
        """Return the baselines of a step, the anchor first; `complete` are the checkpoints in the directory."""
        anchor = self._anchor_of(step, complete)
        good = self.history.last_good(step.number)
        if good is None or (anchor is not None and anchor.step == good.step):
            return () if anchor is None else (anchor,)
        last_good = self._measured(LAST_GOOD, good)
        return (last_good,) if anchor is None else (anchor, last_good)

    def _anchor_of(self, step: Step, complete: Sequence[Step]) -> ComparedCheckpoint | None:
        if self._anchor is None:
            first = self.history.first_accepted
            return self._measured(ANCHOR, first) if first is not None and first.step < step.number else None
        if not self._anchor.isdecimal():
            path = absolute(self._anchor)
            if path == step.path:
                return None
            return ComparedCheckpoint(role=ANCHOR, name=path.name, step=None, argument=str(path))
        number = int(self._anchor)
        measured = self.history.latest(number)
        if number == step.number:
            return None
        if measured is not None:
            return self._measured(ANCHOR, measured)
        paths = [other.path for other in complete if other.number == number]
        return ComparedCheckpoint(
            role=ANCHOR, name=f"step {number}", step=number, argument=str(paths[0]) if paths else None
        )

    def _measured(self, role: str, measurement: WatchedCheckpoint) -> ComparedCheckpoint:
        """Return a measured checkpoint: by its report, which knows its answers, or else by its directory."""
        checkpoint = measurement.checkpoint if os.path.isdir(measurement.checkpoint) else None
        report = None if self._needs_checkpoint or not os.path.isfile(measurement.report) else measurement.report
        return ComparedCheckpoint(
            role=role, name=f"step {measurement.step}", step=measurement.step, argument=report or checkpoint
        )


def check_anchor(anchor: str, directory: Path, out: Path, options: Sequence[str] = ()) -> None:
    """Raise ValueError, with one line, unless --anchor names a step of the directory, a checkpoint or a report.

    A step whose checkpoint is gone may still have been measured: then it is in the history in `out`. `options` are
    those of the suite.
    """
    if anchor.isdecimal():
        visible = [path for path in directory.iterdir() if path.is_dir() and not path.name.startswith(".")]
        numbered = [path for path in visible if any(character.isdigit() for character in path.name)]
        steps = {read_step(path, option="DIR").number for path in numbered}
        if int(anchor) not in steps and History(out).latest(int(anchor)) is None:
            raise ValueError(f"--anchor: no step {anchor} in {directory}; give a step that is there, or a path")
        return
    path = expanded(anchor)
    if path.suffix == ".json":
        if read_report(path) is None:
            raise ValueError(f"--anchor: {anchor} is not a report of the suite; give a file of --report-json")
        return
    try:
        fingerprint_of(path, option="--anchor", options=options)
    except CheckpointError as error:
        raise ValueError(str(error)) from error
