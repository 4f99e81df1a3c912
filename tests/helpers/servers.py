"""Real HTTP servers on this machine: one that answers as a test wants it to, one that runs a checkpoint."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

POLL_SECONDS = 0.01
KEYS = ("LONGCTX_API_KEY", "LONGCTX_JUDGE_KEY", "OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_BASE_URL", "OPENAI_LOG")


def forget_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key of whoever runs the tests goes to a server, and no proxy stands before one on this machine."""
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One response; `cut` drops the connection in the middle of the body, a stall waits there."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_seconds: float = 0.0
    stall_seconds: float = 0.0
    cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What came in."""

    path: str
    authorization: str | None
    headers: str
    body: dict[str, Any]

    @property
    def text(self) -> str:
        return str(self.body["messages"][-1]["content"])

    @property
    def prompt(self) -> str | list[int]:
        """Of a request for a completion."""
        given: str | list[int] = self.body["prompt"]
        return given


def completion(text: str | None, *, finish: str = "stop", delay_seconds: float = 0.0) -> Response:
    """A chat completion that says this."""
    message = {"role": "assistant", "content": text}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"} | {
        "choices": [{"index": 0, "message": message, "finish_reason": finish}]
    }
    return in_json(body, delay_seconds=delay_seconds)


def text_completion(
    text: str,
    *,
    read: int,
    written: int = 3,
    finish: str = "stop",
    cached: int | None = None,
    delay_seconds: float = 0.0,
    **changes: Any,
) -> Response:
    """A completion that says this after having read so many tokens of the prompt."""
    usage: dict[str, Any] = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    body = {"id": "1", "object": "text_completion", "created": 1, "model": "m", "usage": usage} | {
        "choices": [{"index": 0, "text": text, "finish_reason": finish}]
    }
    return in_json(body | changes, delay_seconds=delay_seconds)


def chat_completion(text: str | None, *, read: int, finish: str = "stop", **message: Any) -> Response:
    """A chat completion with the fields that reasoning models have besides."""
    said = {"role": "assistant", "content": text} | message
    usage = {"prompt_tokens": read, "completion_tokens": 3, "total_tokens": read + 3}
    return in_json({"usage": usage, "choices": [{"index": 0, "message": said, "finish_reason": finish}]})


def in_json(body: object, *, status: int = 200, delay_seconds: float = 0.0, **headers: str) -> Response:
    """Header names are given with underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(
        status=status,
        body=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"} | named,
        delay_seconds=delay_seconds,
    )


def needles_within(reach: int, checkpoint: Path, *, delay_seconds: float = 0.0) -> Callable[[Request], Response]:
    """Completions of a model that finds what single and multi-key needle tasks ask for, `reach` tokens back or less.

    It counts as the checkpoint's tokenizer does, like the calibration checkpoint of that window, for no computing.
    """
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))

    def answer(request: Request) -> Response:
        prompt = request.prompt
        ids = tokenizer.encode(prompt).ids if isinstance(prompt, str) else prompt
        seen = tokenizer.decode(ids[-reach:])
        asked = re.search(r"(\S+) mentioned in the provided text is$", seen)
        found = asked and re.search(rf"for {re.escape(asked[1])} is: ([\w-]+)", seen)
        return text_completion(f" {found[1]}" if found else "", read=len(ids), delay_seconds=delay_seconds)

    return answer


class ChatServer:
    """Gives the responses of `queue` first, in their order, then what `answer` says to each request."""

    def __init__(self, port: int = 0) -> None:
        self.queue: list[Response] = []
        self.answer: Callable[[Request], Response] = lambda _: completion("nothing")
        self.models: Response = Response(status=404)
        self.list_models: Callable[[], Response] = lambda: self.models
        self.requests: list[Request] = []
        self.at_once = 0
        self.most_at_once = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @contextmanager
    def serving(self) -> Iterator[ChatServer]:
        thread = threading.Thread(target=self._server.serve_forever, args=(POLL_SECONDS,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.end()
            thread.join()

    def end(self) -> None:
        """Nobody listens there any more, and what is on its way is not answered; harmless twice."""
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()

    def _respond(self, request: Request) -> Response:
        with self._lock:
            self.requests.append(request)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            queued = self.queue.pop(0) if self.queue else None
        response = queued or self.answer(request)
        self._ended.wait(response.delay_seconds)
        with self._lock:
            self.at_once -= 1
        return response

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if server._ended.is_set():
                    # A server that is gone answers on no connection that was kept.
                    self.close_connection = True
                    return
                response = server._respond(
                    Request(
                        path=self.path,
                        authorization=self.headers["Authorization"],
                        headers=str(self.headers),
                        body=body,
                    )
                )
                try:
                    self._send(response)
                except OSError:  # The client has given up waiting.
                    self.close_connection = True

            def do_GET(self) -> None:
                self._send(server.list_models())

            def _send(self, response: Response) -> None:
                self.send_response(response.status)
                for name, value in response.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(response.body)))
                self.end_headers()
                half = len(response.body) // 2
                self.wfile.write(response.body[:half])
                if response.stall_seconds:
                    server._ended.wait(response.stall_seconds)
                if not response.cut:
                    self.wfile.write(response.body[half:])
                self.close_connection |= response.cut

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class calls it so
                pass

        return Handler
