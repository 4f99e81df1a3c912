"""A local HTTP server that sends scripted responses."""

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
from openai import _base_client
from tokenizers import Tokenizer

POLL_SECONDS = 0.01
KEYS = ("LONGCTX_API_KEY", "LONGCTX_JUDGE_KEY", "OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_BASE_URL", "OPENAI_LOG")


def forget_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove API keys from the environment, let local requests bypass a proxy, and shorten pauses before retries."""
    monkeypatch.setattr(_base_client, "INITIAL_RETRY_DELAY", 0.02)
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One response of the server."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_seconds: float = 0.0
    """Pause before the response."""
    stall_seconds: float = 0.0
    """Pause in the middle of the body."""
    cut: bool = False
    """Drop the connection in the middle of the body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request that the server received."""

    path: str
    authorization: str | None
    headers: str
    body: dict[str, Any]

    @property
    def text(self) -> str:
        """The content of a chat's last message."""
        return str(self.body["messages"][-1]["content"])

    @property
    def prompt(self) -> str | list[int]:
        """The prompt of a completion request."""
        prompt: str | list[int] = self.body["prompt"]
        return prompt


def completion(text: str | None, *, finish: str = "stop", delay_seconds: float = 0.0) -> Response:
    """Return a chat completion with this text."""
    message = {"role": "assistant", "content": text}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"} | {
        "choices": [{"index": 0, "message": message, "finish_reason": finish}]
    }
    return in_json(body, delay_seconds=delay_seconds)


def text_completion(
    text: str,
    *,
    read: int,
    written: int | None = None,
    finish: str = "stop",
    cached: int | None = None,
    delay_seconds: float = 0.0,
    **changes: Any,
) -> Response:
    """Return a completion with this text and token counts: `read` of the prompt, `written` of the answer.

    An answer without `written` counts 3 tokens, or none if it reached its limit, which the server does not know.
    """
    usage = _usage(read, written, finish)
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    body = {"id": "1", "object": "text_completion", "created": 1, "model": "m", "usage": usage} | {
        "choices": [{"index": 0, "text": text, "finish_reason": finish}]
    }
    return in_json(body | changes, delay_seconds=delay_seconds)


def chat_completion(text: str | None, *, read: int, finish: str = "stop", **message: Any) -> Response:
    """Return a chat completion with token counts and the additional fields of reasoning models."""
    content = {"role": "assistant", "content": text} | message
    usage = _usage(read, None, finish)
    return in_json({"usage": usage, "choices": [{"index": 0, "message": content, "finish_reason": finish}]})


def _usage(read: int, written: int | None, finish: str) -> dict[str, Any]:
    if written is None and finish == "length":
        return {"prompt_tokens": read, "total_tokens": read}
    written = 3 if written is None else written
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def in_json(body: object, *, status: int = 200, delay_seconds: float = 0.0, **headers: str) -> Response:
    """Return a JSON response; header names are written with underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(
        status=status,
        body=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"} | named,
        delay_seconds=delay_seconds,
    )


def needles_within(reach: int, checkpoint: Path, *, delay_seconds: float = 0.0) -> Callable[[Request], Response]:
    """Return a function that answers single and multi-key needle tasks with needles at most `reach` tokens back.

    The server answers like the calibration checkpoint with that window and counts with its tokenizer, but computes
    nothing.
    """
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))

    def answer(request: Request) -> Response:
        prompt = request.prompt
        ids = tokenizer.encode(prompt).ids if isinstance(prompt, str) else prompt
        seen = tokenizer.decode(ids[-reach:])
        question = re.search(r"(\S+) mentioned in the provided text is$", seen)
        needle = question and re.search(rf"for {re.escape(question[1])} is: ([\w-]+)", seen)
        return text_completion(f" {needle[1]}" if needle else "", read=len(ids), delay_seconds=delay_seconds)

    return answer


@contextmanager
def served_needles(reach: int, checkpoint: Path, *, delay_seconds: float = 0.0) -> Iterator[str]:
    """Serve `needles_within` and yield the option that makes a run ask this server, so that it loads no weights."""
    with ChatServer().serving() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        server.answer = needles_within(reach, checkpoint, delay_seconds=delay_seconds)
        yield f"--base-url={server.url}"


class ChatServer:
    """A server that sends the responses of `queue` first, then those that the function `answer` returns."""

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
    def serving(self) -> "Iterator[ChatServer]":
        thread = threading.Thread(target=self._server.serve_forever, args=(POLL_SECONDS,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.end()
            thread.join()

    def end(self) -> None:
        """Stop listening, and answer no request that is in progress; may be called twice."""
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
                    # A server that has ended does not answer on open connections either.
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
                except OSError:  # the client no longer waits
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

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class names it so
                pass

        return Handler
