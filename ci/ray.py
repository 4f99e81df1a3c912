"""Run the suite's workers as tasks of a Ray cluster that share one journal, then read the verdict from it.

    python -m longctx.ci.ray --workers 8 --gpus-per-worker 1 -- --model /shared/ckpt --lengths 32k --journal /shared/j

Everything after `--` are options of `longctx run`. A task that dies, or whose node is lost, is tried again and goes on
from the journal. When all tasks have ended, a last one evaluates the gates and writes the reports; it computes nothing,
and its exit code is that of this command. The variables LONGCTX_* of this command are passed on to all tasks.

The module imports Ray and the standard library only, and Ray sends its functions to the nodes: the Python of the
cluster needs no package of the suite if --python names one that has them.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WRONG_USE, INTERRUPTED, INTERNAL_ERROR = 4, 2, 3
# The reports of a run are written by the last task only.
REPORTS = (
    "--report-json", "--report-html", "--report-md", "--junitxml", "--samples-jsonl", "--tensorboard", "--wandb",
)  # fmt: skip
MOST_RETRIES = 5
# A budget in minutes that ends before the first sample begins.
READ_ONLY = ("--budget", "0.0001")
WORKERS = re.compile(r"-n(\d|$)|--numprocesses\b")
STOP_SECONDS, POLL_SECONDS = 60.0, 0.1
LAST_LINES = 200


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tasks and return the exit code of the last one."""
    args = _parse(sys.argv[1:] if arguments is None else arguments)
    address = os.environ.get("RAY_ADDRESS", "auto")
    variables = {name: value for name, value in os.environ.items() if name.startswith("LONGCTX_")}
    try:
        import ray

        ray.init(address=address, logging_level="warning", runtime_env={"env_vars": variables})
    except ImportError:
        return _report("ray: not installed for this Python; run this command with a Python that has Ray")
    except (ConnectionError, RuntimeError, ValueError):
        return _report(f"RAY_ADDRESS: no Ray cluster at {address!r}; start one, or use `ray job submit` on it")
    # Importing Ray sets a handler of its own.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return _measure(ray, args)


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(prog="python -m longctx.ci.ray", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", type=int, required=True, metavar="N", help="workers, each a task of Ray")
    parser.add_argument(
        "--gpus-per-worker", type=float, default=1.0, metavar="N",
        help="GPUs of a worker, over which its model is spread; 0 for a model on a server (default: 1)",
    )  # fmt: skip
    parser.add_argument("--cpus-per-worker", type=float, default=1.0, metavar="N", help="CPU cores of a worker")
    parser.add_argument(
        "--python", metavar="PATH", default=sys.executable,
        help="Python with the suite's packages on every node (default: the one of this command if a node has it)",
    )  # fmt: skip
    parser.add_argument("options", nargs=argparse.REMAINDER, metavar="-- OPTIONS", help="options of longctx run")
    args = parser.parse_args(words)
    args.options = args.options[args.options[:1] == ["--"] :]
    journals = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    journals.add_argument("--journal", default="")
    journal, gpus = journals.parse_known_args(args.options)[0].journal, args.gpus_per_worker
    if args.workers < 1:
        parser.error(f"--workers: {args.workers}; give a number of at least 1")
    if gpus < 0 or (gpus > 1 and gpus % 1):
        parser.error(f"--gpus-per-worker: {gpus:g}; give 0, a fraction of one GPU or a whole number")
    if any(WORKERS.match(word) for word in args.options):
        parser.error("-n: a task is one worker; give their number as --workers")
    if not os.path.isabs(journal):
        parser.error(f"--journal: {journal!r}; give the full path of a directory that all nodes share")
    return args


class _Parser(argparse.ArgumentParser):
    """A parser that reports wrong use in one line, as all commands of the suite do."""

    def error(self, message: str) -> Any:
        sys.exit(_report(message))


def without_reports(options: Sequence[str]) -> list[str]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in REPORTS:
        parser.add_argument(name)
    return parser.parse_known_args(options)[1]


def _measure(ray: Any, args: argparse.Namespace) -> int:
    task = ray.remote(
        num_gpus=args.gpus_per_worker, num_cpus=args.cpus_per_worker,
        max_retries=MOST_RETRIES, retry_exceptions=[ChildProcessError],
    )(_run_suite)  # fmt: skip
    spread = [f"--gpus-per-worker={args.gpus_per_worker:.0f}"] if args.gpus_per_worker > 1 else []
    directory = str(Path(__file__).resolve().parents[1])
    options = [*without_reports(args.options), *spread]
    running = {}
    for number in range(1, args.workers + 1):
        name = f"worker {number}"
        running[task.options(name=name).remote(args.python, options, directory, shows=True)] = name
    try:
        while running:
            (ended,), _ = ray.wait(list(running))
            code = _end_of_worker(ray, ended, running.pop(ended))
            if code is not None:
                return code
        last = task.options(name="gates").remote(
            args.python, [*args.options, *spread, *READ_ONLY], directory, shows=False
        )
        running[last] = "gates"
        code, printed = ray.get(last)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; the same command continues\n")
        return INTERRUPTED
    except ray.exceptions.RayError as error:
        return _report(f"gates: {_last_line(str(error))}", INTERNAL_ERROR)
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
        why = _last_line(str(error))
        sys.stderr.write(f"{name}: lost {MOST_RETRIES + 1} times; the others go on: {why}\n")
        return None
    # The last task reports failed gates (exit code 1).
    if code <= 1:
        return None
    errors = [line for line in printed.splitlines() if line.upper().startswith("ERROR")]
    why = _last_line("\n".join(errors) or printed).removeprefix("ERROR: ")
    return _report(f"{name} ended with code {code}: {why}", code)


def _run_suite(python: str, options: Sequence[str], directory: str, *, shows: bool) -> tuple[int, str]:
    """Run the suite on a node; return its exit code and the last lines that it printed.

    With `shows`, its lines go to the task's log too. Raises ChildProcessError if a signal has ended it.
    """
    python = python if os.path.exists(python) else sys.executable
    # A job with a working directory has its own copy of the suite on every node.
    directory = directory if os.path.isdir(directory) else os.getcwd()
    check = [python, "-c", "import longctx.run"]
    missing = subprocess.run(check, cwd=directory, capture_output=True, text=True, check=False)
    if missing.returncode:
        return WRONG_USE, f"--python: {python} cannot run the suite in {directory}: {_last_line(missing.stderr)}"
    supervisor = os.path.join(directory, "longctx", "fixtures", "supervisor.py")
    guard = [python, "-P", supervisor, "guard", str(int(signal.SIGINT)), str(STOP_SECONDS)]
    child = subprocess.Popen(
        [*guard, python, "-m", "longctx", "run", *options, "-n0"], cwd=directory, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        # Some processes of Ray block the signal of Ctrl-C, and pass that on.
        preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, []),
    )  # fmt: skip
    lines: deque[str] = deque(maxlen=LAST_LINES if shows else None)

    def copy() -> None:
        for line in child.stdout or ():
            lines.append(line)
            if shows:
                sys.stdout.write(line)
                sys.stdout.flush()

    # Ray cancels a task between two steps of its main thread, which must therefore not wait for a line.
    reader = threading.Thread(target=copy, daemon=True)
    reader.start()
    try:
        while child.poll() is None:
            time.sleep(POLL_SECONDS)
    finally:
        # The guard interrupts the suite then, so that it releases its samples; so it does when the task is killed.
        if child.stdin is not None:
            child.stdin.close()
        child.wait()
    reader.join()
    if child.returncode < 0:
        raise ChildProcessError(f"the suite was ended by {signal.Signals(-child.returncode).name}")
    return child.returncode, "".join(lines)


def _last_line(text: str) -> str:
    """Return the last line, which in an error of Ray holds the error of the task itself."""
    return ([line for line in text.splitlines() if line.strip()] or ["no output"])[-1]


def _report(line: str, code: int = WRONG_USE) -> int:
    sys.stderr.write(f"error: {line}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
