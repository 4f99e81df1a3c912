"""The error of a journal that cannot be read or written."""

from __future__ import annotations

import errno
from pathlib import Path

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


class FileSystemFault(JournalError):
    """The journal's file system does not do what the journal relies on."""


def journal_error(action: str, directory: Path, error: OSError) -> JournalError:
    """Return the JournalError for a directory that the operating system refused to `action` ("read" or "write")."""
    reason = error.strerror or type(error).__name__
    remedy = REMEDIES.get(error.errno or 0, "check its file system and start again")
    return JournalError(f"--journal: cannot {action} {directory} ({reason}); {remedy}; finished results are kept")
