"""Run the shell command of --on-failure, and check at the start that the shell can run it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping

from fixtures.shown_text import one_line

TIMEOUT_SECONDS = 60
CHECK_SECONDS = 10
SHOWN_CHARACTERS = 80
# A first word without expansions, assignments or quotes: the name of a program, a builtin or a keyword.
PLAIN_WORD = re.compile(r"\s*([\w./+-]+)(?=\s|;|$)")


def check_command(command: str) -> None:
    """Raise ValueError with one line if the shell cannot parse the command, or does not know its first program."""
    if not command.strip():
        raise ValueError("--on-failure: empty; give a shell command")
    syntax = _shell("-n", "-c", command)
    if syntax:
        raise ValueError(f"--on-failure: {_shown(command)} is no shell command ({syntax}); correct it")
    word = PLAIN_WORD.match(command)
    if word and _shell("-c", 'command -v -- "$1" || echo "not found" >&2', "sh", word[1]):
        raise ValueError(f"--on-failure: no program {_shown(word[1])}; give a shell command with programs of this PATH")


def run_command(command: str, facts: Mapping[str, str]) -> str | None:
    """Run a command with facts in its environment; return None if it succeeds, else one line with the problem."""
    try:
        process = subprocess.Popen(
            command, shell=True, env=os.environ | facts, stdin=subprocess.DEVNULL, start_new_session=True
        )
    except (OSError, ValueError) as error:
        return f"cannot start {_shown(command)} ({_reason(error)})"
    try:
        exit_code = process.wait(TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return f"{_shown(command)} took more than {TIMEOUT_SECONDS} s"
    finally:
        # The shell's own children too, and also where a signal ends the watch in the meantime.
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return f"{_shown(command)} ended with code {exit_code}" if exit_code else None


def _shell(*arguments: str) -> str:
    """Run the shell, and return the first line that it writes to stderr."""
    try:
        ended = subprocess.run(
            ["/bin/sh", *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=CHECK_SECONDS, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return _reason(error)
    lines = ended.stderr.decode("utf-8", "replace").strip().splitlines()
    return one_line(lines[0], SHOWN_CHARACTERS) if lines else ""


def _reason(error: Exception) -> str:
    return one_line(getattr(error, "strerror", None) or type(error).__name__, SHOWN_CHARACTERS)


def _shown(command: str) -> str:
    return repr(one_line(command, SHOWN_CHARACTERS))
