"""Wait for the files of other machines, on file systems that show changes late."""

from __future__ import annotations

import errno
import time
from pathlib import Path

# Network file systems show the changes of other machines within a minute, unless they are told otherwise.
VISIBLE_SECONDS = 60.0
POLL_SECONDS = 0.5
# The errors of creating a name that another machine has just created. SFTP only reports a failure, from which sshfs
# makes EPERM.
NAME_EXISTS = (errno.EEXIST, errno.EPERM)


def make_directory(path: Path) -> None:
    """Create a directory and its parents, if they are not there; raises OSError.

    If another machine has just created one, this one may see neither a directory nor a free name for a while.
    """
    deadline = time.monotonic() + VISIBLE_SECONDS
    while True:
        try:
            return path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if error.errno not in (*NAME_EXISTS, errno.ENOENT):
                raise
            is_hidden = not any(parent.exists() and not parent.is_dir() for parent in (path, *path.parents))
            if not is_hidden or time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS)


def created_elsewhere(path: Path, error: OSError) -> bool:
    """Return True if a file could not be created because another machine has just created it."""
    if error.errno not in NAME_EXISTS:
        return False
    deadline = time.monotonic() + VISIBLE_SECONDS
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return path.exists()
