"""Notify the user of alerts, and retry deliveries that fail."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from longctx.ci.watch.alert_text import culprit_text, headline
from longctx.ci.watch.alerts import Alert
from longctx.ci.watch.history import Notified, Stage, WatchedCheckpoint
from longctx.fixtures.shown_text import one_line, visible

# Between two attempts to deliver a notice.
PAUSE_SECONDS = 60.0
# Chat servers cut or refuse long messages, and Linux refuses variables above 128 KiB.
LINE_CHARACTERS, TEXT_CHARACTERS, PATH_CHARACTERS = 500, 8_000, 4_096
# Slack's rules, which other chat servers follow: these characters would make links and mentions.
CHAT_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """The news of an alert."""

    stage: Stage
    alert: Alert
    measurement: WatchedCheckpoint
    """The measurement of its first bad step that is on disk."""

    @property
    def event(self) -> Notified:
        """The line of the history once it is delivered."""
        alert = self.alert
        return Notified(stage=self.stage, kind=alert.kind, fingerprints=alert.fingerprints, cases=tuple(alert.cases))


def due_stage(alert: Alert, notified: Sequence[Notified]) -> Stage | None:
    """Return the news of an alert that the user was not notified of; None without any.

    An alert that was closed or gone before the user heard of it is no news. One whose step is found by then begins so.
    """
    sent = {event.stage for event in notified if alert.is_same(event)}
    if alert.closed_by is not None:
        return "closed" if sent and "closed" not in sent else None
    if alert.culprit is not None and "found" not in sent and (sent or alert.is_open):
        return "found"
    return "begun" if alert.is_open and not sent else None


@dataclass(slots=True, kw_only=True)
class Notifier:
    """The command and the webhook that receive alerts: a minute each for a notice, which either accepts once."""

    command: str | None = None
    """A shell command for failures, so not for closed alerts; the facts are in variables named LONGCTX_..."""
    webhook: str | None = None
    """An http or https address."""
    clock: Callable[[], float] = time.monotonic
    _failed: dict[tuple[str, Stage], tuple[float, frozenset[str]]] = field(default_factory=dict)
    """By notice that was not delivered, the time of its next attempt, and the options that have accepted it."""

    def is_due(self, alert: Alert, stage: Stage) -> bool:
        """Return True unless a delivery failed so recently that it is not retried yet."""
        due, _ = self._failed.get((alert.name, stage), (0.0, None))
        return self.clock() >= due

    def deliver(self, notice: Notice) -> str | None:
        """Return None if every recipient has accepted the notice, else one line with the first problem."""
        key = (notice.alert.name, notice.stage)
        _, accepted = self._failed.pop(key, (0.0, frozenset[str]()))
        outcomes: dict[str, str | None] = {}
        if self.command is not None and notice.stage != "closed" and "--on-failure" not in accepted:
            outcomes["--on-failure"] = _run_command(self.command, facts(notice))
        if self.webhook is not None and "--webhook" not in accepted:
            outcomes["--webhook"] = post(self.webhook, message(notice))
        problems = {option: problem for option, problem in outcomes.items() if problem is not None}
        if not problems:
            return None
        self._failed[key] = self.clock() + PAUSE_SECONDS, accepted | (outcomes.keys() - problems)
        return "; ".join(f"{option}: {problem}" for option, problem in problems.items())


def facts(notice: Notice) -> dict[str, str]:
    """Return the facts of a notice as environment variables, which hold no NUL and are never too long to pass."""
    measurement = notice.measurement
    return {
        "LONGCTX_ALERT": one_line(notice.alert.name, LINE_CHARACTERS),
        "LONGCTX_EVENT": notice.stage,
        "LONGCTX_HEADLINE": one_line(headline(notice.alert), LINE_CHARACTERS),
        "LONGCTX_CULPRIT": culprit_text(notice.alert),
        "LONGCTX_STEP": str(measurement.step),
        "LONGCTX_CHECKPOINT": _path(measurement.checkpoint),
        "LONGCTX_VERDICT": measurement.verdict,
        "LONGCTX_FAILED": "\n".join(_shortened(measurement.failed)),
        "LONGCTX_REPORT": _path(measurement.report),
    }


def message(notice: Notice) -> dict[str, Any]:
    """Return the facts of a notice as JSON data, with a `text` for chat servers."""
    alert, measurement = notice.alert, notice.measurement
    failed = _shortened(measurement.failed)
    text = headline(alert) + (f"; found by a search: {culprit_text(alert)}" if alert.culprit else "")
    if notice.stage == "closed":
        text = f"{alert.status}: {one_line(text, LINE_CHARACTERS)}"
    else:
        text = f"{one_line(text, LINE_CHARACTERS)}: {measurement.verdict}: {'; '.join(failed)}"
    facts: dict[str, Any] = msgspec.to_builtins(measurement)
    return facts | {
        "text": text.translate(CHAT_ESCAPES),
        "failed": failed,
        "checkpoint": _path(measurement.checkpoint),
        "report": _path(measurement.report),
        "alert": visible(alert.name),
        "event": notice.stage,
        "closed_by": alert.closed_by,
        "culprit": culprit_text(alert) or None,
        "cases": [{"id": name, "points": case.points, "interval": case.interval} for name, case in alert.cases.items()],
    }


def _shortened(lines: Sequence[str]) -> list[str]:
    """Return the lines cut to a length that every recipient takes; a last line counts those left out."""
    shown: list[str] = []
    for line in (one_line(line, LINE_CHARACTERS) for line in lines):
        if sum(map(len, shown)) + len(line) > TEXT_CHARACTERS:
            return [*shown, f"and {len(lines) - len(shown)} more"]
        shown.append(line)
    return shown


def _path(path: str) -> str:
    """Return a path as it is if it can be passed to a program, else in a visible form."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        path = visible(path)
    return path.replace("\0", "\u2400")[:PATH_CHARACTERS]


