"""Check, when a worker starts, that the journal's file system does what the journal relies on."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from fixtures.atomic_files import write_all
from plugins.journal.errors import FileSystemFault, journal_error

FIRST, SECOND = b"first line\n", b"second line\n"


def probe_file_system(directory: Path) -> None:
    """Raise FileSystemFault, with one line, unless the directory's file system works as a journal needs it.

    It must create a file for one process only, show what was written to any handle that is opened afterwards, list new
    names, and replace a file by renaming another one. What one machine cannot check is when the others see all this.
    Raises JournalError if the directory cannot be written.
    """
    name = f".probe-{secrets.token_hex(4)}"
    paths = directory / name, directory / f"{name}-renamed"
    try:
        fault = _fault(*paths)
    except OSError as error:
        raise journal_error("write", directory, error) from error
    finally:
        for path in paths:
            with contextlib.suppress(OSError):
                path.unlink()
    if fault is not None:
        raise FileSystemFault(
            f"--journal: the file system of {directory} {fault}, so workers could lose results; "
            "give a directory on a local disk, NFS or Lustre"
        )


def _fault(path: Path, renamed: Path) -> str | None:
    """Return what the file system does wrong, None if all is well; raises OSError."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o666)
    try:
        write_all(descriptor, FIRST)
        if not _is_refused(path):
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


def _is_refused(path: Path) -> bool:
    """Return True if the file cannot be created again."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return True
    return False
