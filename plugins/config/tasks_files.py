"""The checks of --suite and of the tasks files of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fixtures.cases import FILES, is_selected
from fixtures.records import Case, Options
from fixtures.tasks import SUITES, TASKS, required_scores
from plugins.config.invocation import ConfigError
from plugins.config.materials import Materials


def check_suite(options: Options, materials: Materials) -> None:
    """Raise ConfigError if no task belongs to the suite, or none of the tasks files does."""
    tasks = [task for task in materials.tasks.values() if is_selected(task, options.suite)]
    own = [task for task in materials.tasks.values() if task.version is not None]
    if not tasks:
        names = dict.fromkeys((*SUITES, *(task.suite for task in own), "all", FILES))
        raise ConfigError(f"--suite: unknown {options.suite!r}; use one of {', '.join(names)}")
    if own and not any(task.version is not None for task in tasks):
        raise ConfigError(
            f"--tasks: --suite {options.suite} leaves out its tasks; leave out --suite, or use --suite {own[0].suite}"
        )


def check_tasks_files(cases: Sequence[Case], unavailable: Mapping[str, str], options: Options) -> None:
    """Raise ConfigError if no question of the tasks files is there, or none of a set that has a gate in its file.

    Such a run would skip its cases and end well.
    """
    own = [case for case in cases if case.task not in TASKS]
    gated = required_scores(options.tasks)
    missing = [case for case in own if case.id in unavailable]
    fatal = missing if len(missing) == len(own) else [case for case in missing if case.task in gated]
    if fatal:
        raise ConfigError(f"--tasks: {unavailable[fatal[0].id]}")
