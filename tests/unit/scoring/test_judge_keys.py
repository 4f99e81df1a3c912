"""A judge's key goes to its own server and nowhere else; settings that cannot work or tell a secret are refused."""

import logging
import traceback
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from longctx.fixtures.scoring.judge import Judge, JudgeError, JudgeSettings
from longctx.plugins.journal import JudgeReplies
from tests.helpers.judges import ANSWER, RIGHT, decided, refused, settings_for
from tests.helpers.servers import ChatServer, Response, completion, in_json

pytestmark = pytest.mark.usefixtures("no_keys")
KEY = "sk-4f1e9a77c0ffee5ecret0123456789"


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
def test_openais_key_is_sent_to_openai_only(monkeypatch: pytest.MonkeyPatch, url: str | None, sent: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with closing(Judge(JudgeSettings(model="m", url=url))) as judge:
        assert f"Bearer {judge._connection.key or 'none'}" == sent


def test_openai_gets_no_request_without_a_key() -> None:
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


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(JudgeError, match="--judge-model"):
        JudgeSettings(model=" ")


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
        with closing(
            Judge(settings_for(server, timeout_seconds=0.2, retries=0), JudgeReplies(tmp_path, "one"))
        ) as judge:
            with pytest.raises(JudgeError) as raised:
                judge.decide(ANSWER)
            error, at = raised.value, raised.value.__traceback__
            assert at is not None
            # The first frame is this test, which knows the key.
            report = traceback.TracebackException(type(error), error, at.tb_next, capture_locals=True)
            said += [*report.format(), repr(error), repr(judge), repr(judge.settings), repr(vars(judge))]
    server.answer = lambda _: completion(f'You sent {KEY}. {{"fluency": 1, "correctness": 3}}')
    assert decided(server, store=JudgeReplies(tmp_path, "two")).value == 1
    assert server.requests[-1].authorization == f"Bearer {KEY}"
    written = [path.read_text(encoding="utf-8") for path in tmp_path.rglob("*") if path.is_file()]
    assert any("You sent ***" in text for text in written)
    captured = capfd.readouterr()
    assert [text for text in (*said, *written, caplog.text, captured.out, captured.err) if KEY in text] == []
