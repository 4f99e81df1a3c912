"""One command in a forked process, with limits on time and memory."""

import os
import re
import resource
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# Of CPU time, and of waiting on a busy machine.
MOST_SECONDS, MOST_WAIT_SECONDS = 20, 300
# By which a forked process may grow, with its children. A fresh process that loads torch holds 450 MiB, so this is
# 1 GiB in all.
MOST_BYTES = 2**30 - 450 * 2**20
# The system refuses to add more, so that no input takes the machine with it.
MOST_DATA_BYTES = 3 * 2**30
CRASH = re.compile(r"Traceback \(most recent call last\)|INTERNALERROR|Segmentation fault|Fatal Python error")
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f]")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended."""

    code: int
    """The exit code; the negative number of the signal that ended it."""
    output: str
    errors: str
    peak_bytes: int
    """The most memory that it held beyond what the process held that it was forked from."""

    @property
    def problem(self) -> str | None:
        """Return what is wrong with this end, in a few words; None for one that a user can work with."""
        said = self.output + self.errors
        if self.code in (-signal.SIGALRM, -signal.SIGXCPU):
            return "no end"
        if crash := CRASH.search(said):
            return crash.group()
        if self.code not in (0, 1, 4) and not (self.code == 5 and "nothing selected: " in said):
            return f"exit code {self.code}"
        if self.code == 4 and len([line for line in self.errors.splitlines() if line.strip()]) != 1:
            return "not one line"
        if self.peak_bytes > MOST_BYTES:
            return "too much memory"
        return "control characters" if CONTROL.search(said) else None


def run_forked(program: Callable[[], int]) -> Outcome:
    """Return how `program` ends in a forked copy of this process, whose modules are loaded already."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("output", "errors")]
        # A fork begins with all but the pages of files, which it maps anew.
        inherited_bytes = _bytes_of("RssAnon")
        pid = os.fork()
        if pid == 0:
            _run_child(program, files)
        _, status, usage = os.wait4(pid, 0)
        output, errors = (path.read_text("utf-8", "replace") for path in files)
        return Outcome(os.waitstatus_to_exitcode(status), output, errors, usage.ru_maxrss * 1024 - inherited_bytes)


def _bytes_of(name: str) -> int:
    """Return a size of this process."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.findall(rf"^{name}:\s+([0-9]+) kB", status, re.MULTILINE)[0]) * 1024


def _run_child(program: Callable[[], int], files: list[Path]) -> None:
    """Run the program with its output in files, and end the process."""
    code = 70
    try:
        for number, path in enumerate(files, start=1):
            os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600), number)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115  # the process ends with them
        signal.alarm(MOST_WAIT_SECONDS)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS + 2))
        most = _bytes_of("VmData") + MOST_DATA_BYTES
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
