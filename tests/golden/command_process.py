"""A process that runs many commands, each in a fork of its own: `python -m tests.golden.command_process IN OUT`.

IN has the commands in JSON: their words, directory and environment. OUT gets their exit codes and outputs. A fork has
all imports already, so that a command takes a fraction of a second.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

# Commands that end soon after they have imported what all others need.
IMPORTING = (
    ("run", "--model", "no-such-checkpoint", "--suite", "ruler"),
    ("run", "--model", "calibration:512", "--suite", "ruler", "--device", "no-such-device"),
    (
        "run",
        "--model",
        "calibration:512",
        "--suite",
        "ruler",
        "--lengths",
        "4k",
        "--length-tokenizer",
        "no-such-folder",
    ),
    ("watch", "no-such-directory"),
    ("bisect", "--good", "no-such-checkpoint", "--bad", "no-such-checkpoint", "--samples", "0"),
    ("checkpoint", "no-such-checkpoint"),
    ("journal", "no-such-journal"),
    ("tasks", "--help"),
)
SECONDS_FOR_A_COMMAND = 120


def main(source: str, target: str) -> int:
    """Run all commands of a file, one after the other, and write what came of them."""
    commands = json.loads(Path(source).read_text(encoding="utf-8"))
    if len(commands) > len(IMPORTING):
        _import_everything()
    Path(target).write_text(json.dumps([ended(command) for command in commands]), encoding="utf-8")
    return 0


def ended(command: Mapping[str, Any]) -> dict[str, Any]:
    """Return the exit code and the outputs of one command, which runs in a fork."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _become(command, out.fileno(), err.fileno())
        _, status = os.waitpid(pid, 0)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "backslashreplace"))
    return {"code": os.waitstatus_to_exitcode(status), "out": texts[0], "err": texts[1]}


def run_words(words: Sequence[str]) -> int:
    """Run a command in this process and return its exit code; `measure` calls `longctx.measure` with JSON."""
    program, *rest = words
    if program == "pytest":
        sys.argv = ["pytest", *rest]
        return int(pytest.console_main())
    if program == "measure":
        return _measure(rest[0], json.loads(rest[1]))
    os.execv = _run_pytest  # type: ignore[assignment]  # commands call it with texts
    command: Callable[[Sequence[str]], int] = importlib.import_module("longctx.cli").main
    return command(rest)


def _run_pytest(program: str, words: Sequence[str]) -> NoReturn:
    """Run pytest here, where a command would become a process of pytest."""
    sys.argv = [pytest.__file__.replace("__init__", "__main__"), *words[words.index("-m") + 2 :]]
    sys.exit(int(pytest.console_main()))


def _measure(model: str, options: Mapping[str, Any]) -> int:
    longctx = importlib.import_module("longctx")
    try:
        longctx.measure(model, **options)
    except Exception as error:  # any error that a caller can see is recorded
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


def _become(command: Mapping[str, Any], out: int, err: int) -> NoReturn:
    """Give this fork the streams, directory and environment of a command, and end it with the command's code."""
    code = 70
    try:
        # A wrong use ends at once; one that goes on to measure something does not belong into the table.
        signal.alarm(SECONDS_FOR_A_COMMAND)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.chdir(command["directory"])
        os.environ.update(command["environment"])
        code = run_words(command["words"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            sys.stderr.write(end.code + "\n")
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _import_everything() -> None:
    real, environment, printed = os.execv, dict(os.environ), io.StringIO()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for words in IMPORTING:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), contextlib.suppress(SystemExit):
            run_words(["longctx", *words])
    for number, handler in handlers.items():
        signal.signal(number, handler)
    os.execv = real
    os.environ.clear()
    os.environ.update(environment)
    # A fork that collects garbage would copy the memory of all imports.
    gc.disable()
    gc.freeze()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
