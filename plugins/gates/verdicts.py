"""Every gate's verdict, from the planned cases and what came back for them.

A gate looks at what was selected, not at what arrived. A case that failed or never came back is an
error; one that was not selected leaves the gate "not measured". Neither is ever averaged over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fixtures.lengths import format_length
from fixtures.records import Case, CaseResult, Verdict, VerdictWord
from plugins.gates.effective_length import (
    contiguous_effective_length,
    effective_length,
    effective_length_label,
    weighted_average,
)
from plugins.gates.statistics import mean_interval
from plugins.gates.thresholds import Gate, Reference, Thresholds


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A run as the gates see it: what was selected, what came back, and the yardstick that applies.

    `lengths` are those of the whole run, also where -k left their cases out. `suite_tasks` are all
    tasks of the suite: a gate on the suite or on an aspect needs each of them. `claimed_length` is
    None where the checkpoint does not say.
    """

    lengths: tuple[int, ...]
    cases: Sequence[Case]
    results: Mapping[str, CaseResult]
    reference: Reference
    suite_tasks: Mapping[str, str]
    claimed_length: int | None


@dataclass(frozen=True, slots=True)
class Panel:
    """The cases of some tasks at one length; score is their mean, 0 to 100, or None with the reason."""

    score: float | None
    interval: tuple[float, float] | None
    samples: int
    of: int
    word: VerdictWord
    reason: str


def verdicts(thresholds: Thresholds, measured: Measured) -> tuple[Verdict, ...]:
    """All gates in the order of the file, a level gate once for each length."""
    return tuple(verdict for gate in thresholds.gates for verdict in _gate_verdicts(gate, measured))


def panel(measured: Measured, tasks: Sequence[str], length: int) -> Panel:
    """The mean over these tasks at one length; an error or a missing case leaves it unmeasured."""
    cases = {case.task: case for case in measured.cases if case.length == length and case.task in tasks}
    results = [measured.results[case.id] for case in cases.values() if case.id in measured.results]
    samples, of = sum(len(result.outcomes) for result in results), sum(case.samples for case in cases.values())
    failed = next((result for result in results if result.score is None), None)
    if failed is not None:
        return Panel(None, None, samples, of, "error", f"{failed.case.id}: {failed.error or 'samples are missing'}")
    lost = next((case for case in cases.values() if case.id not in measured.results), None)
    if lost is not None:
        return Panel(None, None, samples, of, "error", f"{lost.id}: no result came back")
    missing = [task for task in tasks if task not in cases]
    if missing:
        return Panel(None, None, samples, of, "not measured", f"{_some(missing)} not run at {format_length(length)}")
    mean = sum(result.score or 0.0 for result in results) / len(results)
    low, high = mean_interval(min(1.0, mean), samples)
    return Panel(100 * mean, (100 * low, 100 * high), samples, of, "pass", "")


def _gate_verdicts(gate: Gate, measured: Measured) -> list[Verdict]:
    if gate.kind == "level":
        lengths = [length for length in measured.lengths if not gate.lengths or length in gate.lengths]
        untested = [length for length in gate.lengths if length not in measured.lengths]
        return [_level(gate, measured, length) for length in sorted([*lengths, *untested])]
    return [_over_lengths(gate, measured)]


def _level(gate: Gate, measured: Measured, length: int) -> Verdict:
    required = _required(gate, measured)
    found = panel(measured, _tasks(gate, measured), length)
    word, reason = found.word, found.reason
    if found.score is not None:
        word = "pass" if found.score > required else "fail"
        reason = f"{found.score:.1f} is {'above' if word == 'pass' else 'not above'} {required:g}"
    return Verdict(
        name=f"{gate.name} at {format_length(length)}",
        kind="level",
        length=length,
        measured=found.score,
        interval=found.interval,
        required=required,
        samples=found.samples,
        of=found.of,
        verdict=word,
        blocking=gate.blocking,
        reason=reason,
    )


def _over_lengths(gate: Gate, measured: Measured) -> Verdict:
    panels = {length: panel(measured, _tasks(gate, measured), length) for length in measured.lengths}
    scores = {length: found.score for length, found in panels.items() if found.score is not None}
    samples, of = sum(found.samples for found in panels.values()), sum(found.of for found in panels.values())
    threshold = _required(gate, measured)
    by_length = gate.kind == "effective_length"
    required = float(_required_length(gate, measured)) if by_length else threshold
    value: float | None = None
    # An error says more than a case that was left out.
    without = sorted((found for found in panels.values() if found.score is None), key=lambda found: found.word)
    unmeasured = next(iter(without), None)
    if unmeasured is not None:
        word, reason = unmeasured.word, unmeasured.reason
    elif by_length and required > max(measured.lengths):
        word, reason = "not measured", f"asks for {int(required)}, the longest tested is {max(measured.lengths)}"
        value = effective_length(scores, threshold)
    elif by_length:
        value = effective_length(scores, threshold)
        word = "pass" if value is not None and value >= required else "fail"
        reason = f"{effective_length_label(scores, threshold)} above {threshold:g}, asks for {int(required)}"
        contiguous = contiguous_effective_length(scores, threshold)
        if contiguous != value:
            reason += f"; not monotone: every length passes up to {contiguous or 'none'} only"
    else:
        value = weighted_average(scores, rising=gate.rising)
        word = "pass" if value > required else "fail"
        reason = f"{value:.1f} is {'above' if word == 'pass' else 'not above'} {required:g}"
    return Verdict(
        name=gate.name,
        kind=gate.kind,
        length=None,
        measured=value,
        interval=None,
        required=required,
        samples=samples,
        of=of,
        verdict=word,
        blocking=gate.blocking,
        reason=reason,
    )


def _required(gate: Gate, measured: Measured) -> float:
    return gate.above if gate.above is not None else measured.reference.scores[gate.aspect or "mean"]


def _required_length(gate: Gate, measured: Measured) -> int:
    """What the gate asks for; a claim asks for the longest tested length that it covers."""
    if gate.at_least is not None:
        return gate.at_least
    claimed = measured.claimed_length or max(measured.lengths)
    return max((length for length in measured.lengths if length <= claimed), default=min(measured.lengths))


def _tasks(gate: Gate, measured: Measured) -> tuple[str, ...]:
    if gate.tasks:
        return gate.tasks
    return tuple(task for task, aspect in measured.suite_tasks.items() if gate.aspect in (None, aspect))


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more tasks"
