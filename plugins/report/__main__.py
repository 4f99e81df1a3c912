"""`longctx history DIR` draws scores over training steps; `longctx analysis DIR` correlates them over checkpoints."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from longctx.fixtures.cli import CommandParser, print_line, report_wrong_use
from longctx.plugins.report.analysis import analyse, analysis_lines, analysis_page
from longctx.plugins.report.history import HistoryError, StepReport, history, read_documents, read_reports, steps_page

# Errors that a report of another form causes wherever its parts are used.
MALFORMED = (KeyError, TypeError, AttributeError, ValueError, IndexError, RecursionError, ArithmeticError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, or 4 with a one-line error for wrong use."""
    parser = CommandParser(prog="longctx", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("history", help="draw the JSON reports of a directory over training steps")
    command.add_argument("directory", metavar="DIR", type=Path, help="directory with files written by --report-json")
    command.add_argument("--out", metavar="FILE", type=Path, help="page to write (default: DIR/history.html)")
    across = commands.add_parser("analysis", help="correlate the scores of many checkpoints, as a Markdown page")
    across.add_argument("directory", metavar="DIR", type=Path, help="directory with files written by --report-json")
    across.add_argument("--out", metavar="FILE", type=Path, help="HTML page to write too, with charts")
    across.add_argument("--since", metavar="STEP", type=int, help="first step of the changes (default: the first)")
    given = parser.parse_args(arguments)
    return _analysis(given) if given.command == "analysis" else _history(given)


def _analysis(given: Namespace) -> int:
    """Print the analysis and write its page; return 0, or 4 with one line for reports that cannot be compared."""
    try:
        found = analyse([document for _, document in read_documents(given.directory)], given.since)
        page, lines = analysis_page(found), analysis_lines(found)
    except MALFORMED as error:
        return report_wrong_use(f"analysis: {given.directory}: {error}")
    if given.out is not None:
        try:
            given.out.write_text(page, encoding="utf-8", errors="replace")
        except OSError as error:
            return _cannot_write(given.out, error)
    for line in lines.splitlines():
        print_line(line)
    return 0


def _history(given: Namespace) -> int:
    """Write the page of a run's history; return 0, or 4 with one line."""
    target = given.out or given.directory / "history.html"
    try:
        reports, skipped = read_reports(given.directory)
        page = _page(reports, skipped, target.parent)
        target.write_text(page, encoding="utf-8", errors="replace")
    except HistoryError as error:
        return report_wrong_use(f"history: {error}")
    except OSError as error:
        return _cannot_write(target, error)
    for line in skipped:
        print_line(f"left out {line}", sys.stderr)
    print_line(f"{len(reports)} steps, {reports[0].step} to {reports[-1].step}: {target}")
    return 0


def _cannot_write(file: Path, error: OSError) -> int:
    return report_wrong_use(f"--out: cannot write {file} ({error.strerror}); name a file that can be written")


def _page(reports: Sequence[StepReport], skipped: Sequence[str], folder: Path) -> str:
    """Return the page; raise HistoryError that names the report which has not the form of one."""
    try:
        return steps_page(history(reports, skipped), folder)
    except MALFORMED as problem:
        for report in reports:
            try:
                steps_page(history([report]))
            except MALFORMED as error:
                raise HistoryError(
                    f"{report.path} has not the form of a report ({type(error).__name__}: {error}); "
                    "write it again with --report-json, or remove it"
                ) from error
        raise HistoryError(
            f"the reports do not fit together ({type(problem).__name__}: {problem}); "
            "remove those that this version has not written"
        ) from problem


if __name__ == "__main__":
    sys.exit(main())
