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
from dataclasses import dataclass
from pathlib import Path

# Of CPU time.
MOST_SECONDS = 20
# Of waiting, on a busy machine.
MOST_WAIT_SECONDS = 300.0
# By which a forked process may grow, with its children. A fresh process that loads torch holds 450 MiB, so this is
# 1 GiB in all.
MOST_BYTES = 2**30 - 450 * 2**20
# The system refuses to add more, so that no input takes the machine with it.
MOST_DATA_BYTES = 3 * 2**30
CRASH = re.compile(r"Traceback \(most recent call last\)|INTERNALERROR|Segmentation fault|Fatal Python error")
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
    cpu_seconds: float
    peak_bytes: int
    """The most memory that it held beyond what the process held that it was forked from."""
    exit_codes: tuple[int, ...] = (0, 1, 4)
    """The exit codes that the program documents."""

    @property
    def problem(self) -> str | None:
        """Return what is wrong with this end, in a few words; None for one that a user can work with."""
        said = self.output + self.errors
        if self.cpu_seconds > MOST_SECONDS or self.code in (-signal.SIGKILL, -signal.SIGXCPU):
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
        output, errors = Path(folder, "output"), Path(folder, "errors")
        inherited_bytes = _inherited_bytes()
        pid = os.fork()
        if pid == 0:
            _run_child(program, output, errors)
        status, usage = _wait(pid)
        return Outcome(
            code=os.waitstatus_to_exitcode(status),
            output=output.read_text("utf-8", "replace"),
            errors=errors.read_text("utf-8", "replace"),
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            peak_bytes=max(0, usage.ru_maxrss * 1024 - inherited_bytes),
            exit_codes=exit_codes,
        )


def _run_child(program: Callable[[], int], output: Path, errors: Path) -> None:
    """Run the program with its output in files, and end the process."""
    code = 70
    try:
        for number, path in ((1, output), (2, errors)):
            os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600), number)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115  # the process ends with them
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS + 1, MOST_SECONDS + 2))
        most = int(DATA.findall(Path("/proc/self/status").read_text(encoding="ascii"))[0]) * 1024 + MOST_DATA_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        code = program()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(pid: int) -> tuple[int, resource.struct_rusage]:
    """Return the status of a child that has ended, and what it and its own children used; kill one that waits long."""
    ends = time.monotonic() + MOST_WAIT_SECONDS
    while True:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            return status, usage
        if time.monotonic() > ends:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.03)


def _inherited_bytes() -> int:
    """Return what a fork of this process holds at its start: all but the pages of files, which it maps anew."""
    return int(ANONYMOUS.findall(Path("/proc/self/status").read_text(encoding="ascii"))[0]) * 1024
