"""The tasks files of a run: their paths, and the gates that they ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from plugins.gates.thresholds import Gate, Thresholds, ThresholdsError


def tasks_files(given: str | None, directory: Path) -> tuple[str, ...]:
    """Return the absolute paths of the files that --tasks names, separated by commas; raises QuestionsError."""
    if given is None:
        return ()
    # Imported only where it is needed, because most runs have no tasks file.
    from fixtures.tasks.questions.read_tasks import tasks_path

    return tuple(dict.fromkeys(str(tasks_path(name.strip(), directory)) for name in given.split(",")))


def with_task_gates(thresholds: Thresholds, files: Sequence[str]) -> Thresholds:
    """Return the thresholds with a gate for every set of questions that requires a score (`above`).

    Raises ThresholdsError if a gate already has the name of the set.
    """
    if not files:
        return thresholds
    from fixtures.tasks.questions.load import gate_thresholds

    names = {gate.name for gate in thresholds.gates}
    required = gate_thresholds(files)
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
