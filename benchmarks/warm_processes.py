"""Commands in forks of a process that has imported the large libraries, for benchmarks of many short runs.

A run of the suite on a small checkpoint takes most of its time to import torch and transformers. A fork has them
already; all else is as in a process of its own: its arguments, output, environment, exit code and end.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from ci import suite_process


class WarmProcess:
    """A forked process with the part of `subprocess.Popen` that the watch uses."""

    def __init__(self, arguments: Sequence[str], output: int, environment: Mapping[str, str] | None = None):
        sys.stdout.flush()
        sys.stderr.flush()
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _run(arguments, output, environment or {})

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, without a limit, and return the exit code."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def poll(self) -> int | None:
        """Return the exit code; None while the process is running."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


def preload() -> None:
    """Import what a run of the suite on a checkpoint imports from libraries."""
    import _pytest.junitxml
    import jinja2
    import numpy
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    del _pytest, jinja2, numpy, transformers, AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM
    # A fork of a process that has started threads for kernels could wait for them for ever.
    torch.set_num_threads(1)


def run_warm(arguments: Sequence[str], log: Path) -> int:
    """Run `python ARGUMENTS`, with `-m MODULE` first, and return its exit code; its output goes to `log`."""
    with log.open("w") as output:
        return WarmProcess(arguments, output.fileno()).wait()


def _start(command: Sequence[str], output: int, environment: Mapping[str, str] | None = None) -> WarmProcess:
    """Stand in for `ci.suite_process.start`: fork instead of starting the interpreter anew."""
    return WarmProcess(command[command.index("-m") :], output, environment)


def _run(arguments: Sequence[str], output: int, environment: Mapping[str, str]) -> None:
    code = 70
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.update(environment)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        suite_process.start = _start  # type: ignore[assignment]  # has what the watch uses of Popen
        _, module, *rest = arguments
        sys.argv = [module, *rest]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
