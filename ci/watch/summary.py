"""The lines that end a watch: the verdicts, the checkpoints left out, and the rate of wrong failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ci.watch.history import Measurement
from ci.watch.measure import SEVERITY
from ci.watch.screen import screen_summary

MAX_STEPS_SHOWN = 10


def summary_lines(
    measurements: Sequence[Measurement], waiting: Mapping[str, str], *, horizon: int, confidence: float
) -> list[str]:
    """Return the summary of the measurements, which are in the order of their steps."""
    steps: dict[str, list[int]] = {}
    for measurement in measurements:
        steps.setdefault(measurement.verdict, []).append(measurement.step)
    counts = ", ".join(_count(verdict, steps[verdict]) for verdict in reversed(SEVERITY) if verdict in steps)
    gpu_minutes = sum(measurement.gpu_seconds for measurement in measurements) / 60
    mean = f", {gpu_minutes / len(measurements):.1f} GPU minutes a checkpoint" if measurements else ""
    return [
        f"{len(measurements)} checkpoint{'s' * (len(measurements) != 1)}: {counts or 'nothing measured'}{mean}",
        *screen_summary(measurements),
        *(f"not measured: {name}: {reason}" for name, reason in waiting.items()),
        f"a gate fails by mistake in at most {100 * (1 - confidence):g} % of runs of {horizon} checkpoints",
    ]


def _count(verdict: str, steps: Sequence[int]) -> str:
    if verdict == "pass":
        return f"{len(steps)} {verdict}"
    more = f" and {len(steps) - MAX_STEPS_SHOWN} more" if len(steps) > MAX_STEPS_SHOWN else ""
    return f"{len(steps)} {verdict} (step {', '.join(map(str, steps[:MAX_STEPS_SHOWN]))}{more})"
