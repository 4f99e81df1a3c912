"""Who works on a journal, and who is gone: a file per worker, touched for as long as the worker lives."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from fixtures.atomic_files import write_file
from plugins.journal.errors import journal_error

HEARTBEAT_SECONDS = 5.0
LEASE_SECONDS = 60.0
WORKERS = "workers"
NAME = re.compile(r"[0-9A-Za-z-]+-\d+-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """What a worker's file says. `started` is the process's start in clock ticks since boot, where known."""

    host: str
    pid: int
    started: int | None
    run: str


class Watch:
    """Tells what has stayed the same for a whole lease, by this process's own clock.

    Only changes are observed: what the clock of another machine says is never compared with ours.
    """

    def __init__(self, lease_seconds: float, clock: Callable[[], float]):
        self.lease_seconds = lease_seconds
        self.clock = clock
        self._seen: dict[str, tuple[object, float]] = {}

    def is_over(self, name: str, state: object) -> bool:
        """Whether `name` was in this state when it was first looked at, a lease ago or earlier."""
        now = self.clock()
        seen, since = self._seen.setdefault(name, (state, now))
        if seen != state:
            self._seen[name] = (state, now)
            return False
        return now - since >= self.lease_seconds


class Heartbeat:
    """A worker's sign of life in the journal `directory`, as a part of the run named `run`.

    Raises JournalError where its file cannot be written. After a fork it stays the parent's: the child
    needs a Presence of its own.
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
        self.watch = Watch(lease_seconds, clock)
        self._closing = threading.Event()
        try:
            (directory / WORKERS).mkdir(parents=True, exist_ok=True)
            self._write()
        except OSError as error:
            raise journal_error("write", directory, error) from error
        self._heart = threading.Thread(target=self._beat, name="journal heartbeat", daemon=True)
        self._heart.start()

    def is_gone(self, name: str) -> bool:
        """Whether a worker will finish nothing any more, so that its claims are void.

        Known at once of a worker that closed or that ran on this host; of one on another host after
        its file has not been touched for a lease, counted from the first time it is asked for.
        """
        if name == self.name:
            return False
        if not NAME.fullmatch(name):
            return True
        try:
            worker, touched = _look(worker_file(self.directory, name))
        except FileNotFoundError:
            return True
        except OSError:
            return False
        ended = None if worker is None else has_ended(worker)
        return self.watch.is_over(name, touched) if ended is None else ended

    def run_of(self, name: str) -> str | None:
        """The run that a worker belongs to; None where its file is gone or unreadable."""
        if not NAME.fullmatch(name):
            return None
        try:
            worker, _ = _look(worker_file(self.directory, name))
        except OSError:
            return None
        return None if worker is None else worker.run

    def close(self) -> None:
        """Take the sign away, and with it every claim; harmless twice, and in a forked process."""
        if self._closing.is_set() or self.pid != os.getpid():
            return
        self._closing.set()
        self._heart.join(HEARTBEAT_SECONDS)
        with contextlib.suppress(OSError):
            worker_file(self.directory, self.name).unlink()

    def __enter__(self) -> Heartbeat:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _write(self) -> None:
        worker = Worker(host=this_host(), pid=self.pid, started=_process(self.pid)[1], run=self.run)
        write_file(worker_file(self.directory, self.name), json.dumps(asdict(worker)).encode("ascii"))

    def _beat(self) -> None:
        while not self._closing.wait(HEARTBEAT_SECONDS):
            try:
                os.utime(worker_file(self.directory, self.name))
            except FileNotFoundError:
                # Somebody cleaned up under a living worker.
                with contextlib.suppress(OSError):
                    self._write()
            except OSError:
                # A file system that fails for a moment; the next beat tries again.
                continue


def worker_file(directory: Path, name: str) -> Path:
    """Where a worker says who it is."""
    return directory / WORKERS / f"{name}.json"


def is_silent(path: Path, seconds: float) -> bool:
    """Whether the worker of this file is gone, for a command that cannot watch it for a lease.

    A worker of another host counts as gone when it was last heard of so long ago by this machine's
    clock; give more seconds than clocks are apart.
    """
    try:
        worker, touched = _look(path)
    except FileNotFoundError:
        return True
    ended = None if worker is None else has_ended(worker)
    return time.time() - touched / 1e9 >= seconds if ended is None else ended


def has_ended(worker: Worker) -> bool | None:
    """Whether a worker's process is over; None where only its heartbeat can tell."""
    if worker.host != this_host():
        return None
    try:
        os.kill(worker.pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        # The process of another user: there, but it takes no signal from us.
        pass
    state, started = _process(worker.pid)
    if state in ("Z", "X"):
        return True
    if worker.started is None or started is None:
        # Without its start it could be another process under the same number.
        return None
    return started != worker.started


def this_host() -> str:
    """What processes have in common that can see each other: machine, boot and process namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        boot = namespace = ""
    return f"{platform.node()} {boot} {namespace}".strip()


def _process(pid: int) -> tuple[str | None, int | None]:
    """State and start of a process (proc(5), stat, fields 3 and 22); None where /proc does not tell."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        # The command's name, in brackets, may hold blanks and brackets itself.
        fields = text.rpartition(")")[2].split()
        return fields[0], int(fields[19])
    except (OSError, ValueError, IndexError):
        return None, None


def _look(path: Path) -> tuple[Worker | None, int]:
    """A worker's file and when it was touched (ns); opened afresh, for only that asks a file server."""
    with path.open("rb") as file:
        touched = os.fstat(file.fileno()).st_mtime_ns
        data = file.read()
    try:
        worker = Worker(**json.loads(data))
    except (ValueError, TypeError):
        return None, touched
    whole = isinstance(worker.host, str) and isinstance(worker.run, str) and type(worker.pid) is int
    return (worker if whole and worker.pid > 0 else None), touched
