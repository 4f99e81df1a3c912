"""Run the suite's workers as tasks of a Ray cluster that share one journal, then read the verdict from it.

    python -m longctx.ci.ray --workers 8 --gpus-per-worker 1 -- --model /shared/ckpt --lengths 32k --journal /shared/j

Everything after `--` are options of `longctx run`. A task that dies, or whose node is lost, is tried again and goes on
from the journal. When all tasks have ended, a last one evaluates the gates and writes the reports; it computes nothing,
and its exit code is that of this command. The variables LONGCTX_* of this command are passed on to all tasks.

The module imports Ray and the standard library only, and Ray sends its functions to the nodes: the Python of the
cluster needs no package of the suite if --python names one that has them.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

WRONG_USE, INTERRUPTED, INTERNAL_ERROR = 4, 2, 3
# The reports of a run are written by the last task only.
REPORTS = (
    "--report-json", "--report-html", "--report-md", "--junitxml", "--samples-jsonl", "--inspect-log", "--tensorboard",
    "--wandb",
)  # fmt: skip
MOST_RETRIES = 5
# A budget in minutes that ends before the first sample begins.
READ_ONLY = ("--budget", "0.0001")
ADDRESS = re.compile(r"(?:ray://)?\[?(.+?)\]?:(\d+)")
WORKERS = re.compile(r"-n(\d|$)|--numprocesses\b")
STOP_SECONDS, CONNECT_SECONDS, POLL_SECONDS = 60.0, 10.0, 0.1
LAST_LINES = 200
PR_SET_PDEATHSIG = 1  # option of Linux' prctl


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tasks and return the exit code of the last one."""
    args = _parse(sys.argv[1:] if arguments is None else arguments)
    address = os.environ.get("RAY_ADDRESS", "auto")
    try:
        if not _answers(address):
            raise ConnectionError
        import ray

        ray.init(address=address, logging_level="warning")
    except ImportError:
        return _report("ray: not installed for this Python; run this command with a Python that has Ray")
    except (ConnectionError, RuntimeError, ValueError):
        return _report(f"RAY_ADDRESS: no Ray cluster at {address!r}; start one, or use `ray job submit` on it")
    # Importing Ray sets a handler of its own.
    signal.signal(signal.SIGTERM, _interrupt)
    return _measure(ray, args)


def _answers(address: str) -> bool:
    """Return False if an address with a port cannot be reached, for which Ray itself waits more than a minute."""
    with_port = ADDRESS.fullmatch(address)
    with contextlib.suppress(OSError, OverflowError, UnicodeError):
        if with_port:
            socket.create_connection((with_port[1], int(with_port[2])), CONNECT_SECONDS).close()
        return True
    return False


