"""Behaviours of the hostile server below JSON: statuses, headers, connections, pauses and sizes."""

from __future__ import annotations

import email.utils
import gzip
import time
import zlib
from collections.abc import Callable, Iterator, Mapping

from tests.fuzz.hostile_replies import altered, endless, raw, refused
from tests.fuzz.hostile_server import Behaviour

MANY_ZEROS = b"\0" * (20 * 2**20)


def statuses() -> Iterator[Behaviour]:
    numbers = (
        *(201, 202, 203, 204, 206, 207, 226, 300, 301, 302, 303, 304, 305, 307, 308, 400, 401, 402, 403, 404, 405, 406),
        *(407, 408, 409, 410, 411, 413, 415, 417, 418, 421, 422, 423, 424, 425, 426, 428, 429, 431, 451, 499, 500, 501),
        *(502, 503, 504, 505, 507, 508, 511, 520, 522, 524, 529, 530, 599, 600, 999),
    )
    for number in numbers:
        yield Behaviour(kind="status", name=f"{number}", respond=refused(f"{number} Odd", Location="/v1/again"))
    for odd in ("99 Low", "2000 High", "abc", "-1 Minus", ""):
        yield Behaviour(kind="status", name=f"odd {odd}", respond=refused(odd))
    for name, body in {"text": "oh", "list": ["oh"], "null": None, "deep": [[[[["oh"]]]]], "number": 5}.items():
        yield Behaviour(kind="status", name=f"500 with {name}", respond=refused("500 Oh", {"error": {"message": body}}))
    respond = refused("400 No", {"error": {"message": "\x1b[31mred\x1b[0m\r\n\u202e <b>&"}})
    yield Behaviour(kind="status", name="400 with escapes", respond=respond)
    yield Behaviour(kind="status", name="400 very long", respond=refused("400 No", {"error": "a" * 10**6}))
    continued = raw(b"HTTP/1.1 100 Continue\r\n\r\n" * 5 + b"HTTP/1.1 200 OK\r\nContent-Length: %LENGTH%\r\n\r\n%BODY%")
    yield Behaviour(kind="right reply", name="after 100", respond=continued, is_sound=True)
    yield Behaviour(kind="status", name="101", respond=raw(b"HTTP/1.1 101 Switch\r\nUpgrade: x\r\n\r\n%BODY%"))


def retry_after() -> Iterator[Behaviour]:
    soon = email.utils.formatdate(time.time() + 1, usegmt=True)
    for number, value in enumerate((
        "", "-1", "0", "0.1", "1e3", "1" * 30, "1" * 400, "nan", "inf", "-inf", "0x10", "1_0", "soon",
        "12 seconds", soon,
        "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "Sun, 06 Nov 1994 08:49:37 +9999999999",
        "Wed, 21 Oct 99999 07:28:00 GMT", "Mon, 31 Feb 2026 25:61:61 GMT", ", , ,", "2026-01-01T00:00:00Z", "\u0661",
        "Fri, 31 Dec 9999 23:59:59 -2359", "Mon, 01 Jan 0001 00:00:00 +2359",
    )):  # fmt: skip
        status = ("429 Slow", "503 Busy")[number % 2]
        name = f"{number} {value[:20]}"
        yield Behaviour(kind="retry-after", name=name, respond=refused(status, {"error": "later"}, Retry_After=value))


