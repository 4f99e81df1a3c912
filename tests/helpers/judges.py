"""A judge with a local server, and texts to judge."""

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from longctx.fixtures.scoring.judge import Judge, JudgedAnswer, JudgedSummary, JudgeError, JudgeSettings
from longctx.plugins.journal import JudgeReplies
from tests.helpers.servers import ChatServer, completion

RIGHT = completion('It agrees.\n{"fluency": 1, "correctness": 2}')
ANSWER = JudgedAnswer(question="Where did she go?", references=("the North Sea",), answer="To the North Sea.")
SUMMARY = JudgedSummary(
    subject="a novel", key_points=("a ship sinks", "a man survives"), reference="A ship sinks.", summary="A ship sank."
)


def settings_for(server: ChatServer, **changes: Any) -> JudgeSettings:
    plain = JudgeSettings(model="judge-1", url=server.url, concurrency=4, timeout_seconds=20, retries=1, rereads=1)
    return replace(plain, **changes)


def decided(server: ChatServer, judged: Any = ANSWER, store: JudgeReplies | None = None, **changes: Any) -> Any:
    with closing(Judge(settings_for(server, **changes), store)) as judge:
        return judge.decide(judged)


def refused(server: ChatServer, judged: Any = ANSWER, **changes: Any) -> str:
    """The one line that a judgement ends in."""
    with pytest.raises(JudgeError) as raised:
        decided(server, judged, **changes)
    message = str(raised.value)
    assert "\n" not in message
    assert ";" in message, "an error says what to do"
    return message
