"""Hand runs of the suite to a scheduler: the template of --launch, and jobs that are launched again when they are lost.

The template becomes the command of one job, such as `srun --gpus=8 {command}`. It must wait for the job's end. The job
runs `fixtures/supervisor.py` on a job file beside the report, so its own command line is short and needs no quoting.
"""

import contextlib
import itertools
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from longctx.ci.suite_process import POLL_SECONDS, Cancelled, Ended, Executor, LocalProcesses, log_lines, log_of, start
from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.supervisor import job_command

FIELD = re.compile(r"\{(\w+)\}")
COMMAND = "{command}"
# Stands for the words of the command; no argument of a process can contain it.
WORDS = "\0"
# These options take a command as one word; the following words would be arguments of something else.
TAKING_ONE_WORD = ("--wrap", "-c", "-lc")
NAME_CHARACTERS = 40
MAX_LAUNCHES = 6
LAUNCH_AGAIN_SECONDS = 30.0
# The time after which every file system in use shows what another machine has written.
VISIBLE_SECONDS = 10.0


def _filled(template: Sequence[str], command: Sequence[str], name: str) -> list[str]:
    """Return the command line that launches `command` as a job of this name.

    `{command}` as a word of its own becomes the words of the command; behind --wrap and -c, in quotes and in a longer
    word, as in `--wrap={command}`, it becomes one string that is quoted for a shell.
    """
    filled: list[str] = []
    for before, word in itertools.pairwise(["", *template]):
        if word == WORDS and before not in TAKING_ONE_WORD:
            filled += command
            continue
        text = word.replace(WORDS, COMMAND)
        filled.append(FIELD.sub(lambda field: name if field[1] == "name" else shlex.join(command), text))
    return filled


