"""From the measurements of a watch to episodes: failing steps with one cause, in the order of the steps.

Pure: the same measurements have the same episodes, in any order. A step that fails opens an episode
for the cases that have lost there. Later failing steps belong to it as long as they fail the same cases, and it ends at
the first step that passes them all. Steps that are undecided, or fail for other cases, say nothing of it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

from longctx.ci.watch.history import ACCEPTED, WatchedCheckpoint, step_name
from longctx.ci.watch.outcomes import CaseOutcome
from longctx.ci.watch.scores import noise

Kind = Literal["loss", "gates", "engine", "underpowered", "error"]
"""What fails: cases; gates of which no case is known; the engine, checked by --invariance; the comparison, whose
baseline is gone; or the measurement itself."""
ENGINE_LINE = "invariance: "
# A case has lost further than at an earlier step if it is so many standard errors lower. Of an unchanged case, 1 in 740
# steps is.
FURTHER_ERRORS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A measured checkpoint."""

    step: int
    checkpoint: str
    """Its path."""
    fingerprint: str
    report: str
    """Path of its JSON report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostCase:
    """A case with what it lost at the first step of the episode at which it has lost."""

    id: str
    length: int
    """In tokens."""
    gates: tuple[str, ...]
    """The failed gates in which it has lost."""
    step: int
    points: float | None
    """Negative for a loss; None if it is not known."""
    against: Literal["baseline", "threshold"]
    interval: tuple[float, float] | None
    pairs: int
    error: float | None
    """Standard error of the points from the samples alone."""
    noise: float | None
    """Standard deviation from step to step before the episode; None if too few steps were measured before it."""

    @property
    def spread(self) -> float | None:
        """The noise or, where it is unknown, the standard error, in points; at least the points of one sample."""
        if self.points is None or not self.pairs:
            return None
        return max(self.error or 0.0 if self.noise is None else self.noise, 100 / self.pairs)

    @property
    def severity(self) -> float:
        """Points lost over the spread; 0 if they are not known."""
        return 0.0 if self.points is None or self.spread is None else -self.points / self.spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Failing steps with one cause."""

    kind: Kind
    cases: tuple[LostCase, ...]
    """The case that lost most over its own spread first; empty unless the kind is a loss."""
    steps: tuple[MeasuredStep, ...]
    """The measured steps that fail, the first bad one first."""
    last_good: MeasuredStep | None
    """The nearest measured step before them at which all of their cases pass; None if there is none."""
    reasons: tuple[str, ...]
    """The lines of the first bad step about its failed gates."""
    anchor: str | None
    """The anchor that the first bad step was compared with."""
    compared_with: str | None
    """The checkpoint, or else the report, that the first bad step was compared with; None without one."""
    fixed_by: int | None = None
    """The first later step that passes all of its cases; None if none does."""
    is_lost: bool = False
    """True if it is not fixed, and none of its failed checkpoints is on disk any more."""

    @property
    def first(self) -> MeasuredStep:
        """The first bad step."""
        return self.steps[0]

    @property
    def severity(self) -> float:
        """The severity of its worst case."""
        return max((case.severity for case in self.cases), default=0.0)


@dataclass(slots=True)
class _Building:
    """An episode while the measurements are read."""

    kind: Kind
    before: Sequence[WatchedCheckpoint]
    """The measurements of earlier steps."""
    steps: list[WatchedCheckpoint] = field(default_factory=list)
    cases: dict[str, WatchedCheckpoint] = field(default_factory=dict)
    """The cases with the first step at which each has lost."""
    fixed_by: int | None = None

    def finish(self) -> Episode:
        first = self.steps[0]
        lost = [_lost_case(name, at, self.before) for name, at in self.cases.items()]
        good = (known for known in reversed(self.before) if _passes(known, self.kind, self.cases))
        return Episode(
            kind=self.kind,
            cases=tuple(sorted(lost, key=lambda case: (-case.severity, case.id))),
            steps=tuple(map(_step_of, self.steps)),
            last_good=next(map(_step_of, good), None),
            reasons=first.failed,
            anchor=first.anchor,
            compared_with=first.compared_with,
            fixed_by=self.fixed_by,
            is_lost=self.fixed_by is None and all(known.is_gone for known in self.steps),
        )


def episodes(measurements: Sequence[WatchedCheckpoint]) -> list[Episode]:
    """Return the episodes of measurements, which are in the order of their steps."""
    evidence = [known for known in measurements if not known.is_gone or known.is_deleted]
    begun: list[_Building] = []
    for position, known in enumerate(evidence):
        going_on = [episode for episode in begun if episode.fixed_by is None]
        before, kinds = evidence[:position], _kinds(known)
        for kind in kinds:
            if kind == "loss":
                begun += _assign_losses(known, [episode for episode in going_on if episode.kind == "loss"], before)
                continue
            episode = next((candidate for candidate in going_on if candidate.kind == kind), None)
            if episode is None:
                begun.append(episode := _Building(kind=kind, before=before))
            episode.steps.append(known)
        for episode in going_on:
            if known not in episode.steps and _passes(known, episode.kind, episode.cases):
                episode.fixed_by = known.step
    return [episode.finish() for episode in begun]


