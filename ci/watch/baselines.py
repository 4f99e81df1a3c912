"""Choose the checkpoints that a checkpoint is compared with: the anchor and, where needed, the last good one.

A comparison with only the last good step would let many small losses pass one by one, so every checkpoint is compared
with an anchor that stays: the lowest step that passed, or the one of --anchor. Where the last good step is better than
that by the allowed loss or more, a drop from it could end above the anchor, so it is compared with too.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from longctx.ci.checkpoint_dirs import Step, StepReader, fingerprint_of
from longctx.ci.watch.history import History, WatchedCheckpoint, step_name
from longctx.fixtures.outside_files import absolute, expanded
from longctx.fixtures.records.report import ReportFileError, read_report_file

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
    checkpoint: Path | None = None
    """The directory of a measured checkpoint, where its run answers samples that the report lacks; None for one that is
    not there any more, or that was not measured."""
    candidates: int = 1
    """The number of measured steps that it was chosen from, because of their answers."""


class Baselines:
    """The baselines of a watch."""

    def __init__(self, history: History, anchor: str | None, *, drop_points: float, needs_checkpoint: bool):
        self.history = history
        self._anchor = anchor
        self._drop_points = drop_points
        """The loss that a comparison allows."""
        self._needs_checkpoint = needs_checkpoint
        """True if no report can be used, because every checkpoint has samples of its own."""

    def of(self, step: Step, complete: Sequence[Step]) -> tuple[ComparedCheckpoint, ...]:
        """Return the baselines of a step, the anchor first; `complete` are the checkpoints in the directory."""
        anchor = self._anchor_of(step, complete)
        good = self.history.last_good(step.number)
        if anchor is None:
            return () if good is None else (self._last_good(good, step),)
        if good is None or good.step == anchor.step or not self._is_better(good, anchor):
            return (anchor,)
        return (anchor, self._last_good(good, step))

    def _last_good(self, good: WatchedCheckpoint, step: Step) -> ComparedCheckpoint:
        earlier = {known.step for known in self.history.by_step if known.step < step.number}
        return replace(self._measured(LAST_GOOD, good), candidates=len(earlier))

    def _is_better(self, good: WatchedCheckpoint, anchor: ComparedCheckpoint) -> bool:
        """Return False if a measured checkpoint is known to exceed the anchor by less than the allowed loss."""
        points = [panel.points for panel in good.panels.values() if panel.points is not None]
        if good.anchor != anchor.name or not points or anchor.argument is None:
            return True
        return max(points) >= self._drop_points

    def _anchor_of(self, step: Step, complete: Sequence[Step]) -> ComparedCheckpoint | None:
        if self._anchor is None:
            lowest = self.history.lowest_passed
            return self._measured(ANCHOR, lowest) if lowest is not None and lowest.step < step.number else None
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
            role=ANCHOR, name=step_name(number), step=number, argument=str(paths[0]) if paths else None
        )

    def _measured(self, role: str, measurement: WatchedCheckpoint) -> ComparedCheckpoint:
        """Return a measured checkpoint: by its report, which knows its answers, or else by its directory."""
        checkpoint = Path(measurement.checkpoint) if os.path.isdir(measurement.checkpoint) else None
        report = None if self._needs_checkpoint or not os.path.isfile(measurement.report) else measurement.report
        return ComparedCheckpoint(
            role=role,
            name=step_name(measurement.step),
            step=measurement.step,
            argument=report or (None if checkpoint is None else str(checkpoint)),
            checkpoint=checkpoint,
        )


def check_anchor(anchor: str, directory: Path, out: Path, options: Sequence[str], steps: StepReader) -> None:
    """Raise ValueError, with one line, unless --anchor names a step of the directory, a checkpoint or a report.

    A step whose checkpoint is gone may still have been measured: then it is in the history in `out`. `options` are
    those of the suite.
    """
    if anchor.isdecimal():
        known = {step.number for step in steps.find(directory).steps}
        if int(anchor) not in known and History(out).latest(int(anchor)) is None:
            raise ValueError(f"--anchor: no step {anchor} in {directory}; give a step that is there, or a path")
        return
    path = expanded(anchor)
    if path.suffix != ".json":
        fingerprint_of(path, option="--anchor", options=options)
        return
    try:
        read_report_file(path)
    except ReportFileError as error:
        raise ValueError(f"--anchor: {error}") from error
