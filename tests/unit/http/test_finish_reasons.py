"""The finish reasons of servers and gateways, in whatever case and spelling."""

from __future__ import annotations

import msgspec
import pytest

from longctx.fixtures.http.completion import Completion, InvalidReply


def reply(reason: str | None) -> Completion:
    return msgspec.convert({"choices": [{"text": "7", "finish_reason": reason}]}, Completion)


@pytest.mark.parametrize(
    ("reasons", "finish"),
    [
        (("stop", "STOP", "Stop", "eos", "EOS_TOKEN", "end_turn", "end-turn", "endTurn", "stop_sequence",
            "FinishReason.STOP", "FINISH_REASON_STOP"), "stop"),
        (("length", "LENGTH", "max_tokens", "MAX_TOKENS", "maxTokens", "FINISH_REASON_MAX_TOKENS"), "length"),
    ],
)  # fmt: skip
def test_a_reason_is_read_in_any_spelling(reasons: tuple[str, ...], finish: str) -> None:
    assert {reason: reply(reason).answer().finish for reason in reasons} == dict.fromkeys(reasons, finish)


@pytest.mark.parametrize(
    "reason", [None, "", "abort", "error", "content_filter", "SAFETY", "tool_calls", "model_length", "finish_reason"]
)
def test_a_reason_that_is_no_end_of_an_answer_is_refused(reason: str | None) -> None:
    with pytest.raises(InvalidReply, match="is no whole answer"):
        reply(reason).answer()
