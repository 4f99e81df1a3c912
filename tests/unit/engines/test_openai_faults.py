"""A server fails in every way that servers do: requests are retried, and give up with one clear line."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from fixtures.engines import EngineError
from fixtures.engines.openai import circuit_breaker, engine
from fixtures.engines.openai.engine import MAX_TIMEOUTS
from tests.helpers.clients import answers, asking, echo, endpoint_of, engine_of, refused
from tests.helpers.servers import ChatServer, Response, chat_completion, forget_keys, in_json, text_completion

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


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_keys(monkeypatch)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer().serving() as serving:
        serving.answer = echo
        yield serving


@pytest.mark.parametrize("fault", FAULTS)
def test_what_fails_once_is_asked_again_and_leaves_no_trace(server: ChatServer, fault: str) -> None:
    server.queue = [FAULTS[fault]]
    assert answers(engine_of(server), "one two") == [" two"]
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("failing", "says", "calls"),
    [
        (in_json({"error": {"message": "bad key"}}, status=401), "401 (bad key); set LONGCTX_API_KEY", 1),
        (in_json({"error": {"message": "no model\nm"}}, status=404), "404 (no model m); correct --base-url or", 1),
        (in_json({"detail": "Unexpected fields"}, status=422), "422 (Unexpected fields", 1),
        (
            Response(status=301, headers={"Location": "http://127.0.0.1:9/"}),
            "address that it redirects to as --base-url",
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
    assert "500 (broken)" in refused(engine_of(server, retry_policy=2.0))
    assert len(server.requests) > 2
    assert time.monotonic() - began < 20


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
    assert len(server.requests) == MAX_TIMEOUTS
    assert says in refused(engine)
    assert len(server.requests) == MAX_TIMEOUTS + 1


@pytest.fixture
def long_waits_are_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """One time-out ends a request, and the health check waits a tenth of a second."""
    monkeypatch.setattr(engine, "MAX_TIMEOUTS", 1)
    monkeypatch.setattr(engine, "HEALTH_CHECK_SECONDS", 0.1)


@pytest.mark.usefixtures("long_waits_are_seconds")
def test_a_server_that_takes_requests_and_answers_none_costs_its_long_wait_once(server: ChatServer) -> None:
    server.answer = lambda _: replace(RIGHT, delay_seconds=10)
    engine = engine_of(server, timeout_seconds=2.0)
    says = refused(engine)
    for prompt in ("three four", "five six", "seven eight"):
        assert refused(engine, prompt) == says
    assert [request.body["max_tokens"] for request in server.requests] == [8, 1], "and one short question"


@pytest.mark.parametrize("failing", [Response(status=503), in_json({"error": "later"}, status=429, Retry_After="9")])
def test_patience_with_a_busy_server_ends_once(server: ChatServer, failing: Response) -> None:
    server.answer = lambda _: failing
    engine = engine_of(server, retry_policy=0.5)
    says = refused(engine)
    asked = len(server.requests)
    for prompt in ("three four", "five six", "seven eight"):
        assert refused(engine, prompt) == says
    assert len(server.requests) == asked + 1


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize("first", ["at once", "after a minute"])
def test_a_server_that_comes_back_is_used_again(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch, first: str, api: str
) -> None:
    monkeypatch.setattr(circuit_breaker, "CHECK_INTERVAL_SECONDS", 0.3)
    server.answer = lambda _: Response(status=503)
    engine = engine_of(server, retry_policy=0.2, endpoint=endpoint_of(server, api=api))
    prompt = asking("one two", turns=("one two", ""))
    with pytest.raises(EngineError, match="503"):
        list(engine.generate(prompt))
    if first == "after a minute":
        with pytest.raises(EngineError, match="503"):
            list(engine.generate(prompt))
        time.sleep(0.3)
    server.answer = lambda request: echo(request) if api == "completions" else chat_completion(" two", read=2)
    assert [generation.text for generation in engine.generate(prompt)] == [" two"]


def test_a_server_that_fails_at_one_prompt_alone_is_asked_the_others(server: ChatServer) -> None:
    server.answer = lambda request: Response(status=500) if "bad" in str(request.prompt) else echo(request)
    engine = engine_of(server, retry_policy=0.2)
    for _ in range(2):
        assert "answers 500" in refused(engine, "the bad")
        assert answers(engine, "one two") == [" two"]


def test_many_at_once_ask_one_short_question(server: ChatServer) -> None:
    server.answer = lambda _: Response(status=503)
    engine = engine_of(server, retry_policy=0.2)
    refused(engine)
    server.requests.clear()
    server.answer = lambda _: Response(status=503, delay_seconds=0.3)
    refused(engine, "a b", "c d", "e f", "g h")
    assert [request.body["max_tokens"] for request in server.requests] == [1]


def test_a_server_that_asks_for_no_pause_is_not_asked_without_end(server: ChatServer) -> None:
    server.answer = lambda _: in_json({"error": "later"}, status=429, Retry_After="0")
    refused(engine_of(server, retry_policy=2.0))
    # Pauses of 0.02 seconds and twice as much each time, half of it at least.
    assert len(server.requests) <= 8


def test_a_time_out_longer_than_all_patience_is_not_the_end(server: ChatServer) -> None:
    server.queue = [replace(RIGHT, delay_seconds=10)]
    assert answers(engine_of(server, timeout_seconds=1.0, retry_policy=0.5), "one two") == [" two"]


def test_an_answer_that_stalls_is_asked_again(server: ChatServer) -> None:
    server.queue = [replace(RIGHT, stall_seconds=10)]
    assert answers(engine_of(server, timeout_seconds=1.0), "one two") == [" two"]


def test_what_nobody_foresaw_is_raised_and_not_waited_for(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(server)
    monkeypatch.setattr(engine, "_read", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(engine.generate(asking("one two")))


def test_a_server_that_dies_and_comes_back_is_waited_for() -> None:
    with ChatServer().serving() as first:
        first.answer = echo
        engine = engine_of(first, retry_policy=20)
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
        engine = engine_of(gone, retry_policy=2.0)
    assert "the connection fails" in refused(engine)
    began = time.monotonic()
    assert "the connection fails" in refused(engine)
    assert time.monotonic() - began < 1.5


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
