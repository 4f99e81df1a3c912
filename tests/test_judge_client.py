"""The judge before a real server that behaves in every way servers do."""

from __future__ import annotations

import email.utils
import logging
import re
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from servers import ChatServer, Response, completion, in_json

from fixtures.scoring.judge import (
    Judge,
    JudgedAnswer,
    JudgedClaim,
    JudgedEntailment,
    JudgedSummary,
    JudgeError,
    JudgeSettings,
)
from fixtures.scoring.judge.client import ChatClient
from plugins.journal import Replies

KEY = "sk-4f1e9a77c0ffee5ecret0123456789"
RIGHT = completion('It agrees.\n{"fluency": 1, "correctness": 2}')
ANSWER = JudgedAnswer(question="Where did she go?", references=("the North Sea",), answer="To the North Sea.")
SUMMARY = JudgedSummary(
    subject="a novel", key_points=("a ship sinks", "a man survives"), reference="A ship sinks.", summary="A ship sank."
)
Ask = Callable[..., Any]


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LONGCTX_JUDGE_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ADMIN_KEY", "OPENAI_LOG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer().serving() as serving:
        yield serving


def settings_for(server: ChatServer, **changes: Any) -> JudgeSettings:
    plain = JudgeSettings(model="judge-1", url=server.url, concurrency=4, timeout_seconds=20, retries=1, rereads=1)
    return replace(plain, **changes)


def decided(server: ChatServer, judged: Any = ANSWER, store: Replies | None = None, **changes: Any) -> Any:
    with Judge(settings_for(server, **changes), store) as judge:
        return judge.decide(judged)


def refused(server: ChatServer, judged: Any = ANSWER, **changes: Any) -> str:
    """The one line that a judgement ends in."""
    with pytest.raises(JudgeError) as raised:
        decided(server, judged, **changes)
    message = str(raised.value)
    assert "\n" not in message
    assert ";" in message, "an error says what to do"
    return message


def test_an_answer_takes_one_call_and_scores_fluency_times_correctness_over_3(server: ChatServer) -> None:
    server.queue = [RIGHT]
    score = decided(server)
    assert score.value == pytest.approx(2 / 3)
    assert score.parts == {"fluency": 1.0, "correctness": pytest.approx(2 / 3)}
    (request,) = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.body["model"] == "judge-1"
    assert request.body["temperature"] == 0
    assert request.body["max_completion_tokens"] == 4096


def summary_reply(text: str) -> Response:
    if '"found"' in text:
        return completion('{"found": 1}')
    return completion('{"supported": 3, "sentences": 4}' if '"supported"' in text else '{"fluency": 1}')


def test_a_summary_takes_three_calls_and_scores_fluency_times_f1(server: ChatServer) -> None:
    server.answer = lambda request: summary_reply(request.text)
    score = decided(server, SUMMARY)
    assert score.parts == {"fluency": 1.0, "recall": 0.5, "precision": 0.75}
    assert score.value == pytest.approx(0.6)
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    "failing",
    [
        pytest.param(in_json({"error": {"message": "slow down"}}, status=429, Retry_After="0.05"), id="rate limit"),
        pytest.param(in_json({"error": "oh"}, status=500, Retry_After="0.05"), id="server error"),
        pytest.param(Response(status=503, headers={"Retry-After": "0.05"}), id="overloaded"),
        pytest.param(replace(RIGHT, cut=True), id="connection lost in the body"),
        pytest.param(replace(RIGHT, body=RIGHT.body[:-30]), id="half a JSON body"),
        pytest.param(Response(body=b"<html>busy</html>", headers={"Content-Type": "text/html"}), id="not JSON"),
        pytest.param(Response(body=b"[" * 100_000, headers={"Content-Type": "application/json"}), id="deep JSON"),
        pytest.param(Response(body=b"\xff\xfe", headers={"Content-Type": "application/json"}), id="not UTF-8"),
        pytest.param(in_json([1, 2]), id="a list"),
        pytest.param(in_json({"choices": []}), id="no choices"),
        pytest.param(in_json({"choices": None}), id="choices are null"),
        pytest.param(in_json({"choices": [{"finish_reason": "stop"}]}), id="no message"),
        pytest.param(in_json({"error": {"message": "model crashed"}}), id="an error that says 200"),
        pytest.param(completion(None), id="null content"),
        pytest.param(completion(" \n"), id="blank content"),
        pytest.param(completion("I find it good."), id="no verdict"),
        pytest.param(completion('{"fluency": 1, "correctness": 4}'), id="out of range"),
        pytest.param(completion('{"fluency": 1}'), id="a key is absent"),
        pytest.param(completion('{"fluency": true, "correctness": 2}'), id="not a number"),
        pytest.param(completion('{"fluency": 1, "correctness": 3}, or', finish="length"), id="cut off"),
    ],
)
def test_what_fails_once_is_asked_again_and_leaves_no_trace_in_the_score(server: ChatServer, failing: Response) -> None:
    server.queue = [failing, RIGHT]
    assert decided(server).value == pytest.approx(2 / 3)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("failing", "says", "calls"),
    [
        (in_json({"error": {"message": "slow down"}}, status=429, Retry_After="0.01"), "429 (slow down", 2),
        (in_json({"error": {"message": "broken"}}, status=500, Retry_After="0.01"), "500 (broken)", 2),
        (in_json({"error": {"message": "bad key"}}, status=401), "LONGCTX_JUDGE_KEY", 1),
        (in_json({"error": {"message": "no model\njudge-1"}}, status=404), "404 (no model judge-1); give the name", 1),
        (in_json({"error": {"message": "too long"}}, status=400), "400 (too long)", 1),
        (Response(status=301, headers={"Location": "http://127.0.0.1:9/"}), "leads to", 1),
        (in_json({"error": {"message": "come back"}}, status=429, Retry_After="900"), "asks to wait 900", 1),
        (in_json({"choices": []}), "no choices", 2),
        (replace(RIGHT, body=RIGHT.body[:40]), "is no JSON object", 2),
        (completion('{"fluency": 2, "correctness": 0}'), "fluency is '2' instead of 0 to 1", 2),
        (completion("Fine."), "no JSON object in 'Fine.'", 2),
        (completion("on and on", finish="length"), "cut off", 2),
        (completion("", finish="content_filter"), "content_filter", 2),
    ],
)
def test_what_goes_on_failing_is_one_line_after_a_bounded_number_of_calls(
    server: ChatServer, failing: Response, says: str, calls: int
) -> None:
    server.answer = lambda _: failing
    message = refused(server)
    assert says in message
    assert "judge-1" in message
    assert len(server.requests) == calls


