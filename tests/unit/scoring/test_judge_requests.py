"""Requests of a judge: never one twice, never more at once than allowed, repeated or given up where a server fails."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longctx.fixtures.scoring.judge import Judge, JudgedAnswer, JudgedClaim, JudgeError
from longctx.plugins.journal import JudgeReplies
from tests.helpers.judges import ANSWER, RIGHT, SUMMARY, decided, refused, settings_for
from tests.helpers.servers import ChatServer, Request, Response, completion, in_json


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


def test_a_stored_reply_needs_no_request(server: ChatServer, tmp_path: Path) -> None:
    server.queue = [completion("Fine."), RIGHT]
    first = decided(server, store=JudgeReplies(tmp_path, "one"))
    # Another process, another run; the server would answer without a verdict.
    assert decided(server, store=JudgeReplies(tmp_path, "two")) == first
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
def test_a_reply_is_stored_for_its_own_question_only(
    server: ChatServer, tmp_path: Path, changes: dict[str, Any], judged: JudgedAnswer
) -> None:
    server.answer = lambda _: RIGHT
    store = JudgeReplies(tmp_path, "one")
    decided(server, store=store)
    decided(server, judged, store=store, **changes)
    assert len(server.requests) == 2


def test_an_unreadable_reply_is_not_stored(server: ChatServer, tmp_path: Path) -> None:
    store = JudgeReplies(tmp_path, "one")
    server.answer = lambda _: completion("Fine.")
    with pytest.raises(JudgeError):
        decided(server, store=store)
    server.answer = lambda _: RIGHT
    assert decided(server, store=store).value == pytest.approx(2 / 3)


@pytest.mark.parametrize("most", [1, 3])
def test_never_more_calls_at_once_than_allowed(server: ChatServer, most: int) -> None:
    together = threading.Barrier(most, timeout=60)

    def answer(_: Request) -> Response:
        together.wait()
        return replace(RIGHT, delay_seconds=0.02)

    server.answer = answer
    many = [replace(ANSWER, answer=f"answer {index}") for index in range(9)]
    with closing(Judge(settings_for(server, concurrency=most))) as judge, ThreadPoolExecutor(9) as pool:
        scores = list(pool.map(judge.decide, many))
    assert [score.value for score in scores] == [pytest.approx(2 / 3)] * 9
    assert server.most_at_once == most


def test_every_question_has_its_own_decision_and_one_without_raises(server: ChatServer) -> None:
    def by_answer(text: str) -> Response:
        return completion(f'{{"fluency": 1, "correctness": {re.findall("^answer ([0-9])$", text, re.MULTILINE)[0]}}}')

    server.answer = lambda request: by_answer(request.text)
    many = [replace(ANSWER, answer=f"answer {index}") for index in (3, 0, 2, 7, 1)]
    with closing(Judge(settings_for(server))) as judge:
        with pytest.raises(JudgeError, match="correctness is '7' instead of 0 to 3"):
            judge.decide(many.pop(3))
        scores = [judge.decide(judged) for judged in many]
    assert [score.parts["correctness"] for score in scores] == pytest.approx([1, 0, 2 / 3, 1 / 3])


def test_a_closed_judge_repeats_no_request(server: ChatServer) -> None:
    judge = Judge(settings_for(server, retries=9))

    def answer(_: Request) -> Response:
        judge.close()
        return in_json({"error": "busy"}, status=500, Retry_After="0.01")

    server.answer = answer
    with pytest.raises(JudgeError, match="answers 500"):
        judge.decide(ANSWER)
    assert len(server.requests) == 1


def test_an_answer_without_words_scores_0_without_a_call(server: ChatServer) -> None:
    assert decided(server, replace(ANSWER, answer=" \n…")).value == 0
    assert decided(server, replace(SUMMARY, summary="")).value == 0
    assert server.requests == []


def test_a_judge_of_entailment_asks_one_call_a_pair(server: ChatServer) -> None:
    server.answer = lambda request: completion(f'{{"entailed": {int("cats purr" in request.text)}}}')
    pairs = [("Dogs bark.", "Cats bark."), ("All cats purr.", "My cat purrs."), ("", "x")]
    with closing(Judge(settings_for(server))) as judge:
        assert judge.entails("All cats purr.", "My cat purrs.")
        assert [judge.entails(*pair) for pair in pairs] == [False, True, False]
    assert len(server.requests) == 3


def test_an_undecided_claim_is_an_error_and_not_false(server: ChatServer) -> None:
    server.answer = lambda _: completion('{"entailed": 2}')
    assert "entailed is '2'" in refused(server, JudgedClaim(premise="p", claim="c"))


@pytest.mark.parametrize(
    "failing",
    [
        pytest.param(in_json({"error": {"message": "slow down"}}, status=429, Retry_After="0.05"), id="rate limit"),
        pytest.param(in_json({"error": "oh"}, status=500, Retry_After="0.05"), id="server error"),
        pytest.param(in_json({"choices": []}), id="no choices"),
        pytest.param(in_json({"error": {"message": "model crashed"}}), id="an error that says 200"),
        pytest.param(completion(None), id="null content"),
        pytest.param(completion("I find it good."), id="no verdict"),
        pytest.param(completion('{"fluency": 1, "correctness": 3}, or', finish="length"), id="cut off"),
    ],
)
def test_a_request_that_fails_once_is_repeated_and_scores_the_same(server: ChatServer, failing: Response) -> None:
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
        (in_json({"error": {"message": "come back"}}, status=429, Retry_After="900"), "429 (come back)", 1),
        (in_json({"choices": []}), "no choices", 2),
        (replace(RIGHT, body=RIGHT.body[:40]), "is no JSON object", 4),
        (completion('{"fluency": 2, "correctness": 0}'), "fluency is '2' instead of 0 to 1", 2),
        (completion("Fine."), "no JSON object in 'Fine.'", 2),
        (completion("on and on", finish="length"), "cut off", 2),
        (completion("", finish="content_filter"), "content_filter", 2),
    ],
)
def test_a_lasting_failure_is_one_line_after_a_bounded_number_of_calls(
    server: ChatServer, failing: Response, says: str, calls: int
) -> None:
    server.answer = lambda _: failing
    message = refused(server)
    assert says in message
    assert "judge-1" in message
    assert len(server.requests) == calls


def test_a_server_that_is_not_there_is_one_line() -> None:
    with ChatServer().serving() as gone:
        pass
    assert "start the server, or correct --judge-url" in refused(gone, retries=0)


def test_replies_that_go_on_coming_too_late_are_one_line(server: ChatServer) -> None:
    server.answer = lambda _: completion("late", delay_seconds=30)
    assert "no answer within 0.2 s, 2 times" in refused(server, timeout_seconds=0.2)
    assert len(server.requests) == 2
