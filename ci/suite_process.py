"""The suite as a process: started, watched, never left behind, and not started where its report is there."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
SCHEMA = "longctx-report/1"
DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux' prctl
STOP_SECONDS = 60
# pytest's exit codes of runs that came to their end: all passed, some failed.
ENDED = (0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A run of the suite that has ended: pytest's exit code, its report, and why there is none."""

    code: int
    report: Mapping[str, Any] | None
    reason: str = ""


def run_suite(
    arguments: Sequence[str],
    *,
    report: Path,
    log: Path,
    environment: Mapping[str, str] | None = None,
    again: bool = False,
) -> Ran:
    """Runs pytest in the clone and waits; a report that is already there is taken for the run's, unless `again`.

    `report` therefore has a name that follows from what is asked. It is there only for a run that came
    to its end without an error; one that was killed finds in the journal what it had answered.
    """
    known = None if again else read_report(report)
    if known is not None:
        return Ran(code=0, report=known)
    report.parent.mkdir(parents=True, exist_ok=True)
    partial = report.with_name(f".{report.name}")
    partial.unlink(missing_ok=True)
    with log.open("w", encoding="utf-8") as output:
        command = [sys.executable, "-m", "pytest", *arguments, "--report-json", str(partial)]
        process = start(command, output.fileno(), environment)
        try:
            code = process.wait()
        except BaseException:
            stop(process)
            raise
    found = read_report(partial) if code in ENDED else None
    if found is not None and not any(case["error"] for case in found["cases"]):
        partial.replace(report)
    return Ran(code=code, report=found, reason="" if found else _reason(log, code))


def start(command: Sequence[str], output: int, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """A process of the clone in a group of its own, which ends when this one is killed."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    parent = os.getpid()

    def dies_with_parent() -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGTERM)
            if os.getppid() != parent:
                os._exit(1)

    return subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env=inherited | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=dies_with_parent,  # nothing in it takes a lock
    )


def stop(process: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C would: what was answered is in the journal. Killed where that does not help."""
    for signal_number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is None:
            try:
                os.killpg(process.pid, signal_number)
                process.wait(STOP_SECONDS)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


def read_report(path: Path) -> Mapping[str, Any] | None:
    """A report of the suite; None for anything else."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(report, dict) or report.get("schema") != SCHEMA:
        return None
    return report


def _reason(log: Path, code: int) -> str:
    """The line in which pytest says what is wrong."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    told = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    last = next((line for line in reversed(lines) if line), "it said nothing")
    return told[-1] if told else f"pytest ended with code {code}: {last} (more in {log})"
