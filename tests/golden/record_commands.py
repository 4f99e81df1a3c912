"""Record what users see: `python -m tests.golden.record_commands`, or only the records that are named.

Everything is made twice. Exits with 1, and names it, if the two differ.
"""

import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from uuid import uuid4

from longctx.fixtures.cli import CommandParser, print_line
from tests.golden.commands import GROUPS, error_records, help_records, write
from tests.golden.whole_runs import RUNS, keep_journal, run_records
from tests.helpers.preloaded import start_server

# The journal that later versions continue; only named, it is written anew.
KEPT = "kept journal"
Recording = Callable[[Path], dict[str, str]]


def main() -> int:
    """Write `recorded/commands/`; return the exit code."""
    parser = CommandParser(prog="python -m tests.golden.record_commands", description=__doc__)
    parser.add_argument("names", nargs="*", help="record only these, such as help or thresholds (default: all)")
    names = parser.parse_args().names
    start_server()
    if KEPT in names:
        with tempfile.TemporaryDirectory() as folder:
            keep_journal(Path(folder))
    unstable = 0
    for name, recording in recordings().items():
        if not names or name in names:
            print_line(name)
            first, second = made(recording), made(recording)
            unstable += (changed := [path for path in first if first[path] != second.get(path)]) != []
            for path in changed:
                sys.stderr.write(f"{path}: two recordings differ\n")
            write(first)
    return min(unstable, 1)


def recordings() -> dict[str, Recording]:
    """Return what makes the records, by name."""
    errors = {group: partial(error_records, group) for group in GROUPS}
    return {"help": help_records, **errors, **{f"run: {name}": partial(run_records, name) for name in RUNS}}


def made(recording: Recording) -> dict[str, str]:
    """Return the records, made in a directory with a short name of letters: tables cut long paths, Markdown escapes."""
    folder = Path(tempfile.gettempdir(), f"tmp{uuid4().hex[:8]}")
    folder.mkdir()
    try:
        return recording(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    raise SystemExit(main())
