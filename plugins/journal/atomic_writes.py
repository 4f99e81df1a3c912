"""Small writes that are either whole or not there, and the error for those that failed."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path

_ROOM = "make room or give another directory"
_RIGHTS = "give a directory that can be written"
_KIND = "give a directory, or a name that is free"
REMEDIES = {
    errno.ENOSPC: _ROOM, errno.EDQUOT: _ROOM, errno.EFBIG: _ROOM,
    errno.EACCES: _RIGHTS, errno.EPERM: _RIGHTS, errno.EROFS: _RIGHTS,
    errno.ENOTDIR: _KIND, errno.EEXIST: _KIND, errno.EISDIR: _KIND,
}  # fmt: skip


class JournalError(RuntimeError):
    """A journal that cannot be used: one line with the directory, what happened and what to do."""


def cannot(action: str, directory: Path, error: OSError) -> JournalError:
    """The error that says why `directory` could not be read or written."""
    reason = error.strerror or type(error).__name__
    remedy = REMEDIES.get(error.errno or 0, "look after its file system and start again")
    return JournalError(f"--journal: cannot {action} {directory} ({reason}); {remedy}; finished results are kept")


def write_all(descriptor: int, data: bytes) -> None:
    """One os.write, unless the system took only a part; raises OSError where the rest does not fit."""
    rest = memoryview(data)
    while rest:
        written = os.write(descriptor, rest)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rest = rest[written:]


def replace(path: Path, data: bytes) -> None:
    """Put a whole file where there may be one; readers see the old one or the new one."""
    # The dot keeps it out of every listing of ours; the random part apart from other writers.
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        try:
            write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        new.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make new names in a directory survive a loss of power, where its file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
