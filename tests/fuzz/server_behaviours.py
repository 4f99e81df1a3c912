"""The behaviours of the hostile server, by kind: those of the JSON in its replies here, the others beside this file."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from tests.fuzz import wire_behaviours as wire_level
from tests.fuzz.hostile_replies import DELETED, altered, changed, endless, raw, refused
from tests.fuzz.hostile_server import Behaviour, Request, Stage, Wire

KEY: Final = "sk-4f1e9a77c0ffee5ecretQzW0123456789"
COUNTS = {
    "null": None, "true": True, "a text": "3", "a fraction": 3.5, "a list": [3],
    "not a number": float("nan"),
}  # fmt: skip


def finish_reasons() -> Iterator[Behaviour]:
    at = ("choices", 0, "finish_reason")
    wrong: tuple[Any, ...] = (
        "error", "abort", "content_filter", "repetition", "tool_calls", "function_call", "model_length", "cancelled",
        "insufficient_system_resource", "timeout", "unknown", "not_finished", "", None, 0, 1,
        True, [], ["stop"], {"type": "stop"}, DELETED,
    )  # fmt: skip
    for number, value in enumerate(wrong):
        name = "missing" if value is DELETED else f"{number} {value!r}"
        yield Behaviour(kind="finish reason", name=name, respond=changed(*at, to=value))
    for value in ("stop", " stop", "STOP", "eos", "eos_token", "stop_sequence", "end_turn"):
        yield Behaviour(kind="right finish reason", name=value, respond=changed(*at, to=value), is_sound=True)
    # The reply counts three tokens, and every request asks for more.
    for value in ("length", "max_tokens"):
        yield Behaviour(kind="limit before the limit", name=value, respond=changed(*at, to=value))


def errors() -> Iterator[Behaviour]:
    for name, value in {"object": {"message": "out of memory"}, "text": "crashed", "empty": {}, "false": False}.items():
        yield Behaviour(kind="error", name=f"{name} beside choices", respond=changed("error", to=value))
        yield Behaviour(kind="error", name=f"{name} in a choice", respond=changed("choices", 0, "error", to=value))
    for body in ({"error": {"message": "no"}}, {"detail": "no"}, {"message": "no", "code": 40301}):
        respond = refused("200 OK", body)
        yield Behaviour(kind="error", name=f"alone {next(iter(body))}", respond=respond)
    yield Behaviour(kind="right reply", name="error is null", respond=changed("error", to=None), is_sound=True)


def choices() -> Iterator[Behaviour]:
    one = {"index": 0, "text": " 1", "finish_reason": "stop"}
    for name, value in {
        "none": [], "null": None, "an object": one, "a text": "x", "of null": [None], "of texts": ["x"],
        "nested": [[one]],
        "missing": DELETED, "a number": 3, "an empty object": [{}],
    }.items():  # fmt: skip
        yield Behaviour(kind="choices", name=name, respond=changed("choices", to=value))
    for name, value in {
        "null": None, "a number": 3, "a list": [" 1"], "an object": {}, "true": True, "missing": DELETED,
    }.items():  # fmt: skip
        yield Behaviour(kind="choices", name=f"text is {name}", respond=changed("choices", 0, "text", to=value))
    yield Behaviour(kind="right reply", name="model is null", respond=changed("model", to=None), is_sound=True)
    yield Behaviour(kind="model", name="another", respond=changed("model", to="another model"))


def counts() -> Iterator[Behaviour]:
    read = COUNTS | {"missing": DELETED, "zero": 0, "one": 1, "nearly all": 470, "more": 600}
    for name, value in read.items():
        yield Behaviour(kind="prompt tokens", name=name, respond=changed("usage", "prompt_tokens", to=value))
    for name, value in {"missing": DELETED, "null": None, "a list": [], "a text": "x"}.items():
        yield Behaviour(kind="prompt tokens", name=f"usage {name}", respond=changed("usage", to=value))
    for name, value in (COUNTS | {"missing": DELETED}).items():
        is_sound = name in ("missing", "null")
        respond = changed("usage", "completion_tokens", to=value)
        yield Behaviour(kind="other tokens", name=f"completion {name}", respond=respond, is_sound=is_sound)
        respond = changed("usage", "prompt_tokens_details", to={} if value is DELETED else {"cached_tokens": value})
        yield Behaviour(kind="other tokens", name=f"cached {name}", respond=respond, is_sound=is_sound)
    for name, value in {"a list": [1], "a text": "x", "a number": 5}.items():
        respond = changed("usage", "prompt_tokens_details", to=value)
        yield Behaviour(kind="other tokens", name=f"details {name}", respond=respond)


def bodies() -> Iterator[Behaviour]:
    for name, alter in {
        "empty": lambda _: b"", "null": lambda _: b"null", "list": lambda body: b"[%s]" % body,
        "number": lambda _: b"5",
        "empty object": lambda _: b"{}", "half": lambda body: body[: len(body) // 2],
        "without end": lambda body: body[:-1],
        "and more": lambda body: body + b"x", "twice": lambda body: body * 2, "lines": lambda body: body + b"\n" + body,
        "deep": lambda _: b"[" * 100_000, "deep error": lambda _: b'{"error":' * 900 + b"1" + b"}" * 900,
        "page": lambda body: b"<html>%s</html>" % body, "stream": lambda body: b"data: %s\n\ndata: [DONE]\n" % body,
        "single quotes": lambda body: body.replace(b'"', b"'"), "utf-16": lambda body: body.decode().encode("utf-16"),
        "broken utf-8": lambda body: body.replace(b'"text": "', b'"text": "\xff\xfe'),
        "long number": lambda _: b"1" * 9000,
        "a name twice": lambda body: body[:-1] + b', "choices": []}',
        "zero byte": lambda body: body.replace(b" ", b"\0"),
        "latin-1": lambda body: body.replace(b'"text": "', b'"text": "\xe9'), "a comment": lambda body: b"//\n" + body,
    }.items():  # fmt: skip
        yield Behaviour(kind="body", name=name, respond=altered(alter))
    for name, alter in {
        "byte order mark": lambda body: b"\xef\xbb\xbf" + body, "blanks": lambda body: b" \r\n" + body + b"\n\n",
        "half a character": lambda body: body.replace(b'"text": "', b'"text": "\\ud800'),
        "not a number elsewhere": lambda body: body[:-1] + b', "x": NaN}',
    }.items():  # fmt: skip
        yield Behaviour(kind="right reply", name=name, respond=altered(alter), is_sound=True)


def key_forms(key: str) -> Mapping[str, str]:
    """Return the forms in which a server may repeat a key."""
    return {
        "plain": key, "cut": key[:20], "quoted": urllib.parse.quote(f" {key}/"),
    }  # fmt: skip


def keys() -> Iterator[Behaviour]:
    def echoed(form: str, place: str) -> Callable[[Wire, Request], None]:
        def respond(wire: Wire, request: Request) -> None:
            said = key_forms(request.key)[form]
            if place == "error":
                refused("401 No", {"error": {"message": f"wrong key {said}."}})(wire, request)
            elif place == "page":
                wire.reply(f"<p>{said}</p>".encode(), status="403 No")
            elif place == "answer":
                changed("choices", 0, "text", to=f"{request.text} {said} ")(wire, request)
            else:
                changed("choices", 0, "finish_reason", to=said)(wire, request)

        return respond

    for form in key_forms(KEY):
        for place in ("error", "page", "answer", "reason"):
            yield Behaviour(
                kind=f"key in an {place}", name=form, respond=echoed(form, place), is_sound=place == "answer"
            )
    escaped = altered(
        lambda body: body.replace(b'"text": "', b'"text": "' + b"".join(b"\\u%04x" % ord(c) for c in KEY))
    )
    yield Behaviour(kind="key in an answer", name="escaped once", respond=escaped, is_sound=True)
    waits = refused("429 Slow", {"error": "later"}, Retry_After=f"900 {KEY}")
    yield Behaviour(kind="key in an error", name="retry-after", respond=waits)


def before_the_run(stage: Stage) -> Iterator[Behaviour]:
    """Yield behaviours of the requests before a run, none of which leads to an answer."""
    odd: dict[str, Callable[[Wire, Request], None]] = {
        "401": refused("401 No", {"error": {"message": f"wrong key {KEY}"}}),
        "503": refused("503 Busy", {"error": "x"}),
        "429": refused("429 Slow", {"error": "x"}, Retry_After="1e99"), "reset": raw("reset"), "silent": raw("stall"),
        "trickled": endless(b" ", before=b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n", pause_seconds=0.1),
        "endless headers": endless(b"A: b\r\n", before=b"HTTP/1.1 200 OK\r\n"),
    }  # fmt: skip
    if stage == "models":
        other = [{"id": f"\x1b[31m{KEY}", "root": 5, "max_model_len": True}]
        odd |= {"others": changed("data", to=other), "small": changed("data", 0, "max_model_len", to=5)}
    else:
        odd |= {
            f"count {name}": changed("usage", "prompt_tokens", to=value) for name, value in (COUNTS | {"5": 5}).items()
        }
        odd |= {
            "page": altered(lambda _: b"<html>"),
            "302": refused("302 Go", Location="/"),
            "404": refused("404 No", {}),
        }
    for name, respond in odd.items():
        yield Behaviour(kind=f"before the run: {stage}", name=name, respond=respond, stage=stage)


def model_lists() -> Iterator[Behaviour]:
    """Yield lists of models that say nothing, so that the model's own name is used."""
    for name, respond in {
        "500": refused("500 No"), "404": refused("404 No"), "page": altered(lambda _: b"<html>"),
        "302": refused("302 Go"),
        "null": changed("data", to=None), "empty": changed("data", to=[]),
        "of numbers": changed("data", to=[1, None, "x"]),
        "numbers as names": changed("data", 0, "id", to=5), "odd context": changed("data", 0, "max_model_len", to=-1),
        "huge context": changed("data", 0, "max_model_len", to=10**30), "context is true": changed("data", 0,
        "context_length", to=True),
    }.items():  # fmt: skip
        yield Behaviour(kind="list of models", name=name, respond=respond, stage="models", is_sound=True)


BEHAVIOURS: Mapping[str, Behaviour] = {
    behaviour.path: behaviour
    for behaviour in chain(
        finish_reasons(), errors(), choices(), counts(), bodies(), wire_level.statuses(), wire_level.retry_after(),
        wire_level.transport(), wire_level.slow(), wire_level.sizes(), keys(), before_the_run("models"),
        before_the_run("probe"), model_lists(),
    )
}  # fmt: skip
