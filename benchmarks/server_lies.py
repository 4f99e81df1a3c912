"""Put a proxy that lies in one way before a real server, run the suite against it, and show what the run says.

    python -m benchmarks.server_lies MODEL --url http://127.0.0.1:8000/v1 [--other URL] [--lie NAME] [--api chat]

MODEL is the checkpoint that the server at --url has; --other is a server with other weights, for lies that need one.
Every lie gets a run of its own with a new journal, after one against the honest server. A line of the table has the
lie, the exit code, the mean score and what names the lie: an error or a note of the report. Exits 1 if the honest run
fails or has such a line, or if a lie changes the score by more than five points and no line names it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any
from uuid import uuid4

from tokenizers import Tokenizer

from tests.helpers.servers import ChatServer, Request, Response, in_json

Body = dict[str, Any]
# Prompts of the probe and the canaries are shorter.
SAMPLE_TOKENS = 200
SCORE_TOLERANCE = 5.0


@dataclass
class Proxy:
    """One real server, or two, and what a lie has to remember."""

    url: str
    other: str
    other_model: str
    tokenizer: Tokenizer
    lock: threading.Lock = field(default_factory=threading.Lock)
    samples: int = 0
    """The number of samples that were sent so far."""
    kept: list[Body] = field(default_factory=list)
    """Replies that a lie gives to other requests."""

    def forward(self, request: Request, body: Body | None = None, *, url: str = "") -> Body:
        """Return a real server's reply to a request, or to the body in its place."""
        content = dict(request.body if body is None else body)
        if url == self.other != self.url:
            content["model"] = self.other_model
        data = json.dumps(content).encode()
        sent = urllib.request.Request(
            (url or self.url) + request.path.removeprefix("/v1"), data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(sent, timeout=600) as reply:
            content = json.load(reply)
            return dict(content) | {"model": request.body["model"]}

    def is_sample(self, request: Request) -> bool:
        """Return True for a long prompt."""
        text = text_of(request.body)
        return len(self.tokenizer.encode(text).ids if isinstance(text, str) else text) > SAMPLE_TOKENS

    def count_sample(self, request: Request) -> int:
        """Return the number of samples up to this request; 0 for a request of the probe or a canary."""
        if not self.is_sample(request):
            return 0
        with self.lock:
            self.samples += 1
            return self.samples

    def swap_kept(self, reply: Body) -> Body:
        """Keep a reply, and return the one that was kept before; the reply itself the first time."""
        with self.lock:
            self.kept.append(reply)
            return self.kept.pop(0) if len(self.kept) > 1 else reply


Lie = Callable[[Proxy, Request], Body]


def text_of(body: Body) -> str | list[int]:
    """Return the prompt of a request; of a chat the longest turn, which may stand before the beginning of an answer."""
    text: str | list[int] = _longest_turn(body)["content"] if "messages" in body else body["prompt"]
    return text


def _longest_turn(body: Body) -> Body:
    return max(body["messages"], key=lambda turn: len(turn["content"]))


def with_text(request: Request, change: Callable[[Any], Any]) -> Body:
    """Return the request's body with a changed prompt."""
    body = json.loads(json.dumps(request.body))
    if "messages" in body:
        turn = _longest_turn(body)
        turn["content"] = change(turn["content"])
    else:
        body["prompt"] = change(body["prompt"])
    return dict(body)


def counted_whole(proxy: Proxy, request: Request, body: Body) -> Body:
    """Return the reply to a changed prompt with the prompt tokens of the original."""
    reply = proxy.forward(request, body)
    text = text_of(request.body)
    whole = len(proxy.tokenizer.encode(text).ids) if isinstance(text, str) else len(text)
    changed = text_of(body)
    kept = len(proxy.tokenizer.encode(changed).ids) if isinstance(changed, str) else len(changed)
    reply["usage"]["prompt_tokens"] += whole - kept
    return reply


def cut(kept: Callable[[Any], Any]) -> Lie:
    def lie(proxy: Proxy, request: Request) -> Body:
        if not proxy.is_sample(request):
            return proxy.forward(request)
        return counted_whole(proxy, request, with_text(request, kept))

    return lie


def with_fields(change: Callable[[Body], Body]) -> Lie:
    return lambda proxy, request: proxy.forward(request, change(dict(request.body)))


def limited(change: Callable[[int], int]) -> Callable[[Body], Body]:
    names = ("max_tokens", "max_completion_tokens")
    return lambda body: body | {name: change(body[name]) for name in names if name in body}


def with_reply(change: Callable[[Body, Body], Body]) -> Lie:
    """Return a lie that changes the replies to samples; `change` gets the reply and the request's body."""

    def lie(proxy: Proxy, request: Request) -> Body:
        reply = proxy.forward(request)
        return change(reply, request.body) if proxy.is_sample(request) else reply

    return lie


def set_text(reply: Body, text: str | None, **choice: Any) -> Body:
    first = reply["choices"][0]
    if "message" in first:
        first["message"]["content"] = text
    else:
        first["text"] = text
    first.update(choice)
    return reply


def reply_text(reply: Body) -> str:
    first = reply["choices"][0]
    return str(first["message"]["content"] if "message" in first else first["text"])


def swapped(where: Callable[[int], bool]) -> Lie:
    """Return a lie that serves other weights once `where` holds for the number of samples."""

    def lie(proxy: Proxy, request: Request) -> Body:
        proxy.count_sample(request)
        return proxy.forward(request, url=proxy.other if where(proxy.samples) else "")

    return lie


def alternating(proxy: Proxy, request: Request) -> Body:
    with proxy.lock:
        proxy.samples += 1
        turn = proxy.samples % 2
    return proxy.forward(request, url=proxy.other if turn else "")


def late(change: Callable[[Body], Body]) -> Lie:
    """Return a lie that changes all replies after the first samples."""

    def lie(proxy: Proxy, request: Request) -> Body:
        proxy.count_sample(request)
        reply = proxy.forward(request)
        return change(reply) if proxy.samples > 6 else reply

    return lie


def stored(proxy: Proxy, request: Request) -> Body:
    """Reply by prompt text from a cache that another model has filled."""
    key = json.dumps(text_of(request.body))
    known = next((reply for reply in proxy.kept if reply["key"] == key), None)
    if known is None:
        known = {"key": key, "reply": proxy.forward(request, url=proxy.other)}
        proxy.kept.append(known)
    return dict(known["reply"]) | {"id": uuid4().hex}


def previous(proxy: Proxy, request: Request) -> Body:
    reply = proxy.forward(request)
    if not proxy.is_sample(request):
        return reply
    given = json.loads(json.dumps(proxy.swap_kept(reply)))
    return dict(given) | {"usage": reply["usage"]}


def constant(proxy: Proxy, request: Request) -> Body:
    reply = proxy.forward(request)
    if not proxy.is_sample(request):
        return reply
    with proxy.lock:
        proxy.kept = proxy.kept or [reply]
    return set_text(reply, reply_text(proxy.kept[0]))


def second_choice(reply: Body, _: Body) -> Body:
    return reply | {"choices": reply["choices"] * 2}


def adding(tokens: int) -> Lie:
    """Return a lie that adds words to every prompt and counts them, as a system prompt does."""
    words = "Note well. " * (tokens // 3)

    def lie(proxy: Proxy, request: Request) -> Body:
        return proxy.forward(request, with_text(request, lambda text: words + text if isinstance(text, str) else text))

    return lie


def to_samples(lie: Lie) -> Lie:
    """Return a lie that is told of samples only."""
    return lambda proxy, request: lie(proxy, request) if proxy.is_sample(request) else proxy.forward(request)


def every_third(lie: Lie) -> Lie:
    return lambda proxy, request: (
        lie(proxy, request) if proxy.count_sample(request) % 3 == 1 else proxy.forward(request)
    )


def keyed(key: Callable[[Any], Any], *, samples_only: bool = True) -> Lie:
    """Return a lie that repeats its first reply to every request with the same key, under a new id."""

    def lie(proxy: Proxy, request: Request) -> Body:
        text = json.dumps(
            [key(text_of(request.body)), request.body["max_tokens"], request.body.get("frequency_penalty")]
        )
        reply = proxy.forward(request)
        if samples_only and not proxy.is_sample(request):
            return reply
        with proxy.lock:
            known = next((kept for kept in proxy.kept if kept["key"] == text), None)
            if known is None:
                proxy.kept.append({"key": text, "reply": reply})
                return reply
        return dict(known["reply"]) | {"id": uuid4().hex, "usage": reply["usage"]}

    return lie


def stored_by_request(proxy: Proxy, request: Request) -> Body:
    """Reply from a cache by all that a request asks, but for its salt."""
    body = {name: value for name, value in request.body.items() if name != "cache_salt"}
    key = json.dumps(body, sort_keys=True)
    known = next((kept for kept in proxy.kept if kept["key"] == key), None)
    if known is None:
        known = {"key": key, "reply": proxy.forward(request, url=proxy.other)}
        proxy.kept.append(known)
    return dict(known["reply"]) | {"id": uuid4().hex}


def says_stop(tokens: int) -> Lie:
    def lie(proxy: Proxy, request: Request) -> Body:
        reply = proxy.forward(request, limited(lambda asked: min(asked, tokens))(dict(request.body)))
        return set_text(reply, reply_text(reply), finish_reason="stop")

    return lie


def fewer_counted(reply: Body, _: Body) -> Body:
    reply["usage"]["prompt_tokens"] = reply["usage"]["prompt_tokens"] * 9 // 10
    return reply


def cached_claimed(reply: Body, _: Body) -> Body:
    reply["usage"]["prompt_tokens_details"] = {"cached_tokens": reply["usage"]["prompt_tokens"]}
    return reply


def penalized(body: Body) -> Body:
    return body | {name: PENALTIES[name] for name in PENALTIES if name in body}


PENALTIES = {"frequency_penalty": 0.3, "repetition_penalty": 1.3, "repeat_penalty": 1.3}
LIES: Mapping[str, Lie] = {
    "none": lambda proxy, request: proxy.forward(request),
    # The table of known ones.
    "limit of 16": with_fields(limited(lambda tokens: min(tokens, 16))),
    "ignores the limit": with_fields(limited(lambda tokens: 8 * tokens)),
    "copies the prompt": with_reply(lambda reply, body: set_text(reply, str(body.get("prompt", body.get("messages"))))),
    "replaced in the run": swapped(lambda samples: samples > 8),
    "cuts the start, counts it": cut(lambda text: text[len(text) // 2 :]),
    "previous answer": previous,
    "stored replies": stored,
    "penalty": with_fields(penalized),
    "700 tokens more": adding(700),
    "6 tokens more": adding(6),
    # Others.
    "samples": with_fields(lambda body: body | {"temperature": 1.5}),
    "two models in turn": alternating,
    "replaced and back": swapped(lambda samples: 6 < samples < 40),
    "replaced at once": swapped(lambda samples: samples > 0),
    "cuts the middle, counts it": cut(lambda text: text[: len(text) // 4] + text[-len(text) // 4 :]),
    "cuts the start honestly": lambda proxy, request: (
        proxy.forward(request, with_text(request, lambda text: text[len(text) // 2 :]))
        if proxy.is_sample(request) else proxy.forward(request)
    ),
    "one answer to all": constant,
    "another fingerprint": late(lambda reply: reply | {"system_fingerprint": "fp_2"}),
    "another name": late(lambda reply: reply | {"model": "other"}),
    "two choices": with_reply(second_choice),
    "a tool call": with_reply(lambda reply, _: set_text(reply, None, finish_reason="tool_calls")),
    "a refusal": with_reply(lambda reply, _: set_text(reply, None, message={"content": None, "refusal": "I cannot"})),
    "no counts": with_reply(lambda reply, _: {name: reply[name] for name in reply if name != "usage"}),
    "half of the text": with_reply(lambda reply, _: set_text(reply, reply_text(reply)[:4])),
    "no text": with_reply(lambda reply, _: set_text(reply, "")),
    "limit of 4, says stop": says_stop(4),
    "error in the text": with_reply(lambda reply, _: reply | {"error": {"message": "overloaded"}}),
    "aborted": with_reply(lambda reply, _: set_text(reply, reply_text(reply)[:3], finish_reason="abort")),
    "filtered": with_reply(lambda reply, _: set_text(reply, "", finish_reason="content_filter")),
    "prompt before the answer": with_reply(
        lambda reply, body: set_text(reply, str(body.get("prompt", body.get("messages"))) + reply_text(reply))
    ),
    "limit of 3, says stop": says_stop(3),
    "limit of 4 to samples, says stop": to_samples(says_stop(4)),
    "masks numbers": with_reply(lambda reply, _: set_text(reply, re.sub(r"[0-9]", "*", reply_text(reply)))),
    "drops the end, counts it": cut(lambda text: text[: -len(text) // 4]),
    "swaps the halves": cut(lambda text: text[len(text) // 2 :] + text[: len(text) // 2]),
    "window of a quarter, counts all": cut(lambda text: text[:16] + text[-len(text) // 4 :]),
    "every third answer empty": every_third(with_reply(lambda reply, _: set_text(reply, ""))),
    "every third answer another's": every_third(previous),
    "one answer for a beginning": keyed(lambda text: text[:64]),
    "one answer for an end": keyed(lambda text: text[-24:]),
    "stored by request, new ids": stored_by_request,
    "answers eight times over": with_reply(lambda reply, _: set_text(reply, reply_text(reply) * 40)),
    "one token more, not counted": cut(lambda text: text[:1] + text),
    "counts a tenth less": with_reply(fewer_counted),
    "always says length": with_reply(lambda reply, _: set_text(reply, reply_text(reply), finish_reason="length")),
    "samples for long prompts": to_samples(with_fields(lambda body: body | {"temperature": 1.5})),
    "penalty for long prompts": to_samples(with_fields(penalized)),
    "6 tokens more in long prompts": to_samples(lambda proxy, request: proxy.forward(
        request, with_text(request, lambda text: (text[:6] if isinstance(text, list) else "Note well. " * 2) + text)
    )),
    "claims cached tokens": with_reply(cached_claimed),
    "a stop string of its own": with_fields(lambda body: body | {"stop": [*body.get("stop", []), "4"]}),
    "every second line": cut(lambda text: text[: len(text) // 8] + text[len(text) // 8 : -len(text) // 4 : 2]
                             + text[-len(text) // 4 :]),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The end of one run."""

    exit_code: int
    score: float | None
    """The mean of the cases' scores; None if all have an error."""
    lines: tuple[str, ...]
    """The errors and notes of the report."""


def run_against(lie: Lie, options: argparse.Namespace, rest: list[str], folder: Path) -> Said:
    """Run the suite against the server behind a proxy with this lie."""
    proxy = Proxy(
        url=options.url, other=options.other or options.url, other_model=options.other_model,
        tokenizer=Tokenizer.from_file(str(options.model / "tokenizer.json")),
    )  # fmt: skip

    def answer(request: Request) -> Response:
        try:
            return in_json(lie(proxy, request))
        except urllib.error.HTTPError as error:
            return Response(status=error.code, body=error.read(), headers={"Content-Type": "application/json"})

    def models() -> Response:
        with urllib.request.urlopen(f"{options.url}/models", timeout=60) as reply:
            return Response(body=reply.read(), headers={"Content-Type": "application/json"})

    with ChatServer().serving() as server:
        server.answer, server.list_models = answer, models
        command = [
            sys.executable, "-m", "longctx", "run", "--engine", "openai", "--base-url", server.url,
            "--model", str(options.model), "--api", options.api, "--full", "--journal", str(folder / "journal"),
            "--report-json", str(folder / "report.json"), "-n", "0", *rest,
        ]  # fmt: skip
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    report = folder / "report.json"
    if not report.is_file():
        last = [line for line in (ended.stderr + ended.stdout).splitlines() if line.startswith("ERROR")]
        return Said(exit_code=ended.returncode, score=None, lines=tuple(last[-1:]))
    content = json.loads(report.read_text())
    scores = [case["score"] for case in content["cases"] if case["score"] is not None]
    errors = [case["error"] for case in content["cases"] if case["error"]]
    notes = content.get("server", {}).get("notes", [])
    return Said(
        exit_code=ended.returncode, score=fmean(scores) if scores else None,
        lines=tuple(dict.fromkeys([*errors, *notes])),
    )  # fmt: skip


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--url", required=True, help="address of the server that has the model")
    parser.add_argument("--other", help="address of a server with other weights")
    parser.add_argument("--other-model", default="", help="the name of its model there")
    parser.add_argument("--api", default="completions", choices=("completions", "chat"))
    parser.add_argument("--lie", action="append", choices=LIES, help="only these (default: all)")
    options, rest = parser.parse_known_args()
    rest = rest or ["--suite", "ruler", "--lengths", "512", "--samples", "8", "-k", "niah_single_2 or niah_multivalue"]
    honest, bad = None, 0
    for name in dict.fromkeys(["none", *(options.lie or LIES)]):
        with tempfile.TemporaryDirectory() as folder:
            said = run_against(LIES[name], options, rest, Path(folder))
        honest = said if honest is None else honest
        differs = said.score is None or honest.score is None or abs(said.score - honest.score) > SCORE_TOLERANCE
        is_wrong = bool(said.lines) if name == "none" else differs and not said.lines
        bad += is_wrong
        score = "-" if said.score is None else f"{said.score:.1f}"
        line = said.lines[0][:220] if said.lines else ""
        sys.stdout.write(f"{'WRONG' if is_wrong else 'ok':6}{name:28}{said.exit_code:3}{score:>7}  {line}\n")
        sys.stdout.flush()
    return int(bad > 0)


if __name__ == "__main__":
    raise SystemExit(main())
