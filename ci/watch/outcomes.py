"""The parts of a report on one checkpoint that a watch keeps: the outcome of each case, and scores."""

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Literal

from msgspec import Struct, structs

from longctx.fixtures.lengths import format_length
from longctx.fixtures.records import family_of
from longctx.fixtures.records.report import CaseComparison, JsonReport, ReportCase, ReportGate
from longctx.fixtures.records.report_parts import Interval

# Gates whose required value is a score of each case.
LEVELS = ("level", "category")
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


def case_outcomes(report: JsonReport) -> dict[str, CaseOutcome]:
    compared = {} if report.regression is None else report.regression.cases
    cases = {case.id: case for case in report.cases}
    states: dict[str, State] = dict.fromkeys(cases, "pass")
    # The scores that bad cases should reach; None if they have lost against the baseline.
    required: dict[str, float | None] = {}
    failed: dict[str, list[str]] = {name: [] for name in cases}
    for case in report.cases:
        if case.error or case.score is None:
            states[case.id] = "undecided"
        elif case.fails:
            states[case.id] = "fail"
            is_below = case.floor is not None and case.score < case.floor
            required[case.id] = case.floor if is_below else None
    for gate in report.gates:
        members = [case for case in gate.cases if case in cases]
        has_failed = gate.fails and gate.verdict == "fail"
        is_open = gate.blocking and gate.verdict not in ("pass", "not measured")
        state, bad = _bad_cases(gate, members, cases, compared) if has_failed else ("undecided", [])
        for name in members if has_failed or is_open else ():
            own = state if name in bad else "undecided"
            states[name] = worst_state(states[name], own)
        for name in bad:
            failed[name].append(gate.name)
            required[name] = required.get(name, gate.required) if gate.kind in LEVELS else None
    outcomes = {}
    for name, case in cases.items():
        difference = _difference(case, compared.get(name), required.get(name))
        outcomes[name] = structs.replace(difference, state=states[name], gates=tuple(failed[name]))
    return outcomes


def worst_state(*states: State) -> State:
    return max(states, key=STATES.index)


def _bad_cases(
    gate: ReportGate, members: list[str], cases: Mapping[str, ReportCase], compared: Mapping[str, CaseComparison]
) -> tuple[State, list[str]]:
    """Return the cases that a gate failed for: those shown to be bad, else those that have lost, else all of them."""
    shown = [name for name in members if cases[name].verdict == "fail"]
    if shown or len(members) == 1:
        return "fail", shown or members
    lost = []
    for name in members:
        score = cases[name].score or 0.0
        difference = compared[name].difference if name in compared else None
        has_lost = score < gate.required if gate.kind in LEVELS else (difference or 0.0) < 0
        if has_lost:
            lost.append(name)
    return "lost", lost or members


def _difference(case: ReportCase, comparison: CaseComparison | None, required: float | None) -> CaseOutcome:
    """Return an outcome with the points of a case; its state is set by the gates."""
    score, interval = case.score, case.interval
    if required is None and comparison is not None and comparison.pairs:
        pairs, better, worse = comparison.pairs, comparison.better, comparison.worse
        variance = max(0.0, better + worse - (better - worse) ** 2 / pairs)
        return CaseOutcome(
            length=case.length, state="undecided", points=comparison.difference, interval=comparison.interval,
            pairs=pairs, error=100 * math.sqrt(variance) / pairs,
        )  # fmt: skip
    if required is None or score is None or not case.samples:
        return CaseOutcome(length=case.length, state="undecided")
    return CaseOutcome(
        length=case.length, state="undecided", points=score - required, against="threshold",
        interval=None if interval is None else (interval[0] - required, interval[1] - required), pairs=case.samples,
        error=math.sqrt(score * (100 - score) / case.samples),
    )  # fmt: skip


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


def panel_scores(report: JsonReport, *, is_compared: bool) -> dict[str, PanelScore]:
    """Return the scores by family and length; `is_compared` is True for a report on a comparison with the anchor."""
    compared = report.regression.cases if is_compared and report.regression else {}
    panels: dict[str, list[ReportCase]] = {}
    for case in report.cases:
        if case.score is not None:
            name = f"{family_of(case.suite, case.category)} {format_length(case.length)}"
            panels.setdefault(name, []).append(case)
    scores = {}
    for name, cases in panels.items():
        known = [compared[case.id] for case in cases if case.id in compared]
        points = [case.difference for case in known if case.difference is not None]
        scores[name] = PanelScore(
            score=fmean(case.score or 0.0 for case in cases),
            samples=sum(case.samples for case in cases),
            points=fmean(points) if points else None,
            pairs=sum(case.pairs for case in known),
        )
    return scores