def transport() -> Iterator[Behaviour]:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %LENGTH%\r\n\r\n"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    broken: Mapping[str, tuple[bytes | float | str, ...]] = {
        "no reply": (), "reset at once": ("reset",), "half a status line": (b"HTTP/1.1 2",),
        "no end of headers": (head[:-2],),
        "reset in headers": (head[:20], "reset"), "reset before the body": (head, 0.05, "reset"),
        "reset in the body": (head, b'{"choices"', 0.05, "reset"), "end in the body": (head, b'{"choices"'),
        "chunk without end": (chunked, b"5\r\n{\"a\"\r\n"), "odd chunk": (chunked, b"zz\r\n{}\r\n0\r\n\r\n"),
        "negative chunk": (chunked, b"-5\r\n{}\r\n0\r\n\r\n"), "huge chunk": (chunked, b"f" * 40 + b"\r\n{}"),
        "negative length": (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n%BODY%",),
        "text as length": (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n%BODY%",),
        "short length": (b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n%BODY%",),
        "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n%BODY%",),
        "huge length": (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n%BODY%",),
        "http 0.9": (b"%BODY%",), "junk first": (b"\0\1\2\3" * 50 + head + b"%BODY%",),
        "tls": (b"\x15\x03\x01\0\2\2P",),
        "http 2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",), 
        "zero in a header": (b"HTTP/1.1 200 OK\r\nA: \0\r\nContent-Length: %LENGTH%\r\n\r\n%BODY%",),
        "no colon": (b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n%BODY%",),
        "a long header": (b"HTTP/1.1 200 OK\r\nA: " + b"a" * 300_000,),
        "many headers": (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 50_000,),
    }  # fmt: skip
    for name, steps in broken.items():
        yield Behaviour(kind="transport", name=name, respond=raw(*steps))
    whole: Mapping[str, tuple[bytes | float | str, ...]] = {
        "http 9": (b"HTTP/9.9 200 OK\r\n\r\n%BODY%",), "twice": (head + b"%BODY%" + head + b"%BODY%",),
        "and more": (head + b"%BODY%junk",),
        "until the end": (b"HTTP/1.0 200 OK\r\n\r\n%BODY%",), "kept alive": (head + b"%BODY%", "stall"),
        "as a page": (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %LENGTH%\r\n\r\n%BODY%",),
        "wrong charset": (b"HTTP/1.1 200 OK\r\nContent-Type: a/b; charset=utf-16\r\n\r\n%BODY%",),
        "odd header": (b"HTTP/1.1 200 OK\r\nA: \xe9\r\nContent-Length: %LENGTH%\r\n\r\n%BODY%",),
        "in parts": (head[:9], 0.1, head[9:], 0.1, b"%BODY%"),
    }  # fmt: skip
    for name, steps in whole.items():
        yield Behaviour(kind="right reply", name=name, respond=raw(*steps), is_sound=True)


def slow() -> Iterator[Behaviour]:
    head, chunked = (
        b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    )
    yield Behaviour(kind="slow", name="silent", respond=raw("stall"))
    yield Behaviour(kind="slow", name="one byte", respond=raw(b"H", "stall"))
    yield Behaviour(kind="slow", name="headers only", respond=raw(head, "stall"))
    yield Behaviour(kind="slow", name="half a body", respond=raw(head, b'{"choices": [', "stall"))
    yield Behaviour(kind="slow", name="late", respond=raw(4.0, head, b"%BODY%"))
    for name, before, data in (
        ("body", head, b" "), ("chunks", chunked, b"1\r\n \r\n"),
        ("error body", b"HTTP/1.1 500 Oh\r\nContent-Length: 9000\r\n\r\n", b"x"),
        ("redirect body", b"HTTP/1.1 302 Go\r\nLocation: /\r\nContent-Length: 9000\r\n\r\n", b"x"),
    ):  # fmt: skip
        yield Behaviour(kind="slow", name=f"trickled {name}", respond=endless(data, before=before, pause_seconds=0.1))


def sizes() -> Iterator[Behaviour]:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    yield Behaviour(
        kind="size", name="endless chunks", respond=endless(b"10000\r\n" + b" " * 65536 + b"\r\n", before=chunked)
    )
    yield Behaviour(kind="size", name="endless tiny chunks", respond=endless(b"1\r\n \r\n" * 1000, before=chunked))
    yield Behaviour(kind="size", name="endless headers", respond=endless(b"A: b\r\n", before=b"HTTP/1.1 200 OK\r\n"))
    bomb, twice = gzip.compress(MANY_ZEROS), gzip.compress(gzip.compress(MANY_ZEROS))
    for name, alter, encoding in (
        ("gzip bomb", lambda _: bomb, "gzip"), ("gzip twice", lambda _: twice, "gzip, gzip"),
        ("deflate bomb", lambda _: zlib.compress(MANY_ZEROS), "deflate"), ("no gzip", lambda body: body, "gzip"),
        ("half a gzip", lambda body: gzip.compress(body)[:-20], "gzip"),
    ):  # fmt: skip
        yield Behaviour(kind="size", name=name, respond=altered(alter, Content_Encoding=encoding))
    packed: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}
    for name, pack in packed.items():
        respond = altered(pack, Content_Encoding=name)
        yield Behaviour(kind="right reply", name=name, respond=respond, is_sound=True)
