"""The openai engine before a real server that behaves in every way servers do: the right answer, or one clear line."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from servers import ChatServer, Request, Response, in_json, text_completion

from fixtures.checkpoint import Checkpoint
from fixtures.engines import EngineError, execution
from fixtures.engines.endpoint import Counting, Endpoint
from fixtures.engines.openai import MOST_TIMEOUTS, OpenAIEngine, Patience, load
from fixtures.engines.requests import families
from fixtures.records import Generation, Prompt

KEY = "sk-4f1e9a77c0ffee5ecret0123456789"
EXACT = Counting(ratio=1.0, overhead=0.0, exact=True)
CHECKPOINT: Any = None


class Words:
    """A tokenizer of words, each a token."""

    eos_token_id = 0
    bos_token_id = None
    bos_token = None

    def __call__(self, text: str, *, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": list(range(1, len(text.split()) + 1))}

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool) -> str:
        return " ".join(f"w{each}" for each in token_ids)


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LONGCTX_API_KEY", "LONGCTX_JUDGE_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_LOG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer().serving() as serving:
        serving.answer = echo
        yield serving


def echo(request: Request) -> Response:
    """The prompt's last word, and an honest count."""
    words = str(request.prompt).split()
    return text_completion(f" {words[-1]}", read=len(words))


def asking(*texts: str, **changes: Any) -> list[Prompt]:
    """Prompts of so many tokens as they have words; equal words are equal tokens."""
    made = []
    for text in texts:
        ids = tuple(1 + hash(word) % 10_000_000 for word in text.split())
        made.append(Prompt(text=text, token_ids=ids, length_tokens=len(ids), generation_tokens=8, **changes))
    return made


def endpoint_of(server: ChatServer, **changes: Any) -> Endpoint:
    plain = Endpoint(url=server.url, model="m", api="completions", prompts="text", prefix="continued", counting=EXACT)
    return replace(plain, **changes)


def engine_of(server: ChatServer, *, patience: float = 5.0, **settings: Any) -> OpenAIEngine:
    endpoint = settings.pop("endpoint", None) or endpoint_of(server)
    return load(
        CHECKPOINT,
        tokenizer=Words(),
        endpoint=endpoint,
        patience=Patience(seconds=patience, first_wait_seconds=0.02),
        **{"timeout_seconds": 20.0, "batch_size": 4, **settings},
    )


def answers(engine: OpenAIEngine, *texts: str, **changes: Any) -> list[str]:
    return [generation.text for generation in engine.generate(asking(*texts, **changes))]


def refused(engine: OpenAIEngine, *texts: str) -> str:
    """The one line that asking ends in."""
    with pytest.raises(EngineError) as raised:
        list(engine.generate(asking(*(texts or ("one two",)))))
    message = str(raised.value)
    assert "\n" not in message
    assert ";" in message, "an error says what to do"
    return message


def test_an_answer_takes_one_greedy_request_and_counts_what_the_server_read(server: ChatServer) -> None:
    server.answer = lambda _: text_completion(" seven", read=5, written=2, cached=3)
    (generation,) = engine_of(server).generate(asking("what is the magic number", stop=("\n",)))
    (request,) = server.requests
    assert request.path == "/v1/completions"
    assert request.body == {
        "model": "m", "prompt": "what is the magic number", "max_tokens": 8, "temperature": 0, "stop": ["\n"],
    }  # fmt: skip
    expected = Generation(
        text=" seven", prompt_tokens=5, generated_tokens=2, computed_tokens=4, reused_tokens=3, finish="stop", seconds=0
    )
    assert replace(generation, seconds=0) == expected


def test_answers_come_in_the_order_of_the_prompts_whichever_is_ready_first(server: ChatServer) -> None:
    def late(request: Request) -> Response:
        return replace(echo(request), delay_seconds=0.2 if "first" in str(request.prompt) else 0.0)

    server.answer = late
    assert answers(engine_of(server), "a first", "b second", "c third") == [" first", " second", " third"]


def test_no_more_is_asked_at_once_than_allowed(server: ChatServer) -> None:
    server.answer = lambda request: replace(echo(request), delay_seconds=0.05)
    texts = [f"{number} x{number}" for number in range(9)]
    assert answers(engine_of(server, batch_size=3), *texts) == [f" x{number}" for number in range(9)]
    assert server.most_at_once == 3


def test_what_shares_a_beginning_is_asked_after_the_first_of_it_has_been_read(server: ChatServer) -> None:
    """Asked together, each would be read whole: the server's cache has a prefix only once it was computed."""
    done: list[str] = []
    begun: dict[str, list[str]] = {}

    def slow(request: Request) -> Response:
        begun[str(request.prompt)] = list(done)
        time.sleep(0.1)
        done.append(str(request.prompt))
        return echo(request)

    server.answer = slow
    shared = "one two three four five six"
    texts = [f"{shared} a", f"{shared} b", "quite another text", f"{shared} c"]
    assert answers(engine_of(server), *texts) == [" a", " b", " text", " c"]
    leader, *others = sorted((text for text in texts if shared in text), key=lambda text: len(begun[text]))
    assert leader not in begun["quite another text"]
    assert all(leader in begun[text] for text in others)


