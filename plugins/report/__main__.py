"""`python -m plugins.report history DIR`: effective length, means and gates over the training steps of many reports."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fixtures.cli import CommandParser, report_wrong_use
from plugins.report.history import HistoryError, history, read_reports
from plugins.report.html.step_curves import steps_page


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, or 4 with one line for wrong use."""
    parser = CommandParser(prog="python -m plugins.report", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("history", help="draw what the JSON reports of a directory say over training steps")
    command.add_argument("directory", metavar="DIR", type=Path, help="where the files of --report-json are")
    command.add_argument("--out", metavar="FILE", type=Path, help="the page (default: DIR/history.html)")
    given = parser.parse_args(arguments)
    target = given.out or given.directory / "history.html"
    try:
        reports, skipped = read_reports(given.directory)
        target.write_text(steps_page(history(reports, skipped)), encoding="utf-8", errors="replace")
    except HistoryError as error:
        return report_wrong_use(str(error))
    except OSError as error:
        return report_wrong_use(f"--out: cannot write {target} ({error.strerror}); give a file that can be written")
    for line in skipped:
        sys.stderr.write(f"left out {line}\n")
    sys.stdout.write(f"{len(reports)} steps, {reports[0].step} to {reports[-1].step}: {target}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
