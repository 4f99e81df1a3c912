"""The thresholds of the runs that a command starts, with the gates that the tasks files of its options ask for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from fixtures.tasks import find_tasks_files, known_families, required_scores
from plugins.gates.task_gates import with_task_gates
from plugins.gates.thresholds import Thresholds, ThresholdsError, load_thresholds


def suite_thresholds(path: Path, options: Sequence[str]) -> Thresholds:
    """Return a thresholds file as runs with these pytest options read it; raise ThresholdsError."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--tasks")
    parsed, _ = parser.parse_known_args(options)
    try:
        files = find_tasks_files(parsed.tasks, Path.cwd())
        families, required = known_families(files), required_scores(files)
    except ValueError as error:
        raise ThresholdsError(str(error)) from error
    return with_task_gates(load_thresholds(path, known_tasks=families), required)
