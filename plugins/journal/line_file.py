"""Files of lines that one process appends to while others read them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fixtures.atomic_files import sync_directory, write_all


class LineFile:
    """A file that only this process appends to; the first line creates it."""

    def __init__(self, path: Path):
        self.path = path
        self._descriptor: int | None = None
        self._torn = False
        """True if the file may end in the middle of a line."""

    @property
    def is_open(self) -> bool:
        """True if lines were appended and the file has not been deleted since."""
        return self._descriptor is not None and os.fstat(self._descriptor).st_nlink > 0

    def append(self, line: bytes) -> int:
        """Append a line so that it survives a power loss, and return its offset.

        Raises OSError if the line cannot be written completely; no part of it is read as a line then.
        """
        descriptor = self._open()
        end = os.fstat(descriptor).st_size
        try:
            # The newline separates the line from the rest of a failed write.
            write_all(descriptor, b"\n" * self._torn + line)
            os.fsync(descriptor)
        except OSError:
            self._truncate(descriptor, end)
            raise
        offset = end + self._torn
        self._torn = False
        return offset

    def close(self) -> None:
        """Close the file; may be called twice."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def _open(self) -> int:
        if self._descriptor is not None and not self.is_open:
            # Nobody would ever read the lines of a deleted file.
            self.close()
        if self._descriptor is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o666)
            # An earlier process may have used the same name, and died while it wrote.
            self._torn = os.fstat(self._descriptor).st_size > 0
            sync_directory(self.path.parent)
        return self._descriptor

    def _truncate(self, descriptor: int, size: int) -> None:
        """Remove a line that was written in part; if that fails too, the next line starts with a newline."""
        was_torn, self._torn = self._torn, True
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, size)
            self._torn = was_torn or os.fstat(descriptor).st_size != size


def complete_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines from the current position on, except for a last line that is still being written."""
    for line in file:
        if not line.endswith(b"\n"):
            return
        yield line
