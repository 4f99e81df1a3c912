"""`longctx history DIR`: draw scores over training steps, or sum up the last days of a watch."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from longctx.ci.alerts.digest import digest
from longctx.fixtures.cli import CommandParser, print_line, report_wrong_use
from longctx.plugins.report.history import HistoryError, write_history


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 4 with one line."""
    parser = CommandParser(prog="longctx history")
    parser.add_argument(
        "directory", metavar="DIR", type=Path, help="directory with files written by --report-json, or by a watch"
    )
    parser.add_argument("--out", metavar="FILE", type=Path, help="page to write (default: DIR/history.html)")
    parser.add_argument(
        "--digest", metavar="7d",
        help="print the alerts, measurements, moves and cost of a watch in this time, in Markdown (7d, 12h)",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    try:
        if given.digest is not None:
            return _digest(given.directory, given.digest, given.out)
        return _draw(given.directory, given.out or given.directory / "history.html")
    except BrokenPipeError:
        # The reader of the output has ended, which is no fault of a file.
        raise
    except OSError as error:
        file = error.filename or given.directory
        return report_wrong_use(f"history: cannot use {file} ({error.strerror}); name files that can be used")


def _draw(directory: Path, target: Path) -> int:
    """Write the page of a run's history."""
    try:
        reports, skipped = write_history(directory, target)
    except HistoryError as error:
        return report_wrong_use(f"history: {error}")
    except OSError as error:
        return report_wrong_use(f"--out: cannot write {target} ({error.strerror}); name a file that can be written")
    for line in skipped:
        print_line(f"left out {line}", sys.stderr)
    print_line(f"{len(reports)} steps, {reports[0].step} to {reports[-1].step}: {target}")
    return 0


def _digest(directory: Path, age: str, target: Path | None) -> int:
    """Print the digest of a watch's folder, or write it to a file."""
    match = re.fullmatch(r"([0-9]{1,4})([dh])", age.strip().lower())
    if match is None or not int(match[1]):
        return report_wrong_use(f"--digest: cannot read {age!r}; write 7d or 12h")
    if not os.path.isfile(directory / "history.jsonl"):
        return report_wrong_use(f"DIR: no watch has written to {directory}; give the folder given to watch as --out")
    until = datetime.now(UTC)
    span = timedelta(days=int(match[1])) if match[2] == "d" else timedelta(hours=int(match[1]))
    try:
        text = digest(directory, until - span, until)
    except OSError as error:
        return report_wrong_use(
            f"DIR: cannot read {error.filename or directory} ({error.strerror}); check its permissions"
        )
    if target is None:
        for line in text.splitlines():
            print_line(line)
        return 0
    try:
        target.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        return report_wrong_use(f"--out: cannot write {target} ({error.strerror}); name a file that can be written")
    print_line(str(target))
    return 0


if __name__ == "__main__":
    sys.exit(main())
