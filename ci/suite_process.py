"""Run the suite as a command of its own: start it, wait for it, stop it with its parent, and reuse its report."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from longctx.fixtures.atomic_files import partial_path
from longctx.fixtures.outside_files import read_outside
from longctx.fixtures.records.report import JsonReport, parse_report
from longctx.fixtures.supervisor import Supervised
from longctx.plugins.config.invocation import pytest_command

POLL_SECONDS = 0.2
REPLACED = "{path} or its baseline was replaced before it was measured; give each checkpoint a directory of its own"
# pytest's exit codes of complete runs: all passed, some failed.
COMPLETE = (0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRun:
    """A finished run of the suite."""

    exit_code: int
    """pytest's exit code; 0 if the report of an earlier run was reused."""
    report: JsonReport | None
    """The JSON report; None if the run did not complete."""
    reason: str = ""
    """One line that says why there is no report."""


class Cancelled(Exception):
    """A run was stopped because its command ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The end of a command."""

    exit_code: int
    reason: str = ""
    """One line that says why the command had no end of its own; empty if it had one."""


class Executor(Protocol):
    """A way to run a command until it ends."""

    def execute(self, command: Sequence[str], *, report: Path, environment: Mapping[str, str] | None) -> Ended:
        """Run the command, with its output beside `report`, the run's own file, whose name no other run has."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalProcesses:
    """Runs commands as child processes."""

    cancelled: threading.Event = field(default_factory=threading.Event)
    """Set by another thread to stop all commands."""

    def execute(self, command: Sequence[str], *, report: Path, environment: Mapping[str, str] | None) -> Ended:
        """Run the command as a process, and stop it if this call ends early; raises Cancelled."""
        # Not the file into which the run of a killed process may still write.
        log = log_of(report)
        log.unlink(missing_ok=True)
        with log.open("w", encoding="utf-8") as output:
            process = start(command, output.fileno(), environment)
            try:
                while not self.cancelled.is_set():
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        return Ended(exit_code=process.wait(POLL_SECONDS))
                raise Cancelled
            except BaseException:
                process.stop()
                raise


def run_suite(
    arguments: Sequence[str],
    *,
    report: Path,
    fingerprints: Sequence[str],
    executor: Executor,
    environment: Mapping[str, str] | None = None,
    again: bool = False,
) -> SuiteRun:
    """Have `executor` run pytest on the suite; reuse a report that is already there unless `again`.

    The name of `report` must therefore identify the run's arguments. The file is written only by complete runs without
    an error. A killed run continues from the journal. `fingerprints` are those of the checkpoints to be measured, the
    model's first; a report on other ones, which were put in their place, counts as no report.
    """
    known = None if again else read_report(report)
    if known is not None and _is_about(known, fingerprints):
        return SuiteRun(exit_code=0, report=known)
    report.parent.mkdir(parents=True, exist_ok=True)
    # Another process may run the same, and the run of a killed one may still be ending.
    partial = partial_path(report)
    command = pytest_command([*arguments, "--report-json", str(partial)])
    try:
        ended = executor.execute(command, report=report, environment=environment)
        return _read_run(ended, partial, report, fingerprints)
    finally:
        partial.unlink(missing_ok=True)


def _read_run(ended: Ended, partial: Path, report: Path, fingerprints: Sequence[str]) -> SuiteRun:
    exit_code = ended.exit_code
    written = read_report(partial) if exit_code in COMPLETE and not ended.reason else None
    if written is not None and not _is_about(written, fingerprints):
        return SuiteRun(exit_code=exit_code, report=None, reason=REPLACED.format(path=written.model.path))
    if written is not None and not any(case.error for case in written.cases):
        partial.replace(report)
    if written is not None or ended.reason:
        return SuiteRun(exit_code=exit_code, report=written, reason="" if written else ended.reason)
    # pytest's last line that begins with ERROR, or else the last line of its output.
    lines = log_lines(log_of(report))
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    reason = errors[-1] if errors else f"pytest ended with code {exit_code}: {lines[-1]} (more in {log_of(report)})"
    return SuiteRun(exit_code=exit_code, report=None, reason=reason)


def workers_on(gpus: Sequence[str]) -> list[str]:
    """Return the option of a run that has a worker for each of several GPUs."""
    return ["-n", str(len(gpus))] if len(gpus) > 1 else []


def environment_of(gpus: Sequence[str]) -> Mapping[str, str] | None:
    """Return the variable of a command that sees these GPUs alone; None for all of them."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else None


def log_of(report: Path) -> Path:
    return report.with_suffix(".log")


def log_lines(log: Path) -> list[str]:
    """Return the lines of a log that are not blank; one line that says so if there is none."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    return [line for line in lines if line] or ["no output"]


def start(
    command: Sequence[str],
    output: int,
    environment: Mapping[str, str] | None = None,
    *,
    first_signal: int = signal.SIGINT,
) -> Supervised:
    """Start a command that ends with this process; its samples so far are in the journal.

    `output` is the file descriptor for its output. Variables of a pytest around this process are not inherited.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    variables = inherited | dict(environment or {})
    return Supervised(command, output=output, environment=variables, first_signal=first_signal)


def read_report(path: Path) -> JsonReport | None:
    """Return a JSON report of the suite, None for a file that is missing or anything else."""
    try:
        return parse_report(read_outside(path))
    except (OSError, ValueError):
        return None


def _is_about(report: JsonReport, fingerprints: Sequence[str]) -> bool:
    """Return True if a report is about the checkpoints with these fingerprints, or about what was made of them."""
    if len(fingerprints) > len(report.models):
        return False
    for fingerprint, model in zip(fingerprints, report.models, strict=False):
        source = model.source.fingerprint if model.source else None
        if fingerprint not in (model.fingerprint, source):
            return False
    return True
