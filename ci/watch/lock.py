"""The lock on the folder of a watch: one watch at a time measures into it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

LOCK = "watch.lock"
POLL_SECONDS = 1.0
# The errors of file systems without locks, and of those whose lock server is not there.
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)
MOST_HOLDER_BYTES = 512


def open_lock(folder: Path) -> IO[bytes]:
    """Return the open lock file of a folder, which is made if it is not there; raise ValueError, with one line."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / LOCK).open("a+b", buffering=0)
    except OSError as error:
        raise ValueError(
            f"--out: cannot write {error.filename or folder} ({error.strerror}); give a folder that can be written"
        ) from None


@contextlib.contextmanager
def locked(file: IO[bytes], folder: Path, *, waits: bool, show: Callable[[str], None]) -> Iterator[bool]:
    """Hold the lock on a folder, and close its file; yield False if another watch holds it and `waits` is False.

    The operating system releases the lock when its process ends, however it ends. `show` prints a line about another
    holder, and about a file system without locks, on which the folder counts as locked.
    """
    with file:
        holds = _try_lock(file, folder, show)
        if not holds:
            then = "waiting until it ends" if waits else "nothing to do here"
            show(f"another watch measures into {folder} ({_holder(file)}); {then}")
        while waits and not holds:
            time.sleep(POLL_SECONDS)
            holds = _try_lock(file, folder, show)
        yield holds
        if holds:
            file.truncate(0)


def _try_lock(file: IO[bytes], folder: Path, show: Callable[[str], None]) -> bool:
    """Lock the file, and name this process in it; return False if another one has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        show(f"the file system of {folder} has no locks ({error.strerror}); start only one watch with this --out")
        return True
    started = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
    file.truncate(0)
    file.write(f"process {os.getpid()} on {platform.node()}, since {started}\n".encode())
    return True


def _holder(file: IO[bytes]) -> str:
    """Return the line with which the holder named itself."""
    file.seek(0)
    return file.read(MOST_HOLDER_BYTES).decode("utf-8", "replace").strip() or "a process that has just started"
