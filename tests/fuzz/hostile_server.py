"""A server with many ways to misbehave, each under a path of its own: `http://127.0.0.1:PORT/BEHAVIOUR/v1`.

It writes to the socket itself, because an HTTP library would keep it from most of them. What a behaviour is not about
is answered correctly, so that a run reaches the place that it is about.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import socketserver
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

Stage = Literal["models", "probe", "answer"]
# The requests before a run are shorter than any sample.
MOST_PROBE_CHARACTERS = 500
# Longer than any run waits; a behaviour also ends when its client is gone.
NEVER_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request."""

    stage: Stage
    model: str
    read: int
    """The number of prompt tokens."""
    text: str
    """The right answer."""
    key: str
    """The key in the Authorization header."""

    def reply(self) -> dict[str, Any]:
        """Return the correct reply."""
        if self.stage == "models":
            return {"object": "list", "data": [{"id": self.model, "root": self.model, "object": "model"}]}
        choice = {"index": 0, "text": self.text, "finish_reason": "stop", "logprobs": None}
        usage = {"prompt_tokens": self.read, "completion_tokens": 3, "total_tokens": self.read + 3}
        return {"id": "1", "object": "text_completion", "model": self.model, "choices": [choice], "usage": usage}


class Wire:
    """The server's end of a connection."""

    def __init__(self, connection: socket.socket):
        self._connection = connection

    def send(self, data: bytes) -> None:
        self._connection.sendall(data)

    def reply(self, body: bytes, *, status: str = "200 OK", headers: Mapping[str, str] | None = None) -> None:
        """Send a whole reply whose headers are correct unless `headers` say otherwise."""
        self.head(status, {"Content-Type": "application/json", "Content-Length": str(len(body))} | dict(headers or {}))
        self.send(body)

    def head(self, status: str, headers: Mapping[str, str]) -> None:
        lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        self.send("\r\n".join(lines).encode("utf-8"))

    def trickle(self, data: bytes, *, pause_seconds: float = 0.1, again: bool = False) -> None:
        """Send single bytes with pauses, over and over with `again`."""
        ends = time.monotonic() + NEVER_SECONDS
        while time.monotonic() < ends:
            for byte in data:
                self.send(bytes([byte]))
                time.sleep(pause_seconds)
            if not again:
                return

    def stall(self) -> None:
        """Send nothing more until the client is gone."""
        self._connection.settimeout(NEVER_SECONDS)
        with contextlib.suppress(OSError):
            while self._connection.recv(65536):
                pass

    def reset(self) -> None:
        """Drop the connection so that the client gets an error instead of an end."""
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._connection.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """One way to reply."""

    kind: str
    name: str
    respond: Callable[[Wire, Request], None]
    stage: Stage = "answer"
    """The requests that it is about."""
    is_sound: bool = False
    """True if the replies hold answers, which must be scored."""

    @property
    def path(self) -> str:
        """The part of the server's address that selects it."""
        return re.sub(r"[^a-z0-9]+", "-", f"{self.kind} {self.name}".lower()).strip("-")


@dataclass
class HostileServer:
    """Serves behaviours by their paths; `count` returns the tokens of a prompt."""

    behaviours: Mapping[str, Behaviour]
    model: str
    count: Callable[[str | list[int]], int]
    port: int = 0
    requests: Counter[tuple[str, Stage]] = field(default_factory=Counter)
    """The number of requests by path and stage."""

    @contextmanager
    def serving(self) -> Iterator[HostileServer]:
        """Serve in threads of this process."""
        with _Server(("127.0.0.1", self.port), _handler(self)) as server:
            self.port = int(server.server_address[1])
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            try:
                yield self
            finally:
                server.shutdown()

    def url(self, behaviour: Behaviour) -> str:
        return f"http://127.0.0.1:{self.port}/{behaviour.path}/v1"

    def respond(self, wire: Wire, path: str, headers: Mapping[str, str], body: bytes) -> None:
        """Answer one request."""
        name, _, rest = path.lstrip("/").partition("/")
        if name == "requests":
            counts = {f"{path} {stage}": count for (path, stage), count in self.requests.items()}
            wire.reply(json.dumps(counts).encode())
            return
        behaviour, prompt = self.behaviours[name], json.loads(body)["prompt"] if body else ""
        stage: Stage = (
            "models" if rest.endswith("models") else "answer" if len(prompt) > MOST_PROBE_CHARACTERS else "probe"
        )
        numbers = re.findall(r"\d{7}", prompt) if isinstance(prompt, str) else []
        request = Request(
            stage=stage, model=self.model, read=self.count(prompt), text=f" {(numbers or ['none'])[0]}",
            key=headers.get("authorization", "").removeprefix("Bearer "),
        )  # fmt: skip
        self.requests[name, stage] += 1
        # Prompts as text, so that the right answer can be read in them.
        if isinstance(prompt, list):
            wire.reply(b'{"error": "text only"}', status="422 No")
        elif behaviour.stage == stage:
            behaviour.respond(wire, request)
        else:
            wire.reply(json.dumps(request.reply()).encode())


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent: the client may leave at any time."""


def _handler(server: HostileServer) -> type[socketserver.StreamRequestHandler]:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            line = self.rfile.readline().decode("latin-1").split()
            headers = {}
            while (header := self.rfile.readline().decode("latin-1").strip()) != "":
                name, _, value = header.partition(":")
                headers[name.lower()] = value.strip()
            body = self.rfile.read(int(headers.get("content-length", "0")))
            if len(line) > 1:
                server.respond(Wire(self.connection), line[1], headers, body)

    return Handler
