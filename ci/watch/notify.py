"""Run the command of --on-failure for alerts, and again where it failed."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from longctx.ci.watch.alert_text import culprit_text, headline
from longctx.ci.watch.alerts import Alert
from longctx.ci.watch.history import Notified, Stage
from longctx.fixtures.shown_text import one_line

# Between two attempts to deliver a notice.
PAUSE_SECONDS = 60.0
# Of a whole command.
TIMEOUT_SECONDS = 60.0
CHECK_SECONDS = 10
# Linux refuses variables above 128 KiB.
LINE_CHARACTERS, MOST_LINES = 500, 16
SHOWN_CHARACTERS, REASON_CHARACTERS = 80, 120
# A first word without expansions, assignments or quotes: the name of a program, a builtin or a keyword.
PLAIN_WORD = re.compile(r"\s*([\w./+-]+)(?=\s|;|$)")
SEARCH = "bisect"


def notified(alert: Alert, stage: Stage) -> Notified:
    """Return the line of the history for delivered news."""
    return Notified(stage=stage, kind=alert.kind, fingerprints=alert.fingerprints, cases=tuple(alert.cases))


def due_stage(alert: Alert, notified: Sequence[Notified]) -> Stage | None:
    """Return the news of an alert that the user was not notified of; None without any.

    An alert that was closed or gone before the user heard of it is no news. One whose step is found by then begins so.
    """
    sent = {event.stage for event in notified if alert.is_same(event)}
    if alert.closed_by is not None:
        return None
    if alert.culprit is not None and "found" not in sent and (sent or alert.is_open):
        return "found"
    return "begun" if alert.is_open and not sent else None


@dataclass(slots=True, kw_only=True)
class Notifier:
    """The shell command that gets all news once; a minute passes after an attempt that failed.

    So many failures and a command that hangs do not keep the watch from measuring.
    """

    command: str | None = None
    """Takes the facts from variables named LONGCTX_..."""
    clock: Callable[[], float] = time.monotonic
    _next_attempt: float = 0.0

    @property
    def is_ready(self) -> bool:
        """True unless a delivery failed so recently that nothing is delivered yet."""
        return self.clock() >= self._next_attempt

    def deliver(self, alert: Alert, stage: Stage) -> str | None:
        """Return None if the command has accepted the news, else one line with the problem."""
        problem = None if self.command is None else _run_command(self.command, facts(alert, stage))
        if problem is None:
            return None
        self._next_attempt = self.clock() + PAUSE_SECONDS
        return f"--on-failure: {problem}"


def facts(alert: Alert, stage: Stage) -> dict[str, str]:
    """Return the facts of an alert, and of its first bad step that is on disk, as environment variables."""
    measurement = next((known for known in alert.steps if not known.is_gone), alert.first)
    return {
        "LONGCTX_ALERT": one_line(alert.name, LINE_CHARACTERS),
        "LONGCTX_EVENT": stage,
        "LONGCTX_HEADLINE": one_line(headline(alert), LINE_CHARACTERS),
        "LONGCTX_CULPRIT": culprit_text(alert),
        "LONGCTX_STEP": str(measurement.step),
        "LONGCTX_CHECKPOINT": measurement.checkpoint,
        "LONGCTX_VERDICT": measurement.verdict,
        "LONGCTX_FAILED": "\n".join(one_line(line, LINE_CHARACTERS) for line in measurement.failed[:MOST_LINES]),
        "LONGCTX_REPORT": measurement.report,
    }


def read_on_failure(values: Sequence[str]) -> tuple[bool, str | None]:
    """Return True if a search is asked for, and the command, which the shell must know; raise ValueError."""
    commands = [value for value in values if value != SEARCH]
    if len(commands) > 1:
        raise ValueError(
            f"--on-failure: two commands, {_shown(commands[0])} and {_shown(commands[1])}; join them by ';'"
        )
    for command in commands:
        _check_command(command)
    return SEARCH in values, commands[0] if commands else None


def _check_command(command: str) -> None:
    if not command.strip():
        raise ValueError("--on-failure: empty; give a shell command")
    word = PLAIN_WORD.match(command)
    problem = _shell("-n", "-c", command)
    if word and not problem:
        problem = _shell("-c", 'command -v -- "$1" || echo "no program $1" >&2', "sh", word[1])
    if problem:
        raise ValueError(f"--on-failure: {_shown(command)} is no shell command ({problem}); correct it")


def _run_command(command: str, facts: Mapping[str, str]) -> str | None:
    try:
        process = subprocess.Popen(
            command, shell=True, env=os.environ | facts, stdin=subprocess.DEVNULL, start_new_session=True
        )
    except (OSError, ValueError) as error:
        return f"cannot start {_shown(command)} ({_reason(error)})"
    try:
        exit_code = process.wait(TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return f"{_shown(command)} took more than {TIMEOUT_SECONDS:g} s"
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
    return one_line(getattr(error, "strerror", None) or str(error) or type(error).__name__, REASON_CHARACTERS)


def _shown(command: str) -> str:
    return repr(one_line(command, SHOWN_CHARACTERS))