def test_a_lost_connection_is_one_line_after_its_retries(server: ChatServer) -> None:
    server.answer = lambda _: replace(RIGHT, cut=True)
    assert "the connection fails" in refused(server)
    assert len(server.requests) == 2


def test_a_server_that_is_not_there_is_one_line() -> None:
    with ChatServer().serving() as gone:
        pass
    assert "start the server, or correct --judge-url" in refused(gone, retries=0)


def test_a_reply_that_comes_too_late_is_asked_for_again(server: ChatServer) -> None:
    server.queue = [completion("late", delay_seconds=30), RIGHT]
    assert decided(server, timeout_seconds=0.3).value == pytest.approx(2 / 3)
    assert len(server.requests) == 2


def test_replies_that_go_on_coming_too_late_are_one_line(server: ChatServer) -> None:
    server.answer = lambda _: completion("late", delay_seconds=30)
    assert "no answer within 0.2 s, 2 times" in refused(server, timeout_seconds=0.2)
    assert len(server.requests) == 2


@pytest.mark.parametrize("dated", [False, True], ids=["seconds", "date"])
def test_a_server_that_says_how_long_to_wait_is_waited_for(server: ChatServer, dated: bool) -> None:
    # A date has whole seconds, so up to one of them is lost.
    wait = email.utils.formatdate(time.time() + 2, usegmt=True) if dated else "1"
    server.queue = [in_json({"error": "busy"}, status=429, Retry_After=wait), RIGHT]
    started = time.monotonic()
    decided(server)
    # Without the header the pause is half a second at most.
    assert time.monotonic() - started > 0.9


def test_an_unreadable_reply_is_answered_by_a_reminder_of_the_form(server: ChatServer) -> None:
    server.queue = [completion("Fine."), RIGHT]
    decided(server)
    first, second = (request.text for request in server.requests)
    assert second.startswith(first)
    assert "could not be read" in second


def test_a_kept_reply_is_not_asked_for_again(server: ChatServer, tmp_path: Path) -> None:
    server.queue = [completion("Fine."), RIGHT]
    first = decided(server, store=Replies(tmp_path, "one"))
    # Another process, another run; the server would answer without a verdict.
    assert decided(server, store=Replies(tmp_path, "two")) == first
    assert len(server.requests) == 2, "the reply that a reminder brought answers the question itself"


@pytest.mark.parametrize(
    ("changes", "judged"),
    [
        ({"model": "judge-2"}, ANSWER),
        ({"reply_tokens": 9}, ANSWER),
        ({}, replace(ANSWER, answer="To the North Sea")),
        ({}, replace(ANSWER, references=("the North Sea", "north"))),
    ],
    ids=["model", "reply tokens", "answer", "references"],
)
def test_a_reply_is_kept_for_its_own_question_only(
    server: ChatServer, tmp_path: Path, changes: dict[str, Any], judged: JudgedAnswer
) -> None:
    server.answer = lambda _: RIGHT
    store = Replies(tmp_path, "one")
    decided(server, store=store)
    decided(server, judged, store=store, **changes)
    assert len(server.requests) == 2


