"""`longctx history`: draw scores over training steps, and correlate them over many checkpoints."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from longctx.fixtures.cli import CommandParser, print_line, report_wrong_use


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 4 with one line."""
    parser = CommandParser(prog="longctx history")
    parser.add_argument(
        "directory", metavar="DIR", type=Path, help="directory with files of --report-json, or of a watch"
    )
    parser.add_argument("--out", metavar="FILE", type=Path, help="page to write (default: DIR/history.html)")
    parser.add_argument("--digest", help=argparse.SUPPRESS)
    parser.add_argument("--models", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.digest is not None:
        return report_wrong_use("--digest: gone; see the page of a watch, index.html in its --out")
    if given.models is not None:
        return report_wrong_use("--models: gone; compare two models on the same samples with longctx run --baseline")
    try:
        return _draw(given.directory, given.out or given.directory / "history.html")
    except BrokenPipeError:
        # The reader of the output has ended, which is no fault of a file.
        raise
    except OSError as error:
        file = error.filename or given.directory
        return report_wrong_use(f"history: cannot use {file} ({error.strerror}); name files that can be used")


def _draw(directory: Path, target: Path) -> int:
    """Write the page of a run's history."""
    # The template engine of the page takes time that --help and the completion need not spend.
    from longctx.plugins.report.history import HistoryError, write_history

    try:
        reports, skipped = write_history(directory, target)
    except HistoryError as error:
        return report_wrong_use(f"history: {error}")
    except OSError as error:
        return report_wrong_use(f"--out: cannot write {target} ({error.strerror}); name a file that can be written")
    for line in skipped:
        print_line(f"left out {line}", sys.stderr)
    steps = f"{len(reports)} steps, {reports[0].step} to {reports[-1].step}" if reports else "no steps"
    print_line(f"{steps}: {target}")
    return 0
