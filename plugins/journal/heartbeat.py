"""Heartbeats: a file per worker that the worker touches every few seconds, so that others notice its death."""

import contextlib
import os
import platform
import re
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec

from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.records import StoredRecord
from longctx.plugins.journal.file_system import journal_errors, make_directory
from longctx.plugins.journal.lines import decode_record, encode_record

HEARTBEAT_SECONDS = 5.0
LEASE_SECONDS = 60.0
# A process whose own heartbeat is older than this was stopped, and has not seen what the others did meanwhile.
PAUSE_SECONDS = 2 * HEARTBEAT_SECONDS
# A worker on another machine is dead if its file was not touched for this time; clocks differ by less.
SILENT_SECONDS = 3600.0
WORKERS = "workers"
WORKER_NAME = re.compile(r"[0-9A-Za-z-]+-\d+-[0-9a-f]{8}")


class _WorkerRecord(StoredRecord, frozen=True, kw_only=True):
    host: str
    """The machine, boot and process namespace (`host_id`)."""
    pid: Annotated[int, msgspec.Meta(ge=1)]
    started: int | None
    """The start time of the process in clock ticks since boot; None if unknown."""
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
        lease_seconds: float = LEASE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ):
        host = re.sub(r"[^0-9A-Za-z-]", "-", platform.node())[:40] or "host"
        self.directory = directory
        self.run = run
        self.pid = os.getpid()
        self.name = f"{host}-{self.pid}-{secrets.token_hex(4)}"
        self.lease_seconds = lease_seconds
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
            worker, touched = _read_worker_file(worker_file(self.directory, name))
        except FileNotFoundError:
            return True
        except OSError:
            return False
        has_ended = worker is not None and _has_exited(worker) is True
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
        return now - since >= self.lease_seconds and is_awake and pauses == self._pauses

    def run_of(self, name: str) -> str | None:
        """Return the run of a worker; None if its file is missing or unreadable."""
        try:
            worker, _ = _read_worker_file(worker_file(self.directory, name))
        except (OSError, ValueError):
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
            others = (path for path in (self.directory / WORKERS).iterdir() if WORKER_NAME.fullmatch(path.stem))
            # Of workers that close at the same time, the last one sees that the others' files are gone.
            if all(is_worker_dead(path) for path in others):
                for call in self.when_last:
                    call()

    def _write(self) -> None:
        worker = _WorkerRecord(host=_host_id(), pid=self.pid, started=_process_state(self.pid)[1], run=self.run)
        write_file(worker_file(self.directory, self.name), encode_record(worker))

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
        worker, touched = _read_worker_file(path)
    except FileNotFoundError:
        return True
    exited = None if worker is None else _has_exited(worker)
    return time.time() - touched / 1e9 >= SILENT_SECONDS if exited is None else exited


def _has_exited(worker: _WorkerRecord) -> bool | None:
    """Return whether a worker's process has ended; None if only its heartbeat can show that."""
    if worker.host != _host_id():
        return None
    try:
        os.kill(worker.pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        # The process exists, but belongs to another user.
        pass
    state, started = _process_state(worker.pid)
    if state in ("Z", "X"):
        return True
    if worker.started is None or started is None:
        # Another process may have the same number now.
        return None
    return started != worker.started


def _read_worker_file(path: Path) -> tuple[_WorkerRecord | None, int]:
    """Return the content of a worker's file (None if it is damaged) and when it was touched, in nanoseconds."""
    # A network file system asks its server for the current time of change only when a file is opened.
    with path.open("rb") as file:
        touched = os.fstat(file.fileno()).st_mtime_ns
        data = file.read()
    return decode_record(data, _WorkerRecord), touched


def _host_id() -> str:
    """Return the machine, boot and process namespace, which two processes share only if they can see one another."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        boot = namespace = ""
    return f"{platform.node()} {boot} {namespace}".strip()


def _process_state(pid: int) -> tuple[str | None, int | None]:
    """Return state and start time of a process (proc(5), stat, fields 3 and 22); None if /proc does not show it."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        # The command's name is in parentheses and may contain spaces and parentheses itself.
        fields = text.rpartition(")")[2].split()
        return fields[0], int(fields[19])
    except (OSError, ValueError, IndexError):
        return None, None
