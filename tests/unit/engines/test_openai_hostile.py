"""The openai engine against replies that break HTTP, JSON or limits: answers are read, anything else is one line."""

import contextlib
import gzip
import json
import socket
import socketserver
import struct
import threading
import time
import urllib.parse
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from longctx.fixtures.engines import EngineError
from longctx.fixtures.engines.openai.endpoint import Endpoint, ServerSettings
from longctx.fixtures.engines.openai.engine import OpenAIEngine
from longctx.fixtures.http import connection
from longctx.fixtures.http.retry import RetryPolicy
from longctx.fixtures.records import Generation
from tests.helpers.clients import EXACT, Words, asking
from tests.helpers.servers import forget_keys

KEY = "sk-4f1e9a77c0ffee5ecretQzW0123456789"
NUMBER = "8142739"
PROMPT = f"the number is {NUMBER}"
# A busy machine may be slow to answer; a server that does not answer costs all of its time.
SOUND_REQUEST_SECONDS, REQUEST_SECONDS = 30.0, 0.4
# The most that all tries of a prompt may take, on a very busy machine.
MOST_SECONDS = 200.0
# Longer than any request waits, and than all tries may take.
NEVER_SECONDS = 300.0
# A reply: bytes, pauses in seconds, `reset` of the connection, and `again`, which repeats the step before it.
Steps = tuple[bytes | float | str, ...]

RIGHT: dict[str, Any] = {
    "id": "1", "object": "text_completion", "model": "m",
    "choices": [{"index": 0, "text": f" {NUMBER}", "finish_reason": "stop", "logprobs": None}],
    "usage": {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7},
}  # fmt: skip
BODY = json.dumps(RIGHT).encode()
OK = b"HTTP/1.1 200 OK\r\n"
HEAD = OK + b"Content-Length: %d\r\n\r\n" % len(BODY)
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
LONG = OK + b"Content-Length: 9000\r\n\r\n"
ZEROS = b"\0" * (20 * 2**20)