def test_a_reply_that_could_not_be_read_is_not_kept(server: ChatServer, tmp_path: Path) -> None:
    store = Replies(tmp_path, "one")
    server.answer = lambda _: completion("Fine.")
    with pytest.raises(JudgeError):
        decided(server, store=store)
    server.answer = lambda _: RIGHT
    assert decided(server, store=store).value == pytest.approx(2 / 3)


def test_the_same_question_is_asked_once_and_a_failed_one_again(server: ChatServer) -> None:
    server.queue = [in_json({}, status=400)]
    server.answer = lambda _: replace(RIGHT, delay_seconds=0.05)
    with Judge(settings_for(server)) as judge:
        with pytest.raises(JudgeError):
            judge.decide(ANSWER)
        scores = [each.result() for each in [judge.submit(ANSWER) for _ in range(5)]]
        judge.decide(ANSWER)
    assert len({score.value for score in scores}) == 1
    assert len(server.requests) == 2


@pytest.mark.parametrize("most", [1, 3])
def test_never_more_calls_at_once_than_allowed(server: ChatServer, most: int) -> None:
    server.answer = lambda _: replace(RIGHT, delay_seconds=0.02)
    many = [replace(ANSWER, answer=f"answer {index}") for index in range(9)]
    with Judge(settings_for(server, concurrency=most)) as judge:
        pending = [judge.submit(each) for each in many]
        assert [each.result().value for each in pending] == [pytest.approx(2 / 3)] * 9
    assert server.most_at_once == most


def test_each_question_has_its_own_decision_and_one_without_raises(server: ChatServer) -> None:
    def by_answer(text: str) -> Response:
        return completion(f'{{"fluency": 1, "correctness": {re.findall("^answer ([0-9])$", text, re.MULTILINE)[0]}}}')

    server.answer = lambda request: by_answer(request.text)
    many = [replace(ANSWER, answer=f"answer {index}") for index in (3, 0, 2, 7, 1)]
    with Judge(settings_for(server)) as judge:
        pending = [judge.submit(each) for each in many]
        assert [pending[at].result().parts["correctness"] for at in (0, 1, 2, 4)] == pytest.approx([1, 0, 2 / 3, 1 / 3])
        with pytest.raises(JudgeError, match="correctness is '7' instead of 0 to 3"):
            pending[3].result()


def test_a_closed_judge_asks_nothing_more(server: ChatServer) -> None:
    server.answer = lambda _: replace(RIGHT, delay_seconds=0.2)
    judge = Judge(settings_for(server, concurrency=1))
    pending = [judge.submit(replace(ANSWER, answer=f"answer {index}")) for index in range(9)]
    while not server.requests:
        time.sleep(0.01)
    judge.close()
    judge.close()
    assert all(each.futures[0].cancelled() for each in pending[2:])


def test_nothing_said_scores_0_without_a_call(server: ChatServer) -> None:
    assert decided(server, replace(ANSWER, answer=" \n…")).value == 0
    assert decided(server, replace(SUMMARY, summary="")).value == 0
    assert server.requests == []


def test_a_judge_of_entailment_asks_one_call_a_pair(server: ChatServer) -> None:
    server.answer = lambda request: completion(f'{{"entailed": {int("cats purr" in request.text)}}}')
    pairs = [("Dogs bark.", "Cats bark."), ("All cats purr.", "My cat purrs."), ("", "x")]
    with Judge(settings_for(server)) as judge:
        entailment = JudgedEntailment(judge)
        assert entailment.entails("All cats purr.", "My cat purrs.")
        assert [entailment.entails(*pair) for pair in pairs] == [False, True, False]
    assert len(server.requests) == 2


def test_an_undecided_claim_is_an_error_and_not_false(server: ChatServer) -> None:
    server.answer = lambda _: completion('{"entailed": 2}')
    assert "entailed is '2'" in refused(server, JudgedClaim(premise="p", claim="c"))


