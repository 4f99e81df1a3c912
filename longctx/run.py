"""`longctx run`, `plan` and `preflight`: start pytest on the suite, from any directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from ci.run_file import REPORTS, RunFileError, run_options, split_config
from fixtures.cli import report_wrong_use
from fixtures.installation import pytest_command

MODES = {"run": (), "plan": ("--plan",), "preflight": ("--preflight",)}
DESCRIPTIONS = {
    "run": "Measure a checkpoint and evaluate its gates.",
    "plan": "Print the cases, tokens and estimated memory of a run; load no model.",
    "preflight": "Check all samples of a run; load no model.",
}


def main(arguments: Sequence[str]) -> int:
    """Run the command that the first argument names; return 0 after --help, and 4 for a file that cannot be used."""
    name, *words = arguments
    if "-h" in words or "--help" in words:
        from ci.suite_parser import suite_parser

        suite_parser(f"longctx {name}", DESCRIPTIONS[name]).print_help()
        return 0
    try:
        file, words = split_config(words)
        # A plan and a preflight measure nothing to report.
        from_file = [] if file is None else run_options(file, () if name == "run" else tuple(REPORTS.values()))
    except RunFileError as error:
        return report_wrong_use(str(error))
    return _become(pytest_command([*MODES[name], *from_file, *words]))


def _become(command: Sequence[str]) -> NoReturn:
    """Replace this process by another one, which gets its signals and gives its exit code."""
    sys.stdout.flush()
    os.execv(command[0], [*command])
