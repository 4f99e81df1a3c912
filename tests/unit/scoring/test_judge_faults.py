"""Failures of the judge's server: the request is repeated, or the judge gives up with an error of one line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.helpers.judges import RIGHT, decided, refused
from tests.helpers.servers import ChatServer, Response, completion, in_json


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
