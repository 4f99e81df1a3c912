"""The file system under a journal: its errors, and folders that it shows late."""

import contextlib
import errno
import time
from collections.abc import Iterator
from pathlib import Path

# Network file systems show the changes of other machines within a minute by default.
VISIBLE_SECONDS = 60.0
POLL_SECONDS = 0.5


class JournalError(RuntimeError):
    """The journal cannot be used: one line with the directory, the reason and a remedy."""


@contextlib.contextmanager
def journal_errors(action: str, directory: Path) -> Iterator[None]:
    """Raise a JournalError where the operating system refuses to `action` ("read" or "write") the directory."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise JournalError(
            f"--journal: cannot {action} {directory} ({reason}); make room or give a directory that can be written; "
            "finished results are kept"
        ) from error


def make_directory(path: Path) -> None:
    """Create a directory and its parents, if they are not there; raises OSError.

    If another machine has just created one, this one may see neither a directory nor a free name for a while.
    """
    deadline = time.monotonic() + VISIBLE_SECONDS
    while True:
        try:
            return path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOENT):
                raise
            is_hidden = not any(parent.exists() and not parent.is_dir() for parent in (path, *path.parents))
            if not is_hidden or time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS)
