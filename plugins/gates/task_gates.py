"""The gates that tasks files ask for: a score that the mean of one set of questions must exceed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from plugins.gates.thresholds import Gate, Thresholds, ThresholdsError


def with_task_gates(thresholds: Thresholds, required: Mapping[str, float]) -> Thresholds:
    """Return the thresholds with a gate for every task in `required`, which maps tasks to scores from 0 to 100.

    Raises ThresholdsError if a gate already has the name of a task.
    """
    names = {gate.name for gate in thresholds.gates}
    for task in required:
        if task in names:
            raise ThresholdsError(f"--tasks: above of {task!r}: the thresholds have a gate of that name; remove one")
    gates = tuple(_gate(task, above) for task, above in required.items())
    return replace(thresholds, gates=(*thresholds.gates, *gates))


def _gate(task: str, above: float) -> Gate:
    return Gate(
        name=task, kind="level", aspect=None, category=None, tasks=(task,), above=above, blocking=True, lengths=(),
        at_least=None, rising=False,
    )  # fmt: skip