def test_families_share_half_of_their_tokens() -> None:
    assert families([(1, 2, 3, 4), (9, 9), (1, 2, 5, 6), (1, 7, 8, 8)]) == [[0, 2], [3], [1]]
    assert families([]) == []


@pytest.mark.parametrize(
    ("written", "kept"), [(" 12\nQuestion: more", " 12"), (" 12", " 12"), ("\n12", ""), (" 1 END 2\n", " 1 ")]
)
def test_an_answer_is_cut_at_its_first_stop_string_whatever_the_server_leaves_there(
    server: ChatServer, written: str, kept: str
) -> None:
    server.answer = lambda _: text_completion(written, read=2)
    assert answers(engine_of(server), "a b", stop=("\n", "END")) == [kept]


def test_of_many_stop_strings_the_server_is_told_four_and_all_are_heeded(server: ChatServer) -> None:
    server.answer = lambda _: text_completion(" yes E no", read=2)
    assert answers(engine_of(server), "a b", stop=("A", "B", "C", "D", "E")) == [" yes "]
    assert server.requests[0].body["stop"] == ["A", "B", "C", "D"]


def test_token_ids_are_sent_where_the_server_takes_them(server: ChatServer) -> None:
    server.answer = lambda request: text_completion(" x", read=len(request.prompt))
    (prompt,) = asking("a b c")
    (generation,) = engine_of(server, endpoint=endpoint_of(server, prompts="ids")).generate([prompt])
    assert server.requests[0].prompt == list(prompt.token_ids)
    assert generation.prompt_tokens == 3


