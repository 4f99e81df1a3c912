"""The openai engine retries after every kind of server failure, and gives up with a one-line error."""

import threading
import time
from dataclasses import replace

import pytest

from longctx.fixtures.engines import EngineError
from longctx.fixtures.engines.openai import engine
from longctx.fixtures.engines.openai.endpoint import ServerSettings
from longctx.fixtures.http.retry import RetryPolicy
from tests.helpers.clients import Words, answers, asking, echo, endpoint_of, engine_of, refused
from tests.helpers.servers import ChatServer, Request, Response, chat_completion, in_json, text_completion

pytestmark = pytest.mark.usefixtures("no_keys")
RIGHT = text_completion(" two", read=2)
TOO_LONG = "a prompt of 2 tokens and its answer do not fit"
FAULTS = {
    "rate limit": in_json({"error": {"message": "slow down"}}, status=429, Retry_After="0.05"),
    "server error": in_json({"error": "oh"}, status=500),
    "overloaded": Response(status=503),
    "connection lost in the body": replace(RIGHT, cut=True),
    "no reply in time": replace(RIGHT, stall_seconds=10),
    "not JSON": Response(body=b"<html>busy</html>", headers={"Content-Type": "text/html"}),
    "no usage": in_json({"choices": [{"text": " two", "finish_reason": "stop"}]}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_request_that_fails_once_is_retried_with_the_same_result(server: ChatServer, fault: str) -> None:
    server.queue = [FAULTS[fault]]
    assert answers(engine_of(server, timeout_seconds=2.0), "one two") == [" two"]
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("failing", "message", "calls"),
    [
        (in_json({"error": {"message": "bad key"}}, status=401), "401 (bad key); set LONGCTX_API_KEY", 1),
        (in_json({"detail": "Unexpected\nfields"}, status=422), "422 (Unexpected fields", 1),
        (
            Response(status=301, headers={"Location": "http://127.0.0.1:9/"}),
            "address that it redirects to as --base-url",
            1,
        ),
        (in_json({"error": {"message": "later"}}, status=429, Retry_After="900"), "when its rate limit allows", 1),
        (
            in_json({"error": {"message": "no credit", "code": "insufficient_quota"}}, status=429),
            "answers 429 (no credit); pay for the account of LONGCTX_API_KEY",
            1,
        ),
        (in_json({"choices": []}), "an answer holds no choice", 4),
        (
            text_completion(" two", read=2, written=3, finish="length"),
            "at its token limit after 3 tokens, but 8 were requested",
            1,
        ),
        (text_completion(" two", read=1), "cut the prompt: it read 1 tokens of 2", 1),
        (text_completion(" two", read=3), "added to the prompt: it read 3 tokens of 2", 1),
        (in_json({"error": "Prompt too long"}, status=500), f"{TOO_LONG} (Prompt too long)", 1),
    ],
)
def test_a_lasting_failure_is_a_one_line_error_after_a_bounded_number_of_requests(
    server: ChatServer, failing: Response, message: str, calls: int
) -> None:
    server.answer = lambda _: failing
    assert message in refused(engine_of(server))
    assert len(server.requests) == calls


def test_a_retry_waits_as_long_as_retry_after_demands(server: ChatServer) -> None:
    server.queue = [in_json({"error": "wait"}, status=429, Retry_After="0.6")]
    began = time.monotonic()
    assert answers(engine_of(server), "one two") == [" two"]
    assert time.monotonic() - began >= 0.6


STAYING = {
    "busy": Response(status=503),
    "limited": in_json({"error": "later"}, status=429, Retry_After="0.2"),
    "silent": replace(RIGHT, delay_seconds=10),
}


@pytest.mark.parametrize("kind", STAYING)
def test_a_server_that_stays_away_is_waited_for_once(
    server: ChatServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answer = lambda _: STAYING[kind]
    monkeypatch.setattr(engine, "HEALTH_CHECK_SECONDS", 0.2)
    failing = engine_of(server, retry_policy=0.5, timeout_seconds=0.2 if kind == "silent" else 20.0)
    message = refused(failing)
    request_count = len(server.requests)
    if kind == "silent":
        assert "no answer in time; look after it, and start the same command again" in message
        assert request_count == 4
    for prompt in ("three four", "five six", "seven eight"):
        assert refused(failing, prompt) == message
    assert [request.body["max_tokens"] for request in server.requests[request_count:]] == [1], "one health check"


def test_a_line_says_once_that_requests_fail(server: ChatServer) -> None:
    lines: list[str] = []
    server.answer = lambda _: in_json({"error": "loading"}, status=503)
    settings = ServerSettings(endpoint=endpoint_of(server), announce=lines.append)
    failing = engine.OpenAIEngine(settings, Words(), RetryPolicy(seconds=0.8))
    refused(failing, "one two", "three four")
    assert lines == [f"server {server.url}: a request failed (503: loading); failed ones are repeated"]


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize("first", ["at once", "after a minute"])
def test_a_server_that_comes_back_is_used_again(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch, first: str, api: str
) -> None:
    monkeypatch.setattr("longctx.fixtures.engines.openai.engine.CHECK_INTERVAL_SECONDS", 0.3)
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


def test_a_server_that_fails_on_one_prompt_still_answers_the_others(server: ChatServer) -> None:
    server.answer = lambda request: Response(status=500) if "bad" in str(request.prompt) else echo(request)
    engine = engine_of(server, retry_policy=0.2)
    for _ in range(2):
        assert "answers 500" in refused(engine, "the bad")
        assert answers(engine, "one two") == [" two"]


def test_the_engine_waits_for_a_server_that_restarts() -> None:
    with ChatServer().serving() as first:
        first.answer = echo
        engine = engine_of(first, retry_policy=120)
        assert answers(engine, "one two") == [" two"]
    restarted: list[ChatServer] = []
    ended = threading.Event()

    def restart() -> None:
        time.sleep(0.4)
        restarted.append(ChatServer(first.port))
        restarted[0].answer = echo
        with restarted[0].serving():
            ended.wait(120)

    thread = threading.Thread(target=restart)
    thread.start()
    try:
        assert answers(engine, "three four", "five six") == [" four", " six"]
        assert len(restarted[0].requests) == 2
    finally:
        ended.set()
        thread.join()


def test_answers_that_arrived_beside_a_failure_are_not_requested_again(server: ChatServer) -> None:
    last = threading.Event()

    def answer(request: Request) -> Response:
        if "bad" in str(request.prompt):
            last.wait(10)
            return replace(in_json({"error": "no"}, status=400), delay_seconds=0.3)
        if str(request.prompt) == "a b":
            last.set()
        return echo(request)

    server.answer = answer
    engine = engine_of(server)
    generations = engine.generate(asking("an a", "the bad", "a b"))
    assert next(generations).text == " a"
    with pytest.raises(EngineError, match="400"):
        next(generations)
    request_count = len(server.requests)
    assert answers(engine, "a b") == [" b"]
    assert len(server.requests) == request_count == 3


TWENTY = " ".join(f"w{number}" for number in range(1, 21))


@pytest.mark.parametrize(
    ("text", "written", "finish", "excess", "missing"),
    [
        # The server counts the tokens, counts them wrongly, or does not count them.
        (TWENTY, 20, "stop", 12, 0), (TWENTY, 8, "length", 12, 0), (TWENTY, 7, "length", 12, 0),
        (TWENTY, None, "length", 12, 0),
        # Bytes that are no text take more tokens.
        ("\ufffd " * 20, 8, "length", 0, 0),
        # End tokens and stop strings explain some missing ones.
        ("one two", 2, "stop", 0, 0), ("one", 5, "stop", 0, 0), ("one", 8, "stop", 0, 7),
    ],
)  # fmt: skip
def test_an_answer_is_cut_to_its_budget_and_missing_tokens_are_counted(
    server: ChatServer, text: str, written: int | None, finish: str, excess: int, missing: int
) -> None:
    server.answer = lambda _: text_completion(text, read=2, written=written, finish=finish)
    (generation,) = engine_of(server).generate(asking("one two"))
    assert (generation.excess_tokens, generation.missing_tokens) == (excess, missing)
    if excess:
        assert (generation.text, generation.finish) == ("w1 w2 w3 w4 w5 w6 w7 w8", "length")


def test_prompts_after_a_failed_one_leave_no_request_pending(server: ChatServer) -> None:
    no = in_json({"error": "no"}, status=400)
    server.answer = lambda request: no if "bad" in str(request.prompt) else echo(request)
    shared = "one two three four five six"
    engine = engine_of(server, batch_size=1)
    with pytest.raises(EngineError, match="400"):
        list(engine.generate(asking("bad", *(f"{shared} {letter}" for letter in "abcdef"))))
    assert answers(engine, f"{shared} a", f"{shared} b") == [" a", " b"]
