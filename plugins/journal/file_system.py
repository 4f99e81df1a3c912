"""The file system under a journal: its errors, a check that it works as needed, and files that it shows late."""

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from longctx.fixtures.atomic_files import write_all

# Network file systems show the changes of other machines within a minute by default.
VISIBLE_SECONDS = 60.0
POLL_SECONDS = 0.5
FIRST, SECOND = b"first line\n", b"second line\n"
_SPACE = "make room or give another directory"
_PERMISSION = "give a directory that can be written"
_NAME = "give a directory, or a name that is free"
REMEDIES = {
    errno.ENOSPC: _SPACE, errno.EDQUOT: _SPACE, errno.EFBIG: _SPACE,
    errno.EACCES: _PERMISSION, errno.EPERM: _PERMISSION, errno.EROFS: _PERMISSION,
    errno.ENOTDIR: _NAME, errno.EEXIST: _NAME, errno.EISDIR: _NAME,
}  # fmt: skip


class JournalError(RuntimeError):
    """The journal cannot be used: one line with the directory, the reason and a remedy."""


@contextlib.contextmanager
def journal_errors(action: str, directory: Path) -> Iterator[None]:
    """Raise a JournalError where the operating system refuses to `action` ("read" or "write") the directory."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        remedy = REMEDIES.get(error.errno or 0, "check its file system and start again")
        raise JournalError(
            f"--journal: cannot {action} {directory} ({reason}); {remedy}; finished results are kept"
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


def probe_file_system(directory: Path) -> None:
    """Raise JournalError, with one line, unless the directory's file system works as a journal needs it.

    It must create a file for one process only, show all written data to any handle that is opened afterwards, list new
    names, and replace a file by renaming another one. One machine cannot check when the others see all this.
    """
    name = f".probe-{secrets.token_hex(4)}"
    paths = directory / name, directory / f"{name}-renamed"
    try:
        with journal_errors("write", directory):
            fault = _fault(*paths)
    finally:
        for path in paths:
            with contextlib.suppress(OSError):
                path.unlink()
    if fault is not None:
        raise JournalError(
            f"--journal: the file system of {directory} {fault}, so workers could lose results; "
            "give a directory on a local disk, NFS or Lustre"
        )


def _fault(path: Path, renamed: Path) -> str | None:
    """Return the first fault of the file system, None if all is well; raises OSError."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o666)
    try:
        write_all(descriptor, FIRST)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            return "creates a file that exists"
        write_all(descriptor, SECOND)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if path.read_bytes() != FIRST + SECOND:
        return "does not show what was written"
    if path.name not in os.listdir(path.parent):
        return "does not list a new file"
    renamed.write_bytes(FIRST)
    path.replace(renamed)
    if path.exists() or renamed.read_bytes() != FIRST + SECOND:
        return "does not replace a file by a renamed one"
    return None
