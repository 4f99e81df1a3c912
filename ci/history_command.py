"""`longctx history`: draw scores over training steps, correlate them over many checkpoints, or rank models."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from longctx.fixtures.cli import CommandParser, print_line, report_wrong_use
from longctx.fixtures.records.report import ReportFileError, read_report_file
from longctx.fixtures.shown_text import visible_data


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 4 with one line."""
    parser = CommandParser(prog="longctx history")
    parser.add_argument(
        "directory", metavar="DIR", nargs="?", type=Path, help="directory with files of --report-json, or of a watch"
    )
    parser.add_argument(
        "--models", metavar="FILE", nargs="+", type=Path, help="rank the models of these files of --report-json"
    )
    parser.add_argument("--out", metavar="FILE", type=Path, help="page to write (default: DIR/history.html)")
    parser.add_argument("--digest", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.digest is not None:
        return report_wrong_use("--digest: gone; see the page of a watch, index.html in its --out")
    if (given.directory is None) == (given.models is None):
        return report_wrong_use("history: give either DIR or --models FILE FILE")
    # The template engine of the page takes time that --help and the completion need not spend.
    from longctx.plugins.report.history import HistoryError

    try:
        if given.models is not None:
            return _rank(given.models, given.out)
        return _draw(given.directory, given.out or given.directory / "history.html")
    except (ReportFileError, HistoryError) as error:
        return report_wrong_use(f"history: {error}")


def _rank(files: Sequence[Path], out: Path | None) -> int:
    from longctx.plugins.report.history import differing_questions, ranking
    from longctx.plugins.report.markdown import table

    if len(files) < 2 or out is not None:
        reason = "--out: a ranking is printed; leave it out" if out else "--models: one report; give two or more"
        return report_wrong_use(reason)
    documents = [visible_data(read_report_file(file)) for file in files]
    tables = ranking(documents)
    for others in differing_questions(documents):
        print_line(f"not asked like the first: {others} (other texts, prompts, scores or seed)", sys.stderr)
    for shown in tables:
        for line in [*table(shown).splitlines(), ""]:
            print_line(line)
    print_line("The average over these lengths has the interval of the model.")
    print_line("A rank is a range where the intervals do not tell models apart.")
    return 0


def _draw(directory: Path, target: Path) -> int:
    from longctx.plugins.report.history import write_history

    reports, skipped = write_history(directory, target)
    for line in skipped:
        print_line(f"left out {line}", sys.stderr)
    steps = f"{len(reports)} steps, {reports[0].step} to {reports[-1].step}" if reports else "no steps"
    print_line(f"{steps}: {target}")
    return 0
