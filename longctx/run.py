"""`longctx run`, `plan` and `preflight`: start pytest on the suite, from any directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from fixtures.installation import pytest_command

MODES = {"run": (), "plan": ("--plan",), "preflight": ("--preflight",)}
DESCRIPTIONS = {
    "run": "Measure a checkpoint and evaluate its gates.",
    "plan": "Print the cases, tokens and estimated memory of a run; load no model.",
    "preflight": "Check all samples of a run; load no model.",
}


def main(arguments: Sequence[str]) -> int:
    """Run the command that the first argument names, and return 0 after --help."""
    name, *words = arguments
    if "-h" in words or "--help" in words:
        from longctx.suite_options import suite_parser

        suite_parser(f"longctx {name}", DESCRIPTIONS[name]).print_help()
        return 0
    return _become(pytest_command([*MODES[name], *words]))


def _become(command: Sequence[str]) -> NoReturn:
    """Replace this process by another one, which gets its signals and gives its exit code."""
    sys.stdout.flush()
    os.execv(command[0], [*command])
