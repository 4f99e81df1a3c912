"""The scores of a checkpoint and their noise: how much they moved from one measured step to the next."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ci.watch.history import Measurement
from fixtures.lengths import format_length
from fixtures.records import family_of

# The noise is that of so many last steps; fewer than the second number show none.
STEPS, MIN_STEPS = 8, 3


def panel_scores(report: Mapping[str, Any]) -> dict[str, float]:
    """Return the mean score of every family at every length, 0 to 100, over the cases of a report."""
    scores: dict[str, list[float]] = {}
    for case in report["cases"]:
        if case["score"] is not None:
            name = f"{family_of(case['suite'], case['category'])} {format_length(case['length'])}"
            scores.setdefault(name, []).append(case["score"])
    return {name: math.fsum(values) / len(values) for name, values in scores.items()}


def noise(scores: Sequence[float]) -> float | None:
    """Return the standard deviation of a score, in points, from the differences of consecutive steps.

    Differences leave out a slow trend, and vary twice as much as a score. Returns None for fewer than MIN_STEPS steps.
    """
    last = scores[-STEPS:]
    if len(last) < MIN_STEPS:
        return None
    differences = [after - before for before, after in itertools.pairwise(last)]
    return math.sqrt(math.fsum(difference**2 for difference in differences) / (2 * len(differences)))


def steady_scores(measurements: Iterable[Measurement]) -> list[Mapping[str, float]]:
    """Return the scores of the checkpoints that did not fail: a loss that was shown is no noise."""
    return [measurement.scores for measurement in measurements if measurement.verdict != "fail"]


def score_lines(scores: Mapping[str, float], earlier: Sequence[Mapping[str, float]]) -> list[str]:
    """Return a line for every score, with the noise over the earlier steps that have it."""
    lines = []
    for name, score in scores.items():
        before = [known[name] for known in earlier if name in known][-STEPS:]
        spread = noise(before)
        beside = "" if spread is None else f", noise ±{spread:.1f} over the last {len(before)} steps"
        lines.append(f"{name}: {score:.1f}{beside}")
    return lines