# Of a whole command or request, however slowly a server replies.
TIMEOUT_SECONDS = 60.0
CHECK_SECONDS = 10
# A name or an IPv4 address, or an IPv6 address.
HOST = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?|[0-9a-f.]*:[0-9a-f:.]*")
SHOWN_CHARACTERS, REASON_CHARACTERS = 80, 120
# A first word without expansions, assignments or quotes: the name of a program, a builtin or a keyword.
PLAIN_WORD = re.compile(r"\s*([\w./+-]+)(?=\s|;|$)")
SEARCH = "bisect"


def read_on_failure(values: Sequence[str]) -> tuple[bool, str | None]:
    """Return True if a search is asked for, and the shell command to run; raise ValueError with one line.

    The shell has to parse the command, and to know its first program.
    """
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
    syntax = _shell("-n", "-c", command)
    if syntax:
        raise ValueError(f"--on-failure: {_shown(command)} is no shell command ({syntax}); correct it")
    word = PLAIN_WORD.match(command)
    if word and _shell("-c", 'command -v -- "$1" || echo "not found" >&2', "sh", word[1]):
        raise ValueError(f"--on-failure: no program {_shown(word[1])}; give a shell command with programs of this PATH")


def _run_command(command: str, facts: Mapping[str, str]) -> str | None:
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


def check_webhook(url: str) -> None:
    """Raise ValueError with one line if nothing can be posted to the address with the proxies of the environment."""
    import httpx2

    try:
        address = httpx2.URL(url)
        host = address.raw_host.decode("ascii")
    except (httpx2.InvalidURL, ValueError) as error:
        raise ValueError(f"--webhook: not an address ({_reason(error)}); correct it") from None
    if address.scheme not in ("http", "https") or not HOST.fullmatch(host):
        raise ValueError("--webhook: not an address; give one like https://hooks.example/T0 or http://10.0.0.1:8080/x")
    if address.port is not None and not 0 < address.port < 2**16:
        raise ValueError(f"--webhook: not an address; port {address.port} is not between 1 and 65535")
    try:
        httpx2.Client().close()
    except (ImportError, OSError, ValueError, httpx2.InvalidURL) as error:
        raise ValueError(
            f"--webhook: the environment's proxy or certificate settings cannot be used ({_reason(error)})"
        ) from None


def post(url: str, data: Mapping[str, Any]) -> str | None:
    """Post the data as JSON; return None if the server accepts it, else one line with the problem.

    The content of the reply is not read, and no text of the server is repeated, because it may repeat the address,
    which may hold a token.
    """
    import httpx2

    body = json.dumps(data).encode("ascii")

    async def status_of_reply() -> int:
        async with (
            # Of the whole reply, however slowly it comes.
            asyncio.timeout(TIMEOUT_SECONDS),
            httpx2.AsyncClient(timeout=TIMEOUT_SECONDS) as client,
            client.stream("POST", url, content=body, headers={"Content-Type": "application/json"}) as response,
        ):
            return response.status_code

    try:
        status = asyncio.run(status_of_reply())
    except (TimeoutError, httpx2.TimeoutException):
        return f"no reply within {TIMEOUT_SECONDS:g} s"
    except (httpx2.ConnectError, OSError) as error:
        return f"no connection ({_reason(error)})"
    except (httpx2.HTTPError, httpx2.InvalidURL, ImportError, RuntimeError, ValueError) as error:
        return f"no valid reply ({type(error).__name__})"
    if 300 <= status < 400:
        return f"the server answered {status}; redirects are not followed, give the final address"
    return None if 200 <= status < 300 else f"the server answered {status}"
