"""`longctx run`, `plan` and `preflight` start pytest on the suite, and `longctx validate` checks their file."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NoReturn

from longctx.ci.run_file import NAME, RunFileError, command_options, read_run_file, run_options, split_config
from longctx.fixtures.cli import CommandParser, print_line, report_wrong_use
from longctx.plugins.config.invocation import pytest_command
from longctx.plugins.config.options import run_parser

Mode = Literal["run", "plan", "preflight"]
DESCRIPTIONS: dict[Mode, str] = {
    "run": "Measure a checkpoint and evaluate its gates.",
    "plan": "Print the cases, tokens and estimated memory of a run; load no model.",
    "preflight": "Check all samples of a run; load no model.",
}
ANY_MODEL = ("--model", "calibration:full")


def main(arguments: Sequence[str]) -> int:
    """Run the command that the first argument names; return 0 after --help, and 4 for a file that cannot be used."""
    name, *words = arguments
    if name == "validate":
        return _validate(words)
    mode: Mode = next(mode for mode in DESCRIPTIONS if mode == name)
    if "-h" in words or "--help" in words:
        run_parser(f"longctx {mode}", DESCRIPTIONS[mode]).print_help()
        return 0
    try:
        file, words = split_config(words, mode)
        from_file = [] if file is None else run_options(file, mode)
    except RunFileError as error:
        return report_wrong_use(str(error))
    return _become(pytest_command([*([] if mode == "run" else [f"--{mode}"]), *from_file, *words]))


def _become(command: Sequence[str]) -> NoReturn:
    """Replace this process by another one, which gets its signals and gives its exit code."""
    sys.stdout.flush()
    os.execv(command[0], [*command])


def _validate(arguments: Sequence[str]) -> int:
    """Print the number of cases and return 0, or 4 after one line that names the key and what is accepted."""
    parser = CommandParser(
        prog="longctx validate",
        description="Check a file that describes a run: its keys, its values, the files that it names.",
    )
    parser.add_argument("file", nargs="?", type=Path, default=Path(NAME), metavar="FILE", help=f"default: {NAME}")
    path = parser.parse_args(arguments).file
    try:
        file = read_run_file(path)
        for command in ("watch", "bisect"):
            command_options(file, command)
        # A plan leaves the reports out.
        options = run_options(file, "plan")
    except RunFileError as error:
        return report_wrong_use(str(error))
    # A run needs neither the tasks nor the thresholds before pytest does.
    from longctx.ci.suite_options import list_cases

    try:
        cases = list_cases([*(() if any(word.startswith("--model=") for word in options) else ANY_MODEL), *options])
    except ValueError as error:
        return report_wrong_use(f"{path}: {error}")
    print_line(f"{path}: valid, {len(cases)} case{'' if len(cases) == 1 else 's'}")
    return 0
