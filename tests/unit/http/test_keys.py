"""A key is sent only to its own server, and no error, log or answer shows it."""

import logging
import traceback
from dataclasses import replace
from pathlib import Path

import pytest

from longctx.fixtures.engines import EngineError
from longctx.fixtures.engines.openai.server_process import ServeError, ServerProcess
from tests.helpers.clients import answers, asking, engine_of
from tests.helpers.servers import ChatServer, in_json, text_completion

KEY = "sk-4f1e9a77c0ffee5ecret0123456789"


def traceback_text(raised: pytest.ExceptionInfo[EngineError]) -> str:
    """Return all text that a traceback could show of an error and its causes."""
    return "".join(traceback.format_exception(raised.value, chain=True)) + repr(raised.value.__context__)


@pytest.mark.parametrize("status", [200, 400, 401, 500])
def test_a_key_that_a_server_repeats_is_hidden(
    server: ChatServer, status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LONGCTX_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_LOG", "debug")
    caplog.set_level(logging.DEBUG)
    server.answer = lambda _: in_json({"error": {"message": f"Bearer {KEY} is wrong"}}, status=status)
    with pytest.raises(EngineError) as raised:
        list(engine_of(server, retry_policy=0.1).generate(asking("one two")))
    assert server.requests[0].authorization == f"Bearer {KEY}"
    assert KEY not in traceback_text(raised)
    assert KEY not in caplog.text
    server.answer = lambda _: text_completion(f" {KEY} two", read=2)
    assert answers(engine_of(server), "one two") == [" *** two"]


def test_a_key_in_json_escapes_is_hidden(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-4f1e9a77/c0ffee/5ecret"
    monkeypatch.setenv("LONGCTX_API_KEY", key)
    reply = text_completion(f" {key} two", read=2)
    server.answer = lambda _: replace(reply, body=reply.body.replace(b"/", b"\\/"))
    assert answers(engine_of(server), "one two") == [" *** two"]


def test_the_openai_key_is_not_sent_to_another_server(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    answers(engine_of(server), "one two")
    assert KEY not in server.requests[0].headers


def test_the_log_of_a_started_server_shows_no_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LONGCTX_API_KEY", KEY)
    process = ServerProcess(["sh", "-c", 'echo "Authorization: Bearer $0"; echo ready', KEY], tmp_path / "log")
    with pytest.raises(ServeError) as raised:
        process.wait(lambda: False, seconds=60)
    process.stop()
    assert (tmp_path / "log").read_text() == "Authorization: Bearer ***\nready\n"
    assert "(ready)" in str(raised.value)
