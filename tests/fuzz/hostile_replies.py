"""Replies of the hostile server: the correct one with a value replaced, other statuses, and bytes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

from tests.fuzz.hostile_server import Request, Wire

DELETED: Final = object()


def changed(*path: str | int, to: Any) -> Callable[[Wire, Request], None]:
    """Return the correct reply with one value replaced, or left out."""

    def respond(wire: Wire, request: Request) -> None:
        reply = part = request.reply()
        for step in path[:-1]:
            part = part[step]  # type: ignore[index]  # the path leads through dicts and lists
        if to is DELETED:
            del part[path[-1]]  # type: ignore[arg-type]
        else:
            part[path[-1]] = to  # type: ignore[index]
        wire.reply(json.dumps(reply).encode())

    return respond


def altered(alter: Callable[[bytes], bytes], **headers: str) -> Callable[[Wire, Request], None]:
    """Return the correct reply with its bytes altered."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda wire, request: wire.reply(alter(json.dumps(request.reply()).encode()), headers=named)


def refused(status: str, body: Any = None, **headers: str) -> Callable[[Wire, Request], None]:
    """Return a reply with another status; without a body of its own, it holds the right answer."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    def respond(wire: Wire, request: Request) -> None:
        wire.reply(json.dumps(request.reply() if body is None else body).encode(), status=status, headers=named)

    return respond


def raw(*steps: bytes | float | str) -> Callable[[Wire, Request], None]:
    """Return bytes, pauses in seconds, `reset` and `stall`; %BODY% and %LENGTH% are the right answer's."""

    def respond(wire: Wire, request: Request) -> None:
        body = json.dumps(request.reply()).encode()
        for step in steps:
            if isinstance(step, bytes):
                wire.send(step.replace(b"%LENGTH%", str(len(body)).encode()).replace(b"%BODY%", body))
            elif isinstance(step, str):
                getattr(wire, step)()
            else:
                time.sleep(step)

    return respond


def endless(data: bytes, *, before: bytes = b"", pause_seconds: float = 0.0) -> Callable[[Wire, Request], None]:
    """Return data without an end, in single bytes if there are pauses."""

    def respond(wire: Wire, request: Request) -> None:
        wire.send(before)
        if pause_seconds:
            wire.trickle(data, pause_seconds=pause_seconds, again=True)
        while True:
            wire.send(data)

    return respond
