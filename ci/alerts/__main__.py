"""List the alerts of a watch, the one to look at first, or say what became of one.

    longctx alerts out/watch
    longctx alerts out/watch ack 3 --owner mira --note "rope change of Monday"

A watch opens an alert at every step at which the run became worse, and closes it when a later step passes the same
cases. `show` prints one alert with all its cases. `ack` says that somebody looks into it. `fix`, `invalid` (the run did
not become worse) and `infra` (the machines were at fault) close it, and `reopen` opens it again. Later steps that fail
the same cases belong to an acknowledged or invalid alert; they open a fixed or infra one again.

Exit codes: 0, 4 wrong use.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from longctx.ci.alerts.log import Alert, AlertLog, Noted, Status
from longctx.ci.alerts.words import alert_lines, headline, in_order, status_text
from longctx.fixtures.cli import CommandParser, print_line, report_wrong_use
from longctx.fixtures.outside_files import expanded

STATUSES: dict[str, Status] = {
    "ack": "acknowledged", "fix": "fixed", "invalid": "invalid", "infra": "infra", "reopen": "new",
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 4 after one line about wrong use."""
    parser = CommandParser(
        prog="longctx alerts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="the folder given to longctx watch as --out")
    parser.add_argument("action", nargs="?", choices=("show", *STATUSES), help="what to do with one alert")
    parser.add_argument("alert", nargs="?", type=int, metavar="ID", help="the number of the alert")
    parser.add_argument("--owner", metavar="NAME", help="who looks into it; empty for nobody")
    parser.add_argument("--note", metavar="TEXT", help="a note, which replaces an earlier one; empty for none")
    parser.add_argument("--all", action="store_true", help="list closed alerts too")
    given = parser.parse_args(arguments)
    folder = expanded(given.directory)
    if not os.path.isdir(folder):
        return report_wrong_use(f"DIR: no such directory {str(folder)!r}; give the folder given to watch as --out")
    if not any((folder / name).exists() for name in ("history.jsonl", "alerts.jsonl")):
        return report_wrong_use(f"DIR: no watch has written to {folder}; give the folder given to watch as --out")
    log = AlertLog(folder=folder)
    try:
        if log.is_torn:
            print_line(f"{log.path}: its last line is torn, as after a kill; make the change that was being made again")
        return _list(log, shows_all=given.all) if given.action is None else _act(log, given)
    except BrokenPipeError:
        # The reader of the output has ended, which is no fault of the folder.
        raise
    except OSError as error:
        return report_wrong_use(
            f"DIR: cannot use {error.filename or folder} ({error.strerror}); make room or correct its permissions, and "
            "give the same command again"
        )


def _act(log: AlertLog, given: argparse.Namespace) -> int:
    """Show or change one alert."""
    alerts = log.read()
    if given.alert is None or given.alert not in alerts:
        known = ", ".join(map(str, alerts)) or "none"
        wrong = "give the number of an alert" if given.alert is None else f"no alert {given.alert}"
        return report_wrong_use(f"ID: {wrong}; known are {known}, which longctx alerts {log.folder} --all lists")
    if given.action == "show":
        if given.owner is not None or given.note is not None:
            return report_wrong_use("--owner, --note: show changes nothing; use ack, fix, invalid, infra or reopen")
        alert = alerts[given.alert]
        _print(alert_lines(alert, log.folder, most_cases=len(alert.episode.cases)))
        return 0
    noted = Noted(alert=given.alert, status=STATUSES[given.action], owner=given.owner, note=given.note)
    alert = log.update(lambda _: [noted])[given.alert]
    print_line(f"alert {alert.id}: {status_text(alert)}: {headline(alert)}")
    return 0


def _list(log: AlertLog, *, shows_all: bool) -> int:
    """Print open alerts in full, and closed ones in a line each if they are wanted."""
    alerts = in_order(log.read().values())
    opened = [alert for alert in alerts if alert.is_open]
    closed = [alert for alert in alerts if not alert.is_open]
    for alert in opened:
        _print([*alert_lines(alert, log.folder), ""])
    for alert in closed if shows_all else ():
        print_line(_closed_line(alert))
    counts = Counter(alert.status for alert in opened)
    by_status = f" ({', '.join(f'{count} {status}' for status, count in counts.items())})" if opened else ""
    hidden = "; --all lists them" if closed and not shows_all else ""
    print_line(f"{len(opened)} open{by_status}, {len(closed)} closed{hidden}")
    return 0


def _closed_line(alert: Alert) -> str:
    owner, note = (f", {text}" if text else "" for text in (alert.owner, alert.note))
    return f"alert {alert.id}, {status_text(alert)} on {(alert.closed or '')[:10]}: {headline(alert)}{owner}{note}"


def _print(lines: Sequence[str]) -> None:
    for line in lines:
        print_line(line)


if __name__ == "__main__":
    sys.exit(main())
