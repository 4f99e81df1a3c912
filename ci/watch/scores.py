"""The scores of watched checkpoints, their changes against the anchor, and the noise of these from step to step.

A verdict that is clear early rests on few samples, so the scores of two checkpoints may be from different ones. A
change is the difference from the anchor on samples that both have answered; changes can be compared.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

from longctx.ci.watch.history import Change, WatchedCheckpoint, step_name
from longctx.fixtures.lengths import format_length
from longctx.fixtures.records import family_of
from longctx.fixtures.records.report import JsonReport


def mean_scores(report: JsonReport) -> dict[str, float]:
    """Return the mean score of every family at every length, 0 to 100, over the cases of a report."""
    scores = {case.id: case.score for case in report.cases if case.score is not None}
    return {name: _mean(values) for name, values in _by_panel(report, scores).items()}


def sample_counts(report: JsonReport) -> dict[str, int]:
    """Return the number of samples under each of those means."""
    counts = {case.id: case.samples for case in report.cases if case.score is not None}
    return {name: round(math.fsum(values)) for name, values in _by_panel(report, counts).items()}


def changes(report: JsonReport) -> dict[str, Change]:
    """Return the difference from the baseline for every family at every length; empty without a baseline."""
    points: dict[str, float] = {}
    pairs: dict[str, float] = {}
    for name, case in (report.regression.cases if report.regression else {}).items():
        if case.difference is not None:
            points[name], pairs[name] = case.difference, case.pairs
    counts = _by_panel(report, pairs)
    return {
        name: Change(points=_mean(values), pairs=round(math.fsum(counts[name])))
        for name, values in _by_panel(report, points).items()
    }


def _by_panel(report: JsonReport, values: Mapping[str, float]) -> dict[str, list[float]]:
    """Return values by case as lists by family and length, such as `ruler 4k`."""
    panels: dict[str, list[float]] = {}
    for case in report.cases:
        if case.id in values:
            name = f"{family_of(case.suite, case.category)} {format_length(case.length)}"
            panels.setdefault(name, []).append(values[case.id])
    return panels


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


# The noise is that of so many last steps; fewer than the second number show none.
STEPS, MIN_STEPS = 8, 3


def noise(values: Sequence[float]) -> float | None:
    """Return the standard deviation of a value, in points, from the differences of consecutive steps.

    Differences leave out a slow trend, and vary twice as much as a value. Returns None for fewer than MIN_STEPS steps.
    """
    last = values[-STEPS:]
    if len(last) < MIN_STEPS:
        return None
    differences = [after - before for before, after in itertools.pairwise(last)]
    return math.sqrt(math.fsum(difference**2 for difference in differences) / (2 * len(differences)))


def trend(measurements: Iterable[WatchedCheckpoint], anchor: str | None) -> list[Mapping[str, float]]:
    """Return the changes of checkpoints against this anchor, in points, by family and length; 0 for the anchor itself.

    Each is a difference on the same samples, so that they can be compared, as scores on different numbers of samples
    cannot. Failed checkpoints are left out: a loss that was shown is no noise.
    """
    changes: list[Mapping[str, float]] = []
    for known in measurements:
        if known.verdict in ("fail", "gone") or anchor is None:
            continue
        if step_name(known.step) == anchor:
            changes.append(dict.fromkeys(known.scores, 0.0))
        elif known.anchor == anchor:
            changes.append({name: change.points for name, change in known.changes.items()})
    return changes


def score_lines(measurement: WatchedCheckpoint, earlier: Iterable[WatchedCheckpoint]) -> list[str]:
    """Return a line for every score: its samples, and the change against the anchor with its noise over earlier steps.

    Both are on the same samples.
    """
    before = trend(earlier, measurement.anchor)
    lines = []
    for name, score in measurement.scores.items():
        samples, change = measurement.samples.get(name), measurement.changes.get(name)
        line = f"{name}: {score:.1f}" + ("" if samples is None else f" on {samples} samples")
        if change is not None:
            line += f"; {change.points:+.1f} against the anchor on {change.pairs} pairs"
            known = [changes[name] for changes in before if name in changes][-STEPS:]
            spread = noise(known)
            line += "" if spread is None else f", noise ±{spread:.1f} over the last {len(known)} steps"
        lines.append(line)
    return lines
