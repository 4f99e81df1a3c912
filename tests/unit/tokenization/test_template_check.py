"""A chat template that fails, loops or renders too much text is refused before it is used."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from longctx.fixtures.tokenization import prompts
from longctx.fixtures.tokenization.load import TokenizerError
from longctx.fixtures.tokenization.prompts import check_rendering


def loop_forever(message: str) -> str:
    while True:
        pass


def recurse(message: str) -> str:
    return recurse(message)


def test_a_short_rendering_passes() -> None:
    check_rendering(lambda message: f"<|user|>{message}<|assistant|>")


@pytest.mark.parametrize(
    ("render", "message"),
    [
        (lambda message: str(1 // 0), r"fails \(integer division or modulo by zero\)"),
        (recurse, "fails .maximum recursion depth exceeded"),
        (lambda message: "a" * 10**6, "makes 1,000,000 characters of a message of 2,000"),
        (lambda message: message.replace("a", "a" * 9999), "makes 801,840 characters of a message of 2,000"),
        (lambda message: f"\ud800{message}", "surrogates not allowed"),
        (lambda message: "a" * 3 * 10**9, "does not end within"),
    ],
    ids=["raises", "recurses", "too long", "repeats a letter", "half a character", "too large"],
)
def test_a_bad_rendering_is_refused_with_a_one_line_error(render: Callable[[str], str], message: str) -> None:
    with pytest.raises(TokenizerError, match=message) as raised:
        check_rendering(render)
    assert "\n" not in str(raised.value)


def test_an_endless_rendering_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "MAX_SECONDS", 1)
    started = time.monotonic()
    with pytest.raises(TokenizerError, match="does not end within 1 s"):
        check_rendering(loop_forever)
    assert time.monotonic() - started < 10