def _kinds(known: WatchedCheckpoint) -> list[Kind]:
    """Return what fails at a checkpoint."""
    if known.verdict in ACCEPTED:
        return []
    has_lost = any(outcome.has_lost for outcome in known.cases.values())
    kinds: list[Kind] = ["loss"] if has_lost else []
    # Of a deleted checkpoint only its losses still say something about the run.
    if known.verdict in ("error", "underpowered"):
        kinds.append(known.verdict)
    elif known.verdict == "fail" and not has_lost:
        kinds.append("engine" if known.failed and known.failed[0].startswith(ENGINE_LINE) else "gates")
    return kinds


def _assign_losses(
    known: WatchedCheckpoint, going_on: Sequence[_Building], before: Sequence[WatchedCheckpoint]
) -> list[_Building]:
    """Add a failing step to the episodes of its cases; return a new episode for the other cases, or nothing."""
    lost = {name: outcome for name, outcome in known.cases.items() if outcome.has_lost}
    homes = {name: _home(name, outcome, going_on) for name, outcome in lost.items()}
    # Cases of which none is shown to be bad alone are no news where the failure of their gate has an explanation.
    explained = {gate: home for name, home in homes.items() if home is not None for gate in lost[name].gates}
    new = _Building(kind="loss", before=before)
    for name, outcome in lost.items():
        home = homes[name]
        if home is None and outcome.state == "lost":
            home = next((explained[gate] for gate in outcome.gates if gate in explained), None)
        episode = home or new
        episode.cases.setdefault(name, known)
        if known not in episode.steps:
            episode.steps.append(known)
    return [new] if new.steps else []


def _home(name: str, outcome: CaseOutcome, going_on: Sequence[_Building]) -> _Building | None:
    """Return the episode that a case belongs to: the one that has it, or one at which it may have lost as much."""
    for episode in going_on:
        if name in episode.cases:
            return episode
    return next(
        (episode for episode in reversed(going_on) if _may_have_lost(episode.steps[0].cases.get(name), outcome)), None
    )


def _may_have_lost(earlier: CaseOutcome | None, now: CaseOutcome) -> bool:
    """Return False if a case has passed at an earlier step, or has lost less there than now for certain."""
    if earlier is None or earlier.state == "pass":
        return False
    if earlier.points is None or now.points is None:
        return True
    errors = [max(outcome.error or 0.0, 100 / outcome.pairs) for outcome in (earlier, now)]
    return earlier.points - now.points <= FURTHER_ERRORS * math.hypot(*errors)


def _passes(known: WatchedCheckpoint, kind: Kind, cases: Collection[str]) -> bool:
    """Return True if a checkpoint passes what an episode of this kind, with these cases, fails."""
    if kind == "loss":
        return all(name in known.cases and known.cases[name].state == "pass" for name in cases)
    if kind == "gates":
        return known.verdict in ("pass", "inconclusive")
    return known.verdict in (*ACCEPTED, "fail") and kind not in _kinds(known)


def passing_steps(episode: Episode, measurements: Sequence[WatchedCheckpoint]) -> list[MeasuredStep]:
    """Return the steps before an episode that pass all of its cases; the measurements are in the order of steps."""
    names = [case.id for case in episode.cases]
    before = [known for known in measurements if known.step < episode.first.step]
    return [_step_of(known) for known in before if _passes(known, episode.kind, names)]


def _lost_case(name: str, at: WatchedCheckpoint, before: Sequence[WatchedCheckpoint]) -> LostCase:
    outcome = at.cases[name]
    return LostCase(
        id=name, length=outcome.length, gates=outcome.gates, step=at.step, points=outcome.points,
        against=outcome.against, interval=outcome.interval, pairs=outcome.pairs, error=outcome.error,
        noise=case_noise(name, at.anchor, before),
    )  # fmt: skip


def case_points(name: str, anchor: str | None, measurements: Sequence[WatchedCheckpoint]) -> list[tuple[int, float]]:
    """Return the differences of a case from the anchor with their steps, without the steps at which it has lost."""
    points = []
    for known in measurements:
        outcome = known.cases.get(name)
        if anchor is not None and outcome is not None and step_name(known.step) == anchor:
            points.append((known.step, 0.0))
        elif (
            outcome is not None and known.anchor == anchor and not outcome.has_lost
            and outcome.points is not None and outcome.against == "baseline"
        ):  # fmt: skip
            points.append((known.step, outcome.points))
    return points


def case_noise(name: str, anchor: str | None, measurements: Sequence[WatchedCheckpoint]) -> float | None:
    """Return the standard deviation of a case from step to step, in points; None for too few steps."""
    spread = noise([points for _, points in case_points(name, anchor, measurements)])
    return None if spread is None else round(spread, 2)


def _step_of(known: WatchedCheckpoint) -> MeasuredStep:
    return MeasuredStep(
        step=known.step, checkpoint=known.checkpoint, fingerprint=known.fingerprint, report=known.report
    )