@pytest.mark.parametrize(
    ("environment", "sent"),
    [
        ({}, "Bearer none"),
        ({"LONGCTX_JUDGE_KEY": f" {KEY}\n"}, f"Bearer {KEY}"),
        ({"OPENAI_API_KEY": "sk-admin"}, "Bearer none"),
        ({"OPENAI_API_KEY": "another", "LONGCTX_JUDGE_KEY": KEY}, f"Bearer {KEY}"),
        ({"LONGCTX_JUDGE_KEY": " ", "OPENAI_ADMIN_KEY": "sk-admin"}, "Bearer none"),
    ],
    ids=["no key", "own key", "another server's key", "own key first", "blank"],
)
def test_the_key_comes_from_the_environment(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], sent: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    server.queue = [RIGHT]
    decided(server)
    assert [request.authorization for request in server.requests] == [sent]
    assert "sk-admin" not in server.requests[0].headers


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        (None, f"Bearer {KEY}"),
        ("https://api.openai.com/v1", f"Bearer {KEY}"),
        ("https://api.openai.com", f"Bearer {KEY}"),
        ("https://api.openai.com.example.org/v1", "Bearer none"),
        ("http://api.openai.com/v1", "Bearer none"),
        ("https://example.org/https://api.openai.com/v1", "Bearer none"),
    ],
)
def test_openais_key_is_kept_for_openai(monkeypatch: pytest.MonkeyPatch, url: str | None, sent: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    client = ChatClient(JudgeSettings(model="m", url=url))
    try:
        assert client._connection._openai.auth_headers == {"Authorization": sent}
    finally:
        client.close()


def test_openai_itself_is_not_asked_without_a_key() -> None:
    with pytest.raises(JudgeError, match=r"no key for https://api\.openai\.com/v1; set LONGCTX_JUDGE_KEY"):
        Judge(JudgeSettings(model="gpt"))


@pytest.mark.parametrize("key", ["sk-véry-secret-key", "sk-very\nsecret-key"])
def test_a_key_that_no_header_can_hold_is_refused_unseen(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("LONGCTX_JUDGE_KEY", key)
    message = refused(server)
    assert "LONGCTX_JUDGE_KEY" in message
    assert "secret" not in message


@pytest.mark.parametrize(
    "url", ["https://me:hunter22@host/v1", "https://host/v1?key=hunter22", "host/v1", "ftp://host", "http://a b", ""]
)
def test_an_address_that_could_hold_a_secret_is_refused_unseen(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    with pytest.raises(JudgeError, match="--judge-url") as raised:
        JudgeSettings(model="m", url=url)
    assert "hunter22" not in str(raised.value)
    if url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        with pytest.raises(JudgeError, match="OPENAI_BASE_URL") as raised:
            Judge(JudgeSettings(model="m"))
        assert "hunter22" not in str(raised.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"model": " "},
        {"concurrency": 0},
        {"timeout_seconds": 0},
        {"timeout_seconds": float("nan")},
        {"retries": -1},
        {"rereads": -1},
        {"reply_tokens": 0},
    ],
)
def test_settings_that_cannot_work_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(JudgeError):
        JudgeSettings(**{"model": "m", **changes})


@pytest.mark.parametrize("log", ["info", "debug"])
def test_the_key_is_nowhere_but_in_the_request(
    server: ChatServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    log: str,
) -> None:
    monkeypatch.setenv("LONGCTX_JUDGE_KEY", KEY)
    monkeypatch.setenv("OPENAI_LOG", log)
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    failing = [
        in_json({"error": {"message": f"Incorrect key {KEY}"}}, status=401),
        in_json({"error": {"message": f"who is {KEY}"}}),
        in_json({"error": KEY}, status=500, Retry_After="0.01"),
        Response(body=f"<p>{KEY}</p>".encode()),
        replace(RIGHT, cut=True),
        completion(f"You sent {KEY}"),
        completion("late", delay_seconds=9),
    ]
    for response in failing:
        server.answer = lambda _, response=response: response  # type: ignore[misc]  # mypy infers no default
        with Judge(settings_for(server, timeout_seconds=0.2, retries=0), Replies(tmp_path, "one")) as judge:
            with pytest.raises(JudgeError) as raised:
                judge.decide(ANSWER)
            error, at = raised.value, raised.value.__traceback__
            assert at is not None
            # The first frame is this test, which knows the key.
            told = traceback.TracebackException(type(error), error, at.tb_next, capture_locals=True)
            said += [*told.format(), repr(error), repr(judge), repr(judge.settings), repr(vars(judge))]
    server.answer = lambda _: completion(f'You sent {KEY}. {{"fluency": 1, "correctness": 3}}')
    assert decided(server, store=Replies(tmp_path, "two")).value == 1
    assert server.requests[-1].authorization == f"Bearer {KEY}"
    written = [path.read_text(encoding="utf-8") for path in tmp_path.rglob("*") if path.is_file()]
    assert any("You sent ***" in text for text in written)
    assert caplog.messages
    captured = capfd.readouterr()
    assert [text for text in (*said, *written, caplog.text, captured.out, captured.err) if KEY in text] == []
