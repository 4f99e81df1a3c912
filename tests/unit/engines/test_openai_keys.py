"""A key goes to the server that it is for, and is shown nowhere, whatever a server says."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from dataclasses import replace

import pytest

from fixtures.engines import EngineError
from tests.helpers.clients import answers, asking, echo, engine_of
from tests.helpers.servers import ChatServer, forget_keys, in_json, text_completion

KEY = "sk-4f1e9a77c0ffee5ecret0123456789"


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_keys(monkeypatch)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer().serving() as serving:
        serving.answer = echo
        yield serving


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
        list(engine_of(server, retry_policy=0.1).generate(asking("one two")))
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
