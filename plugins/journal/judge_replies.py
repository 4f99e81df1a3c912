"""Stored replies of LLM judges, shared by all processes and runs: `DIR/judge/judge-<name>.jsonl`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from threading import Lock

from longctx.fixtures.records import StoredRecord
from longctx.plugins.journal.file_system import journal_error
from longctx.plugins.journal.lines import LineFile, complete_lines, decode_record, encode_record

FOLDER = "judge"
PREFIX, SUFFIX = "judge-", ".jsonl"


class _Reply(StoredRecord, frozen=True, kw_only=True):
    """A line of the file."""

    key: str
    reply: str


class JudgeReplies:
    """A store of judge replies by key in the journal `directory`; any number of threads may use it.

    `name` is unique to this process, such as a heartbeat's name. Only this process writes the file of that name; it
    reads the files of all others when a key is missing. Without a name nothing is written. Of several replies for one
    key the first that was read counts. Methods raise JournalError if the directory cannot be read or written.
    """

    def __init__(self, directory: Path, name: str | None):
        self.directory = directory
        self.folder = directory / FOLDER
        self._own_file = None if name is None else LineFile(self.folder / f"{PREFIX}{name}{SUFFIX}")
        self._replies: dict[str, str] = {}
        self._offsets: dict[str, int] = {}
        """The end of the last line that was read, by file name."""
        self._lock = Lock()

    def get(self, key: str) -> str | None:
        """Return the reply for `key`; None if no process has written one yet."""
        with self._lock:
            if key not in self._replies:
                own = self._own_file.path if self._own_file is not None and self._own_file.is_open else None
                try:
                    with contextlib.suppress(FileNotFoundError):
                        for path in sorted(self.folder.glob(f"{PREFIX}*{SUFFIX}")):
                            if path != own:
                                self._read(path)
                except OSError as error:
                    raise journal_error("read", self.folder, error) from error
            return self._replies.get(key)

    def put(self, key: str, reply: str) -> None:
        """Store a reply so that it survives a power loss; an existing reply for `key` stays."""
        with self._lock:
            if key in self._replies:
                return
            if self._own_file is not None:
                try:
                    self._own_file.append(encode_record(_Reply(key=key, reply=reply)) + b"\n")
                except OSError as error:
                    raise journal_error("write", self.folder, error) from error
            self._replies[key] = reply

    def close(self) -> None:
        """Close this process's file; may be called twice."""
        with self._lock:
            if self._own_file is not None:
                self._own_file.close()

    def _read(self, path: Path) -> None:
        """Read the new lines of a file."""
        with path.open("rb") as file:
            offset = self._offsets.get(path.name, 0)
            file.seek(offset)
            for line in complete_lines(file):
                offset += len(line)
                if (reply := decode_record(line, _Reply)) is not None:
                    self._replies.setdefault(reply.key, reply.reply)
            self._offsets[path.name] = offset
