"""The two ends of a search: what was lost between them, on which cases, and whether they are what they were called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ci.bisect.compare import Bounds, Suite, comparison
from ci.checkpoint_dirs import Step
from plugins.gates.thresholds import Gate

# Enough to see which case lost most; how much that is, all its samples say.
SURVEY_SAMPLES = 50


class EndsError(Exception):
    """Ends between which nothing can be searched. `code` is the command's exit code."""

    def __init__(self, code: int, line: str):
        super().__init__(line)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """A loss shown on all samples of `cases`. `lost`, `interval` (of the difference) and scores are points."""

    cases: tuple[str, ...]
    lost: float
    interval: tuple[float, float]
    pairs: int
    score_good: float
    score_bad: float
    report: Mapping[str, Any]
    survey: Mapping[str, Any] | None = None

    @property
    def told(self) -> str:
        low, high = self.interval
        return (
            f"{described(self.cases)}: {self.score_good:.1f} to {self.score_bad:.1f}, "
            f"{-self.lost:+.1f} [{low:+.1f}, {high:+.1f}] over {self.pairs} pairs"
        )


def described(cases: Sequence[str]) -> str:
    return cases[0] if len(cases) == 1 else f"{len(cases)} cases, {cases[0]} and others"


def worst_cases(suite: Suite, good: Step, bad: Step, gate: Gate | None, confidence: float) -> tuple[
    tuple[str, ...], Mapping[str, Any]
]:  # fmt: skip
    """The case that lost most in a short look at all of them, or the gate's cases at the length that lost most.

    Raises EndsError where nothing could be compared.
    """
    samples = min(suite.samples, SURVEY_SAMPLES)
    ran = suite.compare(bad.path, good.path, Bounds(confidence=confidence), samples=samples, full=True)
    if ran.report is None:
        raise EndsError(4 if ran.code == 4 else 3, f"the ends cannot be compared: {ran.reason}")
    found = ran.report["regression"]["cases"]
    lost = {name: each["difference"] for name, each in found.items() if each["difference"] is not None}
    if not lost:
        raise EndsError(3, f"the ends cannot be compared: {_first_error(ran.report)}")
    if gate is None:
        return (min(lost, key=lambda name: (lost[name], name)),), ran.report
    by_length: dict[int, list[str]] = {}
    for case in ran.report["cases"]:
        if case["id"] in lost and _is_of(gate, case):
            by_length.setdefault(case["length"], []).append(case["id"])
    if not by_length:
        raise EndsError(4, f"--gate: no case of {gate.name!r} was run; see --lengths, --suite and -k")
    worst = min(by_length.values(), key=lambda names: sum(lost[name] for name in names) / len(names))
    return tuple(worst), ran.report


def compare_ends(
    suite: Suite, good: Step, bad: Step, cases: tuple[str, ...], confidence: float, survey: Mapping[str, Any] | None
) -> Endpoints:
    """Both ends on all samples of the cases; raises EndsError where the bad one is not shown to be worse."""
    ran = suite.compare(bad.path, good.path, Bounds(confidence=confidence), cases=cases, full=True)
    if ran.report is None:
        raise EndsError(4 if ran.code in (4, 5) else 3, f"the ends cannot be compared: {ran.reason}")
    gate = comparison(ran.report)
    if gate is None or gate["measured"] is None:
        raise EndsError(3, f"the ends cannot be compared: {gate['reason'] if gate else 'no case was run'}")
    difference, (low, high) = gate["measured"], gate["interval"]
    scores = [case["score"] for case in ran.report["cases"] if case["score"] is not None]
    after = sum(scores) / len(scores)
    before = after - difference
    told = f"{described(cases)}: {before:.1f} to {after:.1f}, {difference:+.1f} [{low:+.1f}, {high:+.1f}]"
    if low > 0:
        raise EndsError(
            1, f"--bad {bad.name} is better than --good {good.name} ({told}); are they the other way round?"
        )
    if high >= 0:
        if before < 50:
            fault = f"--good {good.name} is no better than --bad {bad.name} ({told}); give an earlier --good"
        else:
            fault = f"--bad {bad.name} is not shown to be worse than --good {good.name} ({told})"
        raise EndsError(1, f"{fault}; nothing to search")
    return Endpoints(
        cases=cases,
        lost=-difference,
        interval=(low, high),
        pairs=gate["samples"],
        score_good=before,
        score_bad=after,
        report=ran.report,
        survey=survey,
    )


def _is_of(gate: Gate, case: Mapping[str, Any]) -> bool:
    if gate.lengths and case["length"] not in gate.lengths:
        return False
    if gate.tasks:
        return case["task"] in gate.tasks
    suite, category = ("ruler", gate.aspect) if gate.category is None else ("helmet", gate.category)
    return bool(case["suite"] == suite and category in (None, case["category"]))


def _first_error(report: Mapping[str, Any]) -> str:
    return next((f"{case['id']}: {case['error']}" for case in report["cases"] if case["error"]), "no case has a pair")
