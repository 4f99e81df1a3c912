"""`longctx analysis DIR`: correlate the scores of many checkpoints."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from longctx.fixtures.cli import CommandParser, print_line, report_wrong_use
from longctx.plugins.report.analysis import analyse, analysis_lines, analysis_page
from longctx.plugins.report.history import MALFORMED, read_documents


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the analysis and write its page; return 0, or 4 with one line for reports that cannot be compared."""
    parser = CommandParser(prog="longctx analysis")
    parser.add_argument("directory", metavar="DIR", type=Path, help="directory with files written by --report-json")
    parser.add_argument("--out", metavar="FILE", type=Path, help="HTML page to write too, with charts")
    parser.add_argument("--since", metavar="STEP", type=int, help="first step of the changes (default: the first)")
    given = parser.parse_args(arguments)
    try:
        analysis = analyse([document for _, document in read_documents(given.directory)], given.since)
        page, lines = analysis_page(analysis), analysis_lines(analysis)
    except MALFORMED as error:
        return report_wrong_use(f"analysis: {given.directory}: {error}")
    if given.out is not None:
        try:
            given.out.write_text(page, encoding="utf-8", errors="replace")
        except OSError as error:
            return report_wrong_use(
                f"--out: cannot write {given.out} ({error.strerror}); name a file that can be written"
            )
    for line in lines.splitlines():
        print_line(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
