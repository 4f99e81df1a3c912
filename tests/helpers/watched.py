"""Measurements of a watch of which a test states only what it is about."""

from collections.abc import Mapping

from msgspec import structs

from longctx.ci.watch.history import CaseOutcome, State, Verdict, WatchedCheckpoint

ANCHOR_STEP = 1
PAIRS = 48


def case_id(task: str) -> str:
    return f"test_ruler[{task}-4k]"


def outcome(points: float, state: State | None = None, *, pairs: int = PAIRS) -> CaseOutcome:
    """Return the outcome of a case that passes unless it has lost ten points or more."""
    state = state or ("fail" if points <= -10 else "pass")
    return CaseOutcome(
        length=4096, state=state, points=points, interval=(points - 5, points + 5), pairs=pairs, error=3.0,
        gates=("regression at 4k",) if state in ("fail", "lost") else (),
    )  # fmt: skip


def measured(
    step: int, verdict: Verdict | None = None, *, fingerprint: str = "", cases: Mapping[str, CaseOutcome] | None = None,
    **points: float,
) -> WatchedCheckpoint:  # fmt: skip
    """Return a measurement; `points` are the differences of tasks from the anchor."""
    outcomes = {case_id(task): outcome(each) for task, each in points.items()}
    outcomes |= {case_id(task): each for task, each in (cases or {}).items()}
    has_lost = any(each.has_lost for each in outcomes.values())
    return WatchedCheckpoint(
        step=step, checkpoint=f"/run/step-{step}", fingerprint=fingerprint or f"f{step}",
        verdict=verdict or ("fail" if has_lost else "pass"),
        failed=("regression at 4k: lost",) if has_lost else (), report=f"/out/step-{step}.json",
        gpu_seconds=60.0, ended="2026-11-20T10:00:00+00:00",
        anchor=None if step == ANCHOR_STEP else f"step {ANCHOR_STEP}", cases=outcomes,
        compared_with=None if step == ANCHOR_STEP else f"/run/step-{ANCHOR_STEP}",
    )  # fmt: skip


def deleted(known: WatchedCheckpoint) -> WatchedCheckpoint:
    """Return a measurement as the history has it once its checkpoint is deleted."""
    return structs.replace(known, lost="deleted")


def rewritten(known: WatchedCheckpoint) -> WatchedCheckpoint:
    """Return a measurement as the history has it once another checkpoint is in its place, before that is measured."""
    return structs.replace(known, lost="replaced")
