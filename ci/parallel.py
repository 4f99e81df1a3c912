"""The options --launch and --parallel: where runs of the suite are executed, and how many at a time."""

from __future__ import annotations

import threading
from argparse import ArgumentParser
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import ParamSpec, TypeVar

from ci.launch import LaunchedJobs, read_template
from ci.suite_process import Executor, LocalProcesses

MOST_PARALLEL = 256
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def add_execution_options(parser: ArgumentParser, *, parallel: str) -> None:
    """Declare --launch, and --parallel with this help text."""
    parser.add_argument(
        "--launch", metavar="TEMPLATE",
        help="hand each measurement to a scheduler, such as 'srun --gpus=8 {command}' (default: a process of this "
        "machine)",
    )  # fmt: skip
    parser.add_argument("--parallel", type=int, default=1, metavar="N", help=f"{parallel} (default: 1)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Runs functions that wait for the suite, up to `parallel` at a time; a context manager."""

    parallel: int = 1
    executor: Executor = field(default_factory=LocalProcesses)
    cancelled: threading.Event = field(default_factory=threading.Event)
    """The event of the executor: it stops everything that runs."""
    _threads: list[ThreadPoolExecutor] = field(default_factory=list)

    def __enter__(self) -> Execution:
        if self.parallel > 1:
            self._threads.append(ThreadPoolExecutor(self.parallel))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Wait for everything that runs; stop it first if an exception ends the block."""
        if kind is not None:
            self.cancelled.set()
        for threads in self._threads:
            threads.shutdown(cancel_futures=True)

    def submit(
        self, function: Callable[Arguments, Result], *arguments: Arguments.args, **options: Arguments.kwargs
    ) -> Future[Result]:
        """Call the function in a thread or, one at a time, in this one, which signals reach directly."""
        if self._threads:
            return self._threads[0].submit(function, *arguments, **options)
        future: Future[Result] = Future()
        future.set_result(function(*arguments, **options))
        return future


def read_execution(launch: str | None, parallel: int, show: Callable[[str], None]) -> Execution:
    """Return the execution that the two options describe; raise ValueError with one line for wrong values."""
    if not 1 <= parallel <= MOST_PARALLEL:
        raise ValueError(f"--parallel: {parallel}; give a number of measurements from 1 to {MOST_PARALLEL}")
    cancelled = threading.Event()
    executor: Executor = LocalProcesses(cancelled=cancelled)
    if launch is not None:
        executor = LaunchedJobs(template=read_template(launch), show=show, cancelled=cancelled)
    return Execution(parallel=parallel, executor=executor, cancelled=cancelled)
