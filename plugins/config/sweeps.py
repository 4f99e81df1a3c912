"""The phase sweeps that the gates of a run ask for."""

from __future__ import annotations

from fixtures.records import Options
from fixtures.tasks.phases import SWEPT_TASKS, swept_task
from plugins.gates.thresholds import Thresholds, ThresholdsError


def sweep_names(options: Options, thresholds: Thresholds) -> tuple[str, ...]:
    """Return the names of the sweeps of all gates on the worst phase; raise ThresholdsError for other tasks."""
    names = {name: gate.name for gate in thresholds.gates if gate.moduli for name in gate.tasks}
    for name, gate in names.items():
        if (task := swept_task(name)) not in SWEPT_TASKS:
            raise ThresholdsError(
                f"--thresholds: {options.thresholds}: [[gate]] {gate!r}: the needle of {task!r} cannot be moved; name "
                f"tasks of {', '.join(SWEPT_TASKS)}"
            )
    return tuple(names)