def _read_template(text: str) -> tuple[str, ...]:
    """Return the words of --launch; raise ValueError with one line for a template that cannot be used."""
    try:
        words = shlex.split(re.sub(r"(?<!\S)\{command\}(?!\S)", WORDS, text))
    except ValueError as error:
        raise ValueError(f"--launch: {text!r}: {str(error).lower()}; close every quote") from error
    unknown = [field for field in FIELD.findall(text) if field not in ("command", "name")]
    if unknown:
        raise ValueError(f"--launch: unknown field {{{unknown[0]}}} in {text!r}; use {COMMAND} or {{name}}")
    if COMMAND not in text:
        raise ValueError(f"--launch: no {COMMAND} in {text!r}; write it where the command belongs: 'srun {COMMAND}'")
    if words[0] != WORDS and shutil.which(words[0]) is None:
        raise ValueError(f"--launch: no program {words[0]!r} on this machine; run this where jobs can be submitted")
    return tuple(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LaunchedJobs:
    template: Sequence[str]
    """The words of --launch."""
    show: Callable[[str], None]
    """Prints a line about a job."""
    cancelled: threading.Event
    """Set by another thread to cancel all jobs."""

    def execute(self, command: Sequence[str], *, report: Path, environment: Mapping[str, str] | None) -> Ended:
        """Run the command as a job, and as another one, which continues, if that is lost; raises Cancelled."""
        log_of(report).write_bytes(b"")
        for number in range(1, MAX_LAUNCHES + 1):
            job = _Job(report=report, show=self.show, cancelled=self.cancelled)
            try:
                exit_code = job.run(self.template, command, environment)
            finally:
                job.remove()
            if job.state.get("state") == "ended":
                return Ended(exit_code=job.state["exit_code"])
            last_line = log_lines(job.launch_log)[-1]
            # srun ends with 0 too when the node of its job has crashed.
            if exit_code == 0 and not job.was_seen:
                reason = (
                    f"the launching command ended with code 0 before its job; it must wait for the job's end, as in "
                    f"'sbatch --wait', and the job must see {report.parent} (last line: {last_line})"
                )
                break
            reason = f"the job {job.what_happened}, code {exit_code}: {last_line}"
            if number < MAX_LAUNCHES:
                self.show(f"{report.stem}: {reason}; launching it again ({number} of {MAX_LAUNCHES - 1})")
                if self.cancelled.wait(LAUNCH_AGAIN_SECONDS):
                    raise Cancelled
        return Ended(exit_code=exit_code, reason=f"--launch: {reason}")


@dataclass(slots=True, kw_only=True)
class _Job:
    """One launch: the job file that keeps the job alive, and the state that the job writes beside it."""

    report: Path
    cancelled: threading.Event
    show: Callable[[str], None]
    id: str = field(default_factory=lambda: secrets.token_hex(4))
    """Distinguishes this launch from earlier ones of the same run, whose jobs may still be in a queue."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """The last state; empty if the job has not begun."""
    was_seen: bool = False
    """True if the launching program was there while the job ran."""

    def run(self, template: Sequence[str], command: Sequence[str], environment: Mapping[str, str] | None) -> int:
        """Launch the job and wait for its end; return the launching program's exit code."""
        job = {"id": self.id, "directory": os.getcwd(), "log": str(log_of(self.report)), "command": [*command]}
        write_file(self._file, json.dumps(job).encode())
        # A name that every scheduler accepts: lower-case letters, digits and hyphens, at most 63.
        name = re.sub(r"[^a-z0-9]+", "-", self.report.stem.lower())[:NAME_CHARACTERS].strip("-")
        words = _filled(template, job_command(str(self._file), self.id), f"longctx-{name}-{self.id}")
        with self.launch_log.open("ab") as output:
            launcher = start(words, output.fileno(), environment, first_signal=signal.SIGTERM)
            try:
                while launcher.poll() is None:
                    self._look()
            except BaseException:
                # The job sees that its file is gone, also where the scheduler does not pass on the signal.
                self.remove()
                launcher.stop()
                raise
        self.was_seen = bool(self.state)
        # Wait for the end of the job to become visible.
        deadline = time.monotonic() + VISIBLE_SECONDS
        self.state = self._read_state()
        while self.state.get("state") in (None, "running") and time.monotonic() < deadline:
            self._look()
        return launcher.wait()

    def remove(self) -> None:
        """Delete the job file, so that no job with its id begins or goes on."""
        for path in (self._file, self._state_file):
            path.unlink(missing_ok=True)

    @property
    def what_happened(self) -> str:
        if not self.state:
            return "did not begin"
        return f"{self._place} was {'stopped' if self.state.get('state') == 'stopped' else 'lost'}"

    @property
    def _place(self) -> str:
        number = self.state["scheduler_id"]
        return f"on {self.state['machine']}" + (f" (job {number})" if number else "")

    @property
    def launch_log(self) -> Path:
        """The output of the launching program."""
        return self.report.with_suffix(".launch.log")

    @property
    def _file(self) -> Path:
        return self.report.with_name(f".{self.report.name}.job")

    @property
    def _state_file(self) -> Path:
        return self.report.with_name(f"{self._file.name}.{self.id}")

    def _look(self) -> None:
        """Read what the job has written, and say where it runs; then pause, and raise Cancelled if it is to end."""
        before, self.state = self.state, self._read_state() or self.state
        if self.state.get("state") == "running" and self.state != before:
            self.show(f"{self.report.stem}: running {self._place}")
        if self.cancelled.wait(POLL_SECONDS):
            raise Cancelled

    def _read_state(self) -> Mapping[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            state: dict[str, Any] = json.loads(self._state_file.read_bytes())
            return state
        return {}


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@dataclass(slots=True, kw_only=True)
class Execution:
    """Runs functions that wait for the suite in threads, up to `parallel` at a time; a context manager."""

    parallel: int = 1
    executor: Executor = field(default_factory=LocalProcesses)
    cancelled: threading.Event = field(default_factory=threading.Event)
    """The event of the executor: it stops everything that runs."""
    _threads: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self._threads = ThreadPoolExecutor(self.parallel)

    def __enter__(self) -> "Execution":
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """Wait for everything that runs; stop it first if an exception ends the block."""
        if kind is not None:
            self.cancelled.set()
        self._threads.shutdown(cancel_futures=True)

    def submit(
        self, function: Callable[Arguments, Result], *arguments: Arguments.args, **options: Arguments.kwargs
    ) -> Future[Result]:
        return self._threads.submit(function, *arguments, **options)


def read_execution(launch: str | None, parallel: int, show: Callable[[str], None]) -> Execution:
    """Return the execution that the two options describe; raise ValueError with one line for an unusable template."""
    cancelled = threading.Event()
    executor: Executor = LocalProcesses(cancelled=cancelled)
    if launch is not None:
        executor = _LaunchedJobs(template=_read_template(launch), show=show, cancelled=cancelled)
    return Execution(parallel=parallel, executor=executor, cancelled=cancelled)
