"""What a judge replied, kept for all processes and runs: `DIR/judge/judge-<name>.jsonl`, one line for each reply."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from threading import Lock

from fixtures.atomic_files import sync_directory, write_all
from plugins.journal.errors import journal_error

FOLDER = "judge"
PREFIX, SUFFIX = "judge-", ".jsonl"


class Replies:
    """Replies by key, in the journal `directory`; a store for a judge, from any number of threads.

    `name` is this process's own (a Presence's will do): only this process writes the file of that name, and reads
    those of all others whenever it misses a key. Without a name nothing is written. Of several replies for one key
    the first that was read counts. JournalError where the directory fails.
    """

    def __init__(self, directory: Path, name: str | None):
        self.directory = directory
        self.folder = directory / FOLDER
        self.own = None if name is None else f"{PREFIX}{name}{SUFFIX}"
        self._replies: dict[str, str] = {}
        self._offsets: dict[str, int] = {}
        self._descriptor: int | None = None
        self._torn = False
        self._lock = Lock()

    def get(self, key: str) -> str | None:
        """The reply, if any process has written it by now."""
        with self._lock:
            if key not in self._replies:
                self._refresh()
            return self._replies.get(key)

    def put(self, key: str, reply: str) -> None:
        """Write a reply so that it survives a loss of power; a key that has one keeps it."""
        with self._lock:
            if key in self._replies:
                return
            if self.own is not None:
                self._append(_encode(key, reply))
            self._replies[key] = reply

    def close(self) -> None:
        """Harmless twice."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
            self._descriptor = None

    def _refresh(self) -> None:
        try:
            with contextlib.suppress(FileNotFoundError):
                for path in sorted(self.folder.glob(f"{PREFIX}*{SUFFIX}")):
                    # What this process wrote it knows.
                    if path.name != self.own or self._descriptor is None:
                        self._read(path)
        except OSError as error:
            raise journal_error("read", self.folder, error) from error

    def _read(self, path: Path) -> None:
        """Whole lines from where the last reading ended; what follows the last newline is still being written."""
        with path.open("rb") as file:
            offset = self._offsets.get(path.name, 0)
            if os.fstat(file.fileno()).st_size < offset:
                # Cut by hand: what was read of it stays true.
                offset = 0
            file.seek(offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                offset += len(line)
                if (pair := _decode(line)) is not None:
                    self._replies.setdefault(*pair)
            self._offsets[path.name] = offset

    def _append(self, data: bytes) -> None:
        try:
            descriptor = self._opened()
            start = os.fstat(descriptor).st_size
            try:
                # The newline ends what a failed write left, so that nothing is glued to it.
                write_all(descriptor, b"\n" * self._torn + data)
                os.fsync(descriptor)
            except OSError:
                self._torn = True
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, start)
                raise
            self._torn = False
        except OSError as error:
            raise journal_error("write", self.folder, error) from error

    def _opened(self) -> int:
        if self._descriptor is None:
            assert self.own is not None
            self.folder.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.folder / self.own, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o666)
            # A file of a process of the same name before this one may end in the middle of a line.
            self._torn = os.fstat(self._descriptor).st_size > 0
            sync_directory(self.folder)
        return self._descriptor


def _encode(key: str, reply: str) -> bytes:
    return json.dumps({"key": key, "reply": reply}, separators=(",", ":")).encode("ascii") + b"\n"


def _decode(line: bytes) -> tuple[str, str] | None:
    """None for bytes that are no such line, whatever they are."""
    try:
        found = json.loads(line.decode("ascii"))
        key, reply = found["key"], found["reply"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    return (key, reply) if isinstance(key, str) and isinstance(reply, str) else None
