"""Heartbeats: a file per worker, by which others notice its death.

A worker holds a lock on its file, which the system releases when the process ends for any reason. Other machines may
not see the lock, so the worker also touches the file every few seconds.
"""

import contextlib
import fcntl
import os
import platform
import re
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from longctx.fixtures.records import StoredRecord
from longctx.plugins.journal.file_system import journal_errors, make_directory
from longctx.plugins.journal.lines import decode_record, encode_record

HEARTBEAT_SECONDS = 5.0
LEASE_SECONDS = 60.0
# A process whose own heartbeat is older than this was stopped, and has missed the work of the others.
PAUSE_SECONDS = 2 * HEARTBEAT_SECONDS
# A worker on another machine is dead if its file was not touched for this time; clocks differ by less.
SILENT_SECONDS = 3600.0
WORKERS = "workers"
WORKER_NAME = re.compile(r"[0-9A-Za-z-]+-\d+-[0-9a-f]{8}")


class _WorkerRecord(StoredRecord, frozen=True, kw_only=True):
    host: str
    """The machine whose processes see the lock (`_host_id`); empty without a lock."""
    run: str


class Heartbeat:
    """A worker's sign of life in the journal `directory`, as a part of the run named `run`.

    Raises JournalError if the worker's file cannot be written.
    """

    def __init__(
        self,
        directory: Path,
        run: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ):
        host = re.sub(r"[^0-9A-Za-z-]", "-", platform.node())[:40] or "host"
        self.directory = directory
        self.run = run
        self.name = f"{host}-{os.getpid()}-{secrets.token_hex(4)}"
        self.clock = clock
        self._states: dict[str, tuple[object, float]] = {}
        """The last state by name, and the time at which this process first saw it."""
        self.when_last: list[Callable[[], None]] = []
        """Called after the worker's file was deleted if no living worker is left in the journal."""
        self._closing = threading.Event()
        self._beaten = time.monotonic()
        """The time of this worker's last heartbeat."""
        self._pauses = 0
        """The number of times that this process was stopped and continued."""
        self._file: IO[bytes]
        """The worker's file, with its lock."""
        with journal_errors("write", directory):
            make_directory(directory / WORKERS)
            self._write()
        self._thread = threading.Thread(target=self._beat, name="journal heartbeat", daemon=True)
        self._thread.start()

    def is_dead(self, name: str) -> bool:
        """Return True if a worker will finish nothing more, so that its claims are void.

        A worker that has closed, or whose process on this machine has ended, is dead at once. Any other worker is dead
        if its file has not changed for a whole lease since the first call: its machine is lost, or it was stopped.
        """
        if name == self.name:
            return False
        if not WORKER_NAME.fullmatch(name):
            return True
        try:
            _, touched, has_ended = _read_worker_file(worker_file(self.directory, name))
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return has_ended or self.is_silent(name, touched)

    def is_silent(self, name: str, state: object) -> bool:
        """Return True if `name` has had this state for a whole lease in which this process was not stopped itself.

        The first call starts the lease. Clocks of other machines are never compared with this one: only changes count.
        """
        now, pauses = self.clock(), self._pauses
        known, since = self._states.setdefault(name, (state, now))
        if known != state:
            self._states[name] = (state, now)
            return False
        is_awake = time.monotonic() - self._beaten < PAUSE_SECONDS
        return now - since >= LEASE_SECONDS and is_awake and pauses == self._pauses

    def run_of(self, name: str) -> str | None:
        """Return the run of a worker; None if its file is missing or unreadable."""
        try:
            worker, _, _ = _read_worker_file(worker_file(self.directory, name))
        except OSError:
            return None
        return None if worker is None else worker.run

    def close(self) -> None:
        """Delete the worker's file, which makes its claims void; may be called twice."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._thread.join(HEARTBEAT_SECONDS)
        with contextlib.suppress(OSError):
            worker_file(self.directory, self.name).unlink()
            self._file.close()
            files = (self.directory / WORKERS).iterdir()
            others = [path for path in files if WORKER_NAME.fullmatch(path.stem)]
            # Of workers that close at the same time, the last one sees that the others' files are gone.
            if all(map(is_worker_dead, others)):
                for call in self.when_last:
                    call()
                for path in others:
                    path.unlink(missing_ok=True)

    def _write(self) -> None:
        self._file = worker_file(self.directory, self.name).open("wb", buffering=0)
        host = _host_id()
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            # A file system without locks: the heartbeat alone shows that this worker lives.
            host = ""
        self._file.write(encode_record(_WorkerRecord(host=host, run=self.run)))

    def _beat(self) -> None:
        while not self._closing.wait(HEARTBEAT_SECONDS):
            now = time.monotonic()
            if now - self._beaten >= PAUSE_SECONDS:
                self._pauses += 1
                # Time in which this process saw nothing says nothing about the others.
                self._states.clear()
            self._beaten = now
            try:
                os.utime(worker_file(self.directory, self.name))
            except FileNotFoundError:
                # The file was deleted although this worker lives.
                with contextlib.suppress(OSError):
                    self._write()
            except OSError:
                # The file system may fail for a moment; the next beat tries again.
                continue


def worker_file(directory: Path, name: str) -> Path:
    return directory / WORKERS / f"{name}.json"


def is_worker_dead(path: Path) -> bool:
    """Return True if the worker of this file is dead, for a command that cannot wait for a lease.

    A worker on another machine is dead if its file was last touched SILENT_SECONDS ago by this machine's clock. Raises
    OSError.
    """
    try:
        _, touched, has_ended = _read_worker_file(path)
    except FileNotFoundError:
        return True
    return time.time() - touched / 1e9 >= SILENT_SECONDS if has_ended is None else has_ended


def _read_worker_file(path: Path) -> tuple[_WorkerRecord | None, int, bool | None]:
    """Return a worker's record (None if it is damaged), when its file was touched, in nanoseconds, and if it has ended.

    The last is None if only the heartbeat can show that.
    """
    # A network file system asks its server for the current time of change only when a file is opened.
    with path.open("rb") as file:
        touched = os.fstat(file.fileno()).st_mtime_ns
        worker = decode_record(file.read(), _WorkerRecord)
        if worker is None or worker.host != _host_id():
            return worker, touched, None
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return worker, touched, False
        return worker, touched, True


def _host_id() -> str:
    """Return the name and boot of this machine, whose processes see each other's locks."""
    boot = ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{platform.node()} {boot}"