def _parse(words: Sequence[str]) -> argparse.Namespace:
    """Return the arguments; exit with one line and code 4 for those that cannot be used."""
    parser = _Parser(prog="python -m longctx.ci.ray", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workers", type=int, required=True, metavar="N", help="workers, each a task of Ray")
    parser.add_argument(
        "--gpus-per-worker", type=float, default=1.0, metavar="N",
        help="GPUs of a worker, over which its model is spread; 0 for a model on a server (default: 1)",
    )  # fmt: skip
    parser.add_argument("--cpus-per-worker", type=float, default=1.0, metavar="N", help="CPU cores of a worker")
    parser.add_argument(
        "--python", metavar="PATH",
        help="Python with the suite's packages on every node (default: the one of this command if a node has it)",
    )  # fmt: skip
    parser.add_argument("options", nargs=argparse.REMAINDER, metavar="-- OPTIONS", help="options of longctx run")
    args = parser.parse_args(words)
    args.options = args.options[args.options[:1] == ["--"] :]
    journals = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    journals.add_argument("--journal")
    journal: str | None = journals.parse_known_args(args.options)[0].journal
    # Most important first.
    problems = {
        f"--workers: {args.workers}; give a number of at least 1": args.workers < 1,
        f"--gpus-per-worker: {args.gpus_per_worker:g}; give 0, a fraction of one GPU or a whole number": (
            args.gpus_per_worker < 0 or (args.gpus_per_worker > 1 and args.gpus_per_worker % 1 > 0)
        ),
        "-n: a task is one worker; give their number as --workers": any(WORKERS.match(word) for word in args.options),
        "--journal: not given; name a directory that all nodes share": journal is None,
        f"--journal: {journal!r} starts in the directory of a node; give the full path of a directory that all share": (
            journal is not None and not os.path.isabs(journal)
        ),
    }
    for problem, is_there in problems.items():
        if is_there:
            parser.error(problem)
    return args


class _Parser(argparse.ArgumentParser):
    """A parser that reports wrong use in one line, as all commands of the suite do."""

    def error(self, message: str) -> Any:
        sys.exit(_report(message))


def without_reports(options: Sequence[str]) -> list[str]:
    """Return the options of a run that writes no report."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in REPORTS:
        parser.add_argument(name)
    return parser.parse_known_args(options)[1]


def _measure(ray: Any, args: argparse.Namespace) -> int:
    """Run all workers, then the task that reads their journal; return its exit code."""
    task = ray.remote(
        num_gpus=args.gpus_per_worker, num_cpus=args.cpus_per_worker,
        max_retries=MOST_RETRIES, retry_exceptions=[ChildProcessError],
    )(_run_suite)  # fmt: skip
    spread = [f"--gpus-per-worker={args.gpus_per_worker:.0f}"] if args.gpus_per_worker > 1 else []
    variables = {name: value for name, value in os.environ.items() if name.startswith("LONGCTX_")}
    directory = str(Path(__file__).resolve().parents[2])

    def start(name: str, options: Sequence[str], *, shows: bool) -> Any:
        python = args.python or sys.executable
        return task.options(name=name).remote(
            python, [*options, *spread], directory, variables, shows=shows, is_fixed=bool(args.python)
        )

    options = without_reports(args.options)
    workers = {start(f"worker {number}", options, shows=True): number for number in range(1, args.workers + 1)}
    running = dict(workers)
    try:
        while running:
            (ended,), _ = ray.wait(list(running))
            code = _end_of_worker(ray, ended, f"worker {running.pop(ended)}")
            if code is not None:
                return code
        last = start("gates", [*args.options, *READ_ONLY], shows=False)
        running[last] = 0
        code, printed = ray.get(last)
    except KeyboardInterrupt:
        _say("interrupted; the same command continues")
        return INTERRUPTED
    except ray.exceptions.RayError as error:
        return _report(f"gates: {_last_line(error)}", INTERNAL_ERROR)
    finally:
        # Interrupt tasks that have not ended, and wait until they have released their samples.
        for unfinished in running:
            ray.cancel(unfinished)
        if running:
            ray.wait(list(running), num_returns=len(running), timeout=STOP_SECONDS)
    # Ray prints what it has collected of the workers, so that the verdict comes last.
    ray.shutdown()
    sys.stdout.write(printed)
    return int(code)


def _end_of_worker(ray: Any, ended: Any, name: str) -> int | None:
    """Return the exit code with which all workers must end because of this one, None if the others go on."""
    try:
        code, printed = ray.get(ended)
    except ray.exceptions.RayError as error:
        _say(f"{name}: lost {MOST_RETRIES + 1} times; the others go on: {_last_line(error)}")
        return None
    # The last task reports failed gates (exit code 1).
    if code <= 1:
        return None
    lines = [line for line in printed.splitlines() if line.strip()]
    errors = [line for line in lines if line.upper().startswith("ERROR")]
    why = (errors or lines or ["no output"])[-1].removeprefix("ERROR: ")
    return _report(f"{name} ended with code {code}: {why}", code)


def _run_suite(
    python: str, options: Sequence[str], directory: str, variables: Mapping[str, str], *, shows: bool, is_fixed: bool
) -> tuple[int, str]:
    """Run the suite on a node; return its exit code and the last lines that it printed.

    With `shows`, its lines go to the task's log too. Raises ChildProcessError if a signal has ended it.
    """
    python = python if is_fixed or os.path.exists(python) else sys.executable
    # A job with a working directory has its own copy of the suite on every node.
    directory = directory if os.path.isdir(directory) else os.getcwd()
    environment = os.environ | dict(variables)
    try:
        check = [python, "-c", "import longctx.run"]
        missing = subprocess.run(check, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        return WRONG_USE, f"--python: {python!r}: {error.strerror}"
    if missing.returncode:
        return WRONG_USE, f"--python: {python} cannot run the suite in {directory}: {missing.stderr.splitlines()[-1]}"
    child = subprocess.Popen(
        [python, "-m", "longctx", "run", *options, "-n0"], cwd=directory, env=environment, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        preexec_fn=_in_child(),
    )  # fmt: skip
    try:
        printed = _follow(child, shows=shows)
    finally:
        # Interrupt the suite, so that it releases its samples, and kill it if it does not end.
        for number in (signal.SIGINT, signal.SIGKILL):
            if child.poll() is None:
                with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(child.pid, number)
                    child.wait(STOP_SECONDS)
    if child.returncode < 0:
        raise ChildProcessError(f"the suite was ended by {signal.Signals(-child.returncode).name}")
    return child.returncode, printed


def _in_child() -> Callable[[], None]:
    """Return a function for the child that ends it with the task, and lets it receive the signal of Ctrl-C."""
    libc, parent = ctypes.CDLL(None), os.getpid()

    def in_child() -> None:
        # Some processes of Ray block it, and pass that on.
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        if sys.platform == "linux":
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:
                os._exit(1)

    return in_child


def _follow(child: subprocess.Popen[str], *, shows: bool) -> str:
    """Wait for the end of the suite; return its output, of a worker that shows it only the last lines."""
    lines: deque[str] = deque(maxlen=LAST_LINES if shows else None)

    def copy() -> None:
        assert child.stdout is not None
        for line in child.stdout:
            lines.append(line)
            if shows:
                sys.stdout.write(line)
                sys.stdout.flush()

    # Ray cancels a task between two steps of its main thread, which must therefore not wait for a line.
    reader = threading.Thread(target=copy, daemon=True)
    reader.start()
    while child.poll() is None:
        time.sleep(POLL_SECONDS)
    reader.join()
    return "".join(lines)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _last_line(error: BaseException) -> str:
    """Return the last line of an error of Ray, which holds the error of the task itself."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _report(line: str, code: int = WRONG_USE) -> int:
    """Print why the command ends, and return its exit code."""
    _say(f"error: {line}")
    return code


if __name__ == "__main__":
    sys.exit(main())