RIGHT = text_completion(" two", read=2)
FAULTS = {
    "rate limit": in_json({"error": {"message": "slow down"}}, status=429, Retry_After="0.05"),
    "rate limit, no time given": in_json({"error": {"message": "slow down"}}, status=429),
    "server error": in_json({"error": "oh"}, status=500),
    "overloaded": Response(status=503),
    "connection lost in the body": replace(RIGHT, cut=True),
    "half a JSON body": replace(RIGHT, body=RIGHT.body[:-30]),
    "not JSON": Response(body=b"<html>busy</html>", headers={"Content-Type": "text/html"}),
    "deep JSON": Response(body=b"[" * 100_000, headers={"Content-Type": "application/json"}),
    "a list": in_json([1, 2]),
    "no choices": in_json({"choices": [], "usage": {"prompt_tokens": 2}}),
    "choices are null": in_json({"choices": None, "usage": {"prompt_tokens": 2}}),
    "no text": in_json({"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": 2}}),
    "an error that says 200": in_json({"error": {"message": "crashed"}}),
    "no usage": in_json({"choices": [{"text": " two", "finish_reason": "stop"}]}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_fails_once_is_asked_again_and_leaves_no_trace(server: ChatServer, fault: str) -> None:
    server.queue = [FAULTS[fault]]
    assert answers(engine_of(server), "one two") == [" two"]
    assert len(server.requests) == 2


def test_an_empty_answer_is_an_answer(server: ChatServer) -> None:
    server.answer = lambda _: text_completion("", read=2)
    assert answers(engine_of(server), "one two") == [""]


@pytest.mark.parametrize(
    ("failing", "says", "calls"),
    [
        (in_json({"error": {"message": "bad key"}}, status=401), "401 (bad key); set LONGCTX_API_KEY", 1),
        (in_json({"error": {"message": "no model\nm"}}, status=404), "404 (no model m); correct --base-url or", 1),
        (in_json({"detail": "Unexpected fields"}, status=422), "422 (Unexpected fields", 1),
        (
            Response(status=301, headers={"Location": "http://127.0.0.1:9/"}),
            "address that it leads to as --base-url",
            1,
        ),
        (in_json({"error": {"message": "later"}}, status=429, Retry_After="900"), "asks to wait 900", 1),
        (in_json({"choices": []}), "an answer holds no choice", 3),
        (replace(RIGHT, body=RIGHT.body[:40]), "is no JSON object", 3),
        (text_completion(" two", read=1), "cut the prompt: it read 1 tokens of 2", 1),
        (text_completion(" two", read=3), "added to the prompt: it read 3 tokens of 2", 1),
        (
            in_json(
                {"error": {"message": "This model's maximum context length is 8192 tokens. However, you requested"}},
                status=400,
            ),
            "a prompt of 2 tokens and its answer do not fit (This model's maximum context length is 8192",
            1,
        ),
    ],
)
def test_what_goes_on_failing_is_one_line_after_a_bounded_number_of_calls(
    server: ChatServer, failing: Response, says: str, calls: int
) -> None:
    server.answer = lambda _: failing
    assert says in refused(engine_of(server))
    assert len(server.requests) == calls


def test_a_server_that_goes_on_failing_is_given_up_when_patience_ends(server: ChatServer) -> None:
    server.answer = lambda _: in_json({"error": {"message": "broken"}}, status=500)
    began = time.monotonic()
    assert "500 (broken)" in refused(engine_of(server, patience=0.4))
    assert len(server.requests) > 2
    assert time.monotonic() - began < 5


def test_a_server_is_waited_for_as_long_as_it_asks(server: ChatServer) -> None:
    server.queue = [in_json({"error": "wait"}, status=429, Retry_After="0.6")]
    began = time.monotonic()
    assert answers(engine_of(server), "one two") == [" two"]
    assert time.monotonic() - began >= 0.6


def test_an_answer_that_comes_too_late_again_and_again_is_one_line_and_the_next_sooner(server: ChatServer) -> None:
    server.answer = lambda _: replace(RIGHT, delay_seconds=10)
    engine = engine_of(server, timeout_seconds=0.2)
    says = "no answer in time; look after it, or give a longer --request-timeout"
    assert says in refused(engine)
    assert len(server.requests) == MOST_TIMEOUTS
    assert says in refused(engine)
    assert len(server.requests) == MOST_TIMEOUTS + 1


def test_a_time_out_longer_than_all_patience_is_not_the_end(server: ChatServer) -> None:
    server.queue = [replace(RIGHT, delay_seconds=10)]
    assert answers(engine_of(server, timeout_seconds=1.0, patience=0.5), "one two") == [" two"]


def test_an_answer_that_stalls_is_asked_again(server: ChatServer) -> None:
    server.queue = [replace(RIGHT, stall_seconds=10)]
    assert answers(engine_of(server, timeout_seconds=1.0), "one two") == [" two"]


def test_what_was_begun_is_asked_once_and_while_nobody_reads(server: ChatServer) -> None:
    engine = engine_of(server, batch_size=2)
    server.answer = lambda request: replace(echo(request), delay_seconds=0.2)
    given = engine.generate(asking("an a", "a b"))
    engine.begin(asking("a c", "a d"))
    assert next(given).text == " a"
    # A free place is taken at once.
    ends = time.monotonic() + 10
    while len(server.requests) < 4 and time.monotonic() < ends:
        time.sleep(0.01)
    assert len(server.requests) == 4
    assert [generation.text for generation in given] == [" b"]
    assert answers(engine, "a c", "a d") == [" c", " d"]
    assert len(server.requests) == 4
    assert server.most_at_once <= 2


def test_what_waits_for_its_place_can_be_withdrawn(server: ChatServer) -> None:
    server.answer = lambda request: replace(echo(request), delay_seconds=0.5)
    engine = engine_of(server, batch_size=1)
    prompts = asking("an a", "a b", "a c")
    engine.begin(prompts)
    while not server.requests:
        time.sleep(0.01)
    engine.withdraw()
    assert [engine.has(prompt) for prompt in prompts] == [True, False, False]
    assert [generation.text for generation in engine.generate(prompts[:1])] == [" a"]
    assert len(server.requests) == 1
    assert answers(engine, "a c") == [" c"]


ENDS = """
from test_engine_openai import asking, endpoint_of, engine_of
from fixtures.engines import EngineError
from types import SimpleNamespace
import sys, time

engine = engine_of(SimpleNamespace(url=sys.argv[1]), batch_size=1, timeout_seconds=600.0)
engine.begin(asking("a b", "a c"))
time.sleep(1)
engine.close()
engine.close()
try:
    list(engine.generate(asking("a b")))
except EngineError as error:
    print(error)
"""


def test_a_process_ends_without_what_is_on_its_way(server: ChatServer) -> None:
    server.answer = lambda request: replace(echo(request), delay_seconds=600)
    ended = subprocess.run(
        [sys.executable, "-c", ENDS, server.url],
        capture_output=True, text=True, timeout=120, check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert "was given up after another error; start again" in ended.stdout
    assert len(server.requests) == 1


def test_what_nobody_foresaw_is_raised_and_not_waited_for(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(server)
    monkeypatch.setattr(engine, "_read", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(engine.generate(asking("one two")))


def test_a_server_that_dies_and_comes_back_is_waited_for() -> None:
    with ChatServer().serving() as first:
        first.answer = echo
        engine = engine_of(first, patience=20)
        assert answers(engine, "one two") == [" two"]
    again: list[ChatServer] = []
    ended = threading.Event()

    def come_back() -> None:
        time.sleep(0.4)
        again.append(ChatServer(first.port))
        again[0].answer = echo
        with again[0].serving():
            ended.wait(20)

    thread = threading.Thread(target=come_back)
    thread.start()
    try:
        assert answers(engine, "three four", "five six") == [" four", " six"]
        assert len(again[0].requests) == 2
    finally:
        ended.set()
        thread.join()


def test_a_server_that_is_gone_is_waited_for_once() -> None:
    with ChatServer().serving() as gone:
        engine = engine_of(gone, patience=0.5)
    assert "the connection fails" in refused(engine)
    began = time.monotonic()
    assert "the connection fails" in refused(engine)
    assert time.monotonic() - began < 0.4


def test_what_was_answered_beside_a_failure_is_not_asked_again(server: ChatServer) -> None:
    refusing = replace(in_json({"error": "no"}, status=400), delay_seconds=0.3)
    server.answer = lambda request: refusing if "bad" in str(request.prompt) else echo(request)
    engine = engine_of(server)
    given = engine.generate(asking("an a", "the bad", "a b"))
    assert next(given).text == " a"
    with pytest.raises(EngineError, match="400"):
        next(given)
    asked = len(server.requests)
    assert answers(engine, "a b") == [" b"]
    assert len(server.requests) == asked == 3


def test_nobody_waits_for_what_comes_after_a_prompt_that_failed(server: ChatServer) -> None:
    no = in_json({"error": "no"}, status=400)
    server.answer = lambda request: no if "bad" in str(request.prompt) else echo(request)
    shared = "one two three four five six"
    engine = engine_of(server, batch_size=1)
    with pytest.raises(EngineError, match="400"):
        list(engine.generate(asking("bad", *(f"{shared} {each}" for each in "abcdef"))))
    assert answers(engine, f"{shared} a", f"{shared} b") == [" a", " b"]


def test_a_foreign_tokenizer_tells_half_a_prompt_from_a_whole_one(server: ChatServer) -> None:
    loose = Counting(ratio=0.8, overhead=4.0, exact=False)
    words = " ".join(f"w{number}" for number in range(100))
    engine = engine_of(server, endpoint=endpoint_of(server, counting=loose))
    server.answer = lambda _: text_completion(" ok", read=78)
    assert answers(engine, words) == [" ok"]
    server.answer = lambda _: text_completion(" ok", read=50)
    assert "it read 50 tokens where some 84 were sent" in refused(engine, words)


def leaks(raised: pytest.ExceptionInfo[EngineError]) -> str:
    """All that a traceback could show of an error, its causes included."""
    return "".join(traceback.format_exception(raised.value, chain=True)) + repr(raised.value.__context__)


@pytest.mark.parametrize("status", [200, 400, 401, 500])
def test_no_key_is_shown_where_a_server_repeats_it(
    server: ChatServer, status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LONGCTX_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_LOG", "debug")
    caplog.set_level(logging.DEBUG)
    server.answer = lambda _: in_json({"error": {"message": f"Bearer {KEY} is wrong"}}, status=status)
    with pytest.raises(EngineError) as raised:
        list(engine_of(server, patience=0.1).generate(asking("one two")))
    assert server.requests[0].authorization == f"Bearer {KEY}"
    assert KEY not in leaks(raised)
    assert KEY not in caplog.text
    server.answer = lambda _: text_completion(f" {KEY} two", read=2)
    assert answers(engine_of(server), "one two") == [" *** two"]


def test_a_key_that_json_escapes_is_hidden_too(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-4f1e9a77/c0ffee/5ecret"
    monkeypatch.setenv("LONGCTX_API_KEY", key)
    said = text_completion(f" {key} two", read=2)
    server.answer = lambda _: replace(said, body=said.body.replace(b"/", b"\\/"))
    assert answers(engine_of(server), "one two") == [" *** two"]


def test_the_key_of_openai_goes_nowhere_else(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    answers(engine_of(server), "one two")
    assert KEY not in server.requests[0].headers


def test_where_a_server_stands_does_not_name_its_answers_but_what_it_serves_does(server: ChatServer) -> None:
    def named(**changes: Any) -> dict[str, str]:
        settings: dict[str, Any] = {"batch_size": 0, "thinking_tokens": 0, "timeout_seconds": 1.0}
        checkpoint: Checkpoint = CHECKPOINT
        return execution(checkpoint, engine="openai", endpoint=endpoint_of(server, **changes), **settings)

    assert named() == named(url="http://other.example/v1")
    assert len({str(named(**each)) for each in CHANGES}) == len(CHANGES)
    assert named()["engine"] == "openai"


CHANGES: Sequence[dict[str, Any]] = (
    {}, {"serves": "/ckpt/step_2"}, {"api": "chat"}, {"api": "chat", "prefix": "instruction"}, {"prompts": "ids"},
)  # fmt: skip
