"""`longctx validate`: check a file that describes a run, without measuring anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ci.bisect.__main__ import bisect_parser
from ci.check_options import list_cases
from ci.run_file import NAME, REPORTS, RunFileError, command_options, read_run_file, run_options
from ci.watch.__main__ import watch_parser
from fixtures.cli import CommandParser, print_line, report_wrong_use

ANY_MODEL = ("--model", "calibration:full")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the number of cases and return 0, or 4 after one line that names the key and what is accepted."""
    parser = CommandParser(
        prog="longctx validate",
        description="Check a file that describes a run: its keys, its values, the files that it names.",
    )
    parser.add_argument("file", nargs="?", type=Path, default=Path(NAME), metavar="FILE", help=f"default: {NAME}")
    path = parser.parse_args(arguments).file
    try:
        file = read_run_file(path)
        for command, its_parser in (("watch", watch_parser()), ("bisect", bisect_parser())):
            command_options(file, command, its_parser)
        options = run_options(file, tuple(REPORTS.values()))
    except RunFileError as error:
        return report_wrong_use(str(error))
    try:
        cases = list_cases([*(() if "--model" in options else ANY_MODEL), *options])
    except ValueError as error:
        return report_wrong_use(f"{path}: {error}")
    print_line(f"{path}: valid, {len(cases)} case{'' if len(cases) == 1 else 's'}")
    return 0