def reply(body: bytes, status: str = "200 OK", **headers: str) -> Steps:
    """Return a whole reply; header names are written with underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{name}: {value}\r\n" for name, value in ({"Content-Length": len(body)} | named).items()]
    return (f"HTTP/1.1 {status}\r\n{''.join(lines)}\r\n".encode() + body,)


def changed(part: str, value: Any) -> Steps:
    """Return the right reply with one value of the reply, its choice or its usage replaced."""
    data = json.loads(BODY)
    place, _, name = part.rpartition(".")
    where = {"": data, "choice": data["choices"][0], "usage": data["usage"]}[place]
    where[name] = value
    return reply(json.dumps(data).encode())


def key_forms() -> dict[str, str]:
    """Return the forms in which a server may repeat a key."""
    return {"plain": KEY, "cut": KEY[:20], "quoted": urllib.parse.quote(f" {KEY}/")}


# Replies that hold the answer.
SOUND: dict[str, Steps] = {
    "after 100": (b"HTTP/1.1 100 Continue\r\n\r\n" * 5 + HEAD + BODY,),
    "HTTP 9": (b"HTTP/9.9 200 OK\r\n\r\n" + BODY,),
    "twice": (HEAD + BODY + HEAD + BODY,),
    "until the end": (b"HTTP/1.0 200 OK\r\n\r\n" + BODY,),
    "kept alive": (HEAD + BODY, NEVER_SECONDS),
    "in parts": (HEAD[:9], 0.1, HEAD[9:], 0.1, BODY),
    "as a page": reply(BODY, Content_Type="text/html"),
    "another charset": reply(BODY, Content_Type="a/b; charset=utf-16"),
    "gzip": reply(gzip.compress(BODY), Content_Encoding="gzip"),
    "deflate": reply(zlib.compress(BODY), Content_Encoding="deflate"),
    "byte order mark": reply(b"\xef\xbb\xbf" + BODY),
    "half a character": reply(BODY.replace(b'"text": "', b'"text": "\\ud800')),
    "not a number elsewhere": reply(BODY[:-1] + b', "x": NaN}'),
    "cached tokens of null": changed("usage.prompt_tokens_details", {"cached_tokens": None}),
    **{f"key, {form}": changed("choice.text", f" {NUMBER} {text} ") for form, text in key_forms().items()},
}
TEXTS: tuple[Any, ...] = (None, 3, [" 1"], {})
BROKEN: dict[str, Steps] = {
    "no reply": (),
    "reset at once": ("reset",),
    "reset in headers": (HEAD[:20], "reset"),
    "reset in the body": (HEAD, BODY[:9], 0.05, "reset"),
    "end in the body": (HEAD, BODY[:9]),
    "chunk without end": (CHUNKED + b'5\r\n{"a"\r\n',),
    "odd chunk": (CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n",),
    "huge chunk": (CHUNKED + b"f" * 40 + b"\r\n{}",),
    "negative length": (OK + b"Content-Length: -5\r\n\r\n" + BODY,),
    "short length": (OK + b"Content-Length: 20\r\n\r\n" + BODY,),
    "two lengths": (OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + BODY,),
    "HTTP 0.9": (BODY,),
    "TLS": (b"\x15\x03\x01\0\2\2P",),
    "zero in a header": (OK + b"A: \0\r\n\r\n" + BODY,),
    "many headers": (OK + b"A: b\r\n" * 50_000,),
    "silent": (NEVER_SECONDS,),
    "headers only": (LONG, NEVER_SECONDS),
    "trickled body": (LONG, b" ", 0.1, "again"),
    "endless chunks": (CHUNKED, b"10000\r\n" + b" " * 65536 + b"\r\n", 0.01, "again"),
    "endless headers": (OK, b"A: b\r\n" * 1000, 0.01, "again"),
    "gzip bomb": reply(gzip.compress(ZEROS), Content_Encoding="gzip"),
    "gzip twice": reply(gzip.compress(gzip.compress(ZEROS)), Content_Encoding="gzip, gzip"),
    "no gzip": reply(BODY, Content_Encoding="gzip"),
    "half a gzip": reply(gzip.compress(BODY)[:-20], Content_Encoding="gzip"),
    "deep": reply(b"[" * 100_000),
    "deep error": reply(b'{"error":' * 900 + b"1" + b"}" * 900),
    "half": reply(BODY[: len(BODY) // 2]),
    "twice in a body": reply(BODY * 2),
    "UTF-16": reply(BODY.decode().encode("utf-16")),
    "broken UTF-8": reply(BODY.replace(b'"text": "', b'"text": "\xff\xfe')),
    "long number": reply(b"1" * 9000),
    "a name twice": reply(BODY[:-1] + b', "choices": []}'),
    "zero byte": reply(BODY.replace(b" ", b"\0")),
    "another model": changed("model", "another model"),
    "an error beside an answer": changed("error", {"message": "lost"}),
    "limit before the limit": changed("choice.finish_reason", "length"),
    "usage in a list": changed("usage", []),
    **{f"reason {value!r}": changed("choice.finish_reason", value) for value in ("abort", None, 0, True, ["stop"])},
    **{f"text {value!r}": changed("choice.text", value) for value in TEXTS},
    **{f"prompt of {value!r}": changed("usage.prompt_tokens", value)
       for value in (None, -1, 0, 3, 10**30, True, "4", 3.5, [4], float("nan"))},
    **{f"answer of {value!r}": changed("usage.completion_tokens", value)
       for value in (True, "3", [3], float("nan"), -5, 10**24)},
    **{f"status {status}": reply(BODY, status, Location="/v1/again")
       for status in ("201 Odd", "204 Odd", "206 Odd", "302 Odd", "400 Odd", "451 Odd", "500 Odd", "999 Odd", "abc")},
    "error with escapes": reply(b'{"error": {"message": "\\u001b[31mred\\r\\n\\u202e"}}', "400 No"),
    "a long error": reply(json.dumps({"error": "a" * 10**6}).encode(), "400 No"),
    **{f"retry after {value[:9]!r}": reply(b"{}", "429 Slow", Retry_After=value)
       for value in ("-1", "1e3", "1" * 400, "nan", "soon", "Mon, 31 Feb 2026 25:61:61 GMT", f"900 {KEY}")},
    **{f"key in an error, {form}": reply(json.dumps({"error": f"wrong {text}."}).encode(), "401 No")
       for form, text in key_forms().items()},
    **{f"key in a reason, {form}": changed("choice.finish_reason", text) for form, text in key_forms().items()},
}  # fmt: skip


class Server(socketserver.ThreadingTCPServer):
    """Sends the reply of each address /NUMBER/v1/... : a library for HTTP would keep it from most of them."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        """Stay silent: the client may leave at any time."""


NAMES = [*SOUND, *BROKEN]


class Handler(socketserver.StreamRequestHandler):
    """Reads one request to its end, and plays the steps of its reply."""

    def handle(self) -> None:
        line, length = self.rfile.readline().decode(), 0
        while header := self.rfile.readline().strip():
            name, _, value = header.lower().partition(b":")
            length = int(value) if name == b"content-length" else length
        self.rfile.read(length)
        steps = (SOUND | BROKEN)[NAMES[int(line.split("/")[1])]] if line else ()
        for at, step in enumerate(steps):
            if step == "again":
                self.repeat(*steps[at - 2 : at])
            elif step == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
            else:
                self.play(step)

    def play(self, step: bytes | float | str) -> None:
        if isinstance(step, bytes):
            self.connection.sendall(step)
        elif step == NEVER_SECONDS:
            # Ends sooner if the client is gone.
            self.connection.settimeout(NEVER_SECONDS)
            with contextlib.suppress(OSError):
                self.connection.recv(1)
        else:
            time.sleep(float(step))

    def repeat(self, *steps: bytes | float | str) -> None:
        ends = time.monotonic() + NEVER_SECONDS
        while time.monotonic() < ends:
            for step in steps:
                self.play(step)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_keys(monkeypatch)
    monkeypatch.setenv("LONGCTX_API_KEY", KEY)


def answered(url: str, timeout_seconds: float) -> Generation | str:
    """Return the generation for the prompt, or the message of the error in its place."""
    endpoint = Endpoint(
        url=url, model="m", api="completions", prompts="text", prefix="continued", counting=EXACT, answers_as="m"
    )
    settings = ServerSettings(endpoint=endpoint, timeout_seconds=timeout_seconds)
    engine = OpenAIEngine(settings, Words(), RetryPolicy(seconds=0.3))
    try:
        (generation,) = engine.generate(asking(PROMPT))
        return generation
    except EngineError as error:
        return str(error)


def problem_of(name: str, address: str) -> str:
    """Return what is wrong with the answer or the error; empty if nothing is."""
    began = time.monotonic()
    timeout_seconds = SOUND_REQUEST_SECONDS if name in SOUND else REQUEST_SECONDS
    given = answered(f"{address}/{NAMES.index(name)}/v1", timeout_seconds)
    shown = given if isinstance(given, str) else given.text
    if isinstance(given, str) == (name in SOUND):
        return f"{name}: {shown}"
    if any(form in shown for form in key_forms().values()) or KEY[:9] in shown:
        return f"{name}: shows the key ({shown})"
    if isinstance(given, str) and not (given.isprintable() and ";" in given):
        return f"{name}: not one line with a remedy ({given!r})"
    if not isinstance(given, str) and NUMBER not in shown:
        return f"{name}: {given}"
    return f"{name}: took {time.monotonic() - began:.1f} s" if time.monotonic() - began > MOST_SECONDS else ""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_answer_is_read_and_anything_else_is_one_line_without_a_key(address: str) -> None:
    with ThreadPoolExecutor(32) as pool:
        problems = [problem for problem in pool.map(lambda name: problem_of(name, address), NAMES) if problem]
    assert problems == []


def test_a_reply_that_goes_on_ends_at_a_size(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_BODY_BYTES", 2**20)
    said = answered(f"{address}/{NAMES.index('endless chunks')}/v1", SOUND_REQUEST_SECONDS)
    assert isinstance(said, str)
    assert "a reply of more than 1 MiB" in said
