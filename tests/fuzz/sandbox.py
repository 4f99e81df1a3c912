"""One malformed input in a forked process, with limits on time and memory."""

from __future__ import annotations

import os
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MOST_SECONDS = 20.0
# By which a forked process may grow, with its children. A fresh process that loads torch holds 450 MiB, so this is
# 1 GiB in all.
MOST_BYTES = 2**30 - 450 * 2**20
# The system refuses to add more, so that no input takes the machine with it.
MOST_DATA_BYTES = 3 * 2**30
CRASH = re.compile(r"Traceback \(most recent call last\)|INTERNALERROR|Segmentation fault|Fatal Python error")
# Between two looks at the memory of children, each of which takes some milliseconds.
LOOK_SECONDS = 0.2
PRIVATE = re.compile(r"^Private_\w+: +([0-9]+) kB", re.MULTILINE)
ANONYMOUS = re.compile(r"^RssAnon:\s+([0-9]+) kB", re.MULTILINE)
DATA = re.compile(r"^VmData:\s+([0-9]+) kB", re.MULTILINE)
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a program ended on one input."""

    code: int
    """The exit code; the negative number of the signal that ended it."""
    output: str
    errors: str
    elapsed_seconds: float
    """The time from start to end, without the time for which a busy machine had no CPU for it."""
    peak_bytes: int
    """The most memory that it held beyond what the process held that it was forked from."""
    exit_codes: tuple[int, ...] = (0, 1, 4)
    """The exit codes that the program documents."""

    @property
    def problem(self) -> str | None:
        """Return what is wrong with this end, in a few words; None for one that a user can work with."""
        said = self.output + self.errors
        if self.elapsed_seconds > MOST_SECONDS:
            return "no end"
        if crash := CRASH.search(said):
            return crash.group()
        if self.code not in self.exit_codes and not (self.code == 5 and "nothing selected: " in said):
            return f"exit code {self.code}"
        if self.code == 4 and len([line for line in self.errors.splitlines() if line.strip()]) != 1:
            return "not one line"
        if self.peak_bytes > MOST_BYTES:
            return "too much memory"
        return "control characters" if CONTROL.search(said) else None


def run_forked(program: Callable[[], int], exit_codes: tuple[int, ...] = (0, 1, 4)) -> Outcome:
    """Return how `program` ends in a forked copy of this process, whose modules are loaded already."""
    with tempfile.TemporaryDirectory() as folder:
        output, errors, times = Path(folder, "output"), Path(folder, "errors"), Path(folder, "times")
        started, inherited_bytes = time.monotonic(), _inherited_bytes()
        pid = os.fork()
        if pid == 0:
            _run_child(program, output, errors, times)
        code, peak_bytes, delayed_seconds = _wait(pid, started)
        elapsed_seconds = time.monotonic() - started - delayed_seconds
        # This process may notice the end late, if it has to wait for a CPU itself. A killed child wrote no time.
        if times.is_file() and (own := times.read_text(encoding="ascii")):
            elapsed_seconds = min(elapsed_seconds, float(own))
        return Outcome(
            code=code,
            output=output.read_text("utf-8", "replace"),
            errors=errors.read_text("utf-8", "replace"),
            elapsed_seconds=elapsed_seconds,
            peak_bytes=max(0, peak_bytes - inherited_bytes),
            exit_codes=exit_codes,
        )


def _run_child(program: Callable[[], int], output: Path, errors: Path, times: Path) -> None:
    """Run the program with its output in files, write how long it took, and end the process."""
    code, started = 70, time.monotonic()
    try:
        for number, path in ((1, output), (2, errors)):
            os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600), number)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115  # the process ends with them
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        most = int(DATA.findall(Path("/proc/self/status").read_text(encoding="ascii"))[0]) * 1024 + MOST_DATA_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        code = program()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 70
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        seconds = time.monotonic() - started - _delayed_seconds(os.getpid())
        times.write_text(f"{seconds}", encoding="ascii")
        os._exit(code)


def _wait(pid: int, started: float) -> tuple[int, int, float]:
    """Return a child's exit code, its peak memory, and the seconds for which it waited for a CPU.

    A child that takes longer than the limit is killed.
    """
    delayed_seconds, killed, peak_bytes, looked = 0.0, False, 0, started
    while True:
        if time.monotonic() - looked > LOOK_SECONDS:
            peak_bytes, looked = max(peak_bytes, _held_bytes(pid)), time.monotonic()
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), max(peak_bytes, usage.ru_maxrss * 1024), delayed_seconds
        if not killed and time.monotonic() - started > MOST_SECONDS / 4:
            delayed_seconds = _delayed_seconds(pid)
            if time.monotonic() - started - delayed_seconds > MOST_SECONDS + 1:
                os.kill(pid, signal.SIGKILL)
                killed = True
        time.sleep(0.03)


def _held_bytes(pid: int) -> int:
    """Return the memory of a process, and what its children hold for themselves alone."""
    total = 0
    with suppress(OSError, ValueError, IndexError):
        for child in _children(pid):
            total += sum(map(int, PRIVATE.findall(Path(f"/proc/{child}/smaps_rollup").read_text(encoding="ascii"))))
        total = total * 1024 + int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * resource.getpagesize()
    return total


def _inherited_bytes() -> int:
    """Return what a fork of this process holds at its start: all but the pages of files, which it maps anew."""
    return int(ANONYMOUS.findall(Path("/proc/self/status").read_text(encoding="ascii"))[0]) * 1024


def _delayed_seconds(pid: int) -> float:
    """Return for how long a process and its children were ready to run while other programs had the CPUs."""
    total = 0
    for process in (pid, *_children(pid)):
        try:
            total += int(Path(f"/proc/{process}/schedstat").read_text(encoding="ascii").split()[1])
        except (OSError, IndexError):
            continue
    return total / 1e9


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [process for child in map(int, text.split()) for process in (child, *_children(child))]
