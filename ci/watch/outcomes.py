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
    failed: dict[str, list[str]] = {}
    for case in report.cases:
        if case.error or case.score is None:
            states[case.id] = "undecided"
        elif case.fails:
            states[case.id] = "fail"
            required[case.id] = case.floor if case.floor is not None and case.score < case.floor else None
    for gate in report.gates:
        members = [case for case in gate.cases if case in cases]
        if gate.fails and gate.verdict == "fail":
            state, bad = _bad_cases(gate, members, cases, compared)
            for name in members:
                states[name] = max(states[name], state if name in bad else "undecided", key=STATES.index)
            for name in bad:
                failed.setdefault(name, []).append(gate.name)
                required[name] = required.get(name, gate.required) if gate.kind in LEVELS else None
        elif gate.blocking and gate.verdict not in ("pass", "not measured"):
            for name in members:
                states[name] = max(states[name], "undecided", key=STATES.index)
    return {
        name: structs.replace(
            _difference(case, compared.get(name), required.get(name)),
            state=states[name],
            gates=tuple(failed.get(name, ())),
        )
        for name, case in cases.items()
    }


def _bad_cases(
    gate: ReportGate, members: list[str], cases: Mapping[str, ReportCase], compared: Mapping[str, CaseComparison]
) -> tuple[State, list[str]]:
    """Return the cases that a gate failed for: those shown to be bad, else those that have lost, else all of them."""
    if shown := [name for name in members if cases[name].verdict == "fail"]:
        return "fail", shown
    if len(members) == 1:
        return "fail", members
    if gate.kind in LEVELS:
        return "lost", [name for name in members if (cases[name].score or 0.0) < gate.required] or members
    lost = [name for name in members if name in compared and (compared[name].difference or 0.0) < 0]
    return "lost", lost or members


def _difference(case: ReportCase, comparison: CaseComparison | None, required: float | None) -> CaseOutcome:
    """Return an outcome with the points of a case; its state is set by the gates."""
    if required is None and comparison is not None and comparison.difference is not None and comparison.pairs:
        pairs, net = comparison.pairs, comparison.better - comparison.worse
        error = 100 * math.sqrt(max(0.0, comparison.better + comparison.worse - net**2 / pairs)) / pairs
        return CaseOutcome(
            length=case.length, state="undecided", points=round(comparison.difference, 2),
            interval=_rounded(comparison.interval), pairs=pairs, error=round(error, 2),
        )  # fmt: skip
    if required is None or case.score is None or not case.samples:
        return CaseOutcome(length=case.length, state="undecided")
    interval = None if case.interval is None else (case.interval[0] - required, case.interval[1] - required)
    return CaseOutcome(
        length=case.length, state="undecided", points=round(case.score - required, 2), against="threshold",
        interval=_rounded(interval), pairs=case.samples,
        error=round(math.sqrt(case.score * (100 - case.score) / case.samples), 2),
    )  # fmt: skip


def _rounded(interval: Interval | None) -> Interval | None:
    return None if interval is None else (round(interval[0], 2), round(interval[1], 2))


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
            panels.setdefault(f"{family_of(case.suite, case.category)} {format_length(case.length)}", []).append(case)
    scores = {}
    for name, cases in panels.items():
        known = [compared[case.id] for case in cases if case.id in compared]
        points = [case.difference for case in known if case.difference is not None]
        scores[name] = PanelScore(
            score=fmean(case.score or 0.0 for case in cases),
            samples=sum(case.samples for case in cases),
            points=fmean(points) if points else None,
            pairs=sum(case.pairs for case in known if case.difference is not None),
        )
    return scores
