"""Log-probabilities from servers: the two forms of replies, and the refusal of servers that have neither."""

import math
from typing import Any

import pytest

from longctx.fixtures.engines import EngineError
from longctx.fixtures.engines.openai.endpoint import Endpoint, ServerSettings, connect
from longctx.fixtures.engines.openai.engine import OpenAIEngine
from longctx.fixtures.engines.openai.log_probabilities import Method, require_log_probabilities
from longctx.fixtures.http.retry import ONCE, RetryPolicy
from longctx.fixtures.records import Prompt
from tests.golden.engines import Letters
from tests.helpers import clients
from tests.helpers.servers import ChatServer, Request, Response, text_completion

VALUES = {7: -0.25, 8: -1.5, 9: -3.0}
PROMPT = Prompt(text="", token_ids=(1, 2, 3), length_tokens=3, generation_tokens=4)


def reply_of(kind: str, request: Request) -> Response:
    """Reply as a server of a kind does: token 8 is never the best one."""
    ids = [int(token) for token in request.prompt]
    values = [VALUES.get(token, -2.0) for token in ids]
    choice: dict[str, Any] = {"index": 0, "text": "x", "finish_reason": "length"}
    if kind == "vllm" and "prompt_logprobs" in request.body:
        entries = [
            {str(token): {"logprob": value, "rank": 1}, "5": {"logprob": -1.0 if token == 8 else -9.0}}
            for token, value in zip(ids, values, strict=True)
        ]
        choice["prompt_logprobs"] = [None, *entries[1:]]
    if kind == "echo" and request.body.get("echo"):
        tops = [{"a": -1.0 if token == 8 else value} for token, value in zip(ids, values, strict=True)]
        choice["logprobs"] = {"token_logprobs": [None, *values[1:], -4.0], "top_logprobs": [None, *tops[1:], {}]}
    return text_completion("x", read=len(ids), choices=[choice])


def endpoint_of(server: ChatServer, **changes: Any) -> Endpoint:
    return clients.endpoint_of(server, **{"prompts": "ids", **changes})


def method_of(server: ChatServer, policy: RetryPolicy = RetryPolicy(), **changes: Any) -> Method:
    connection = connect(server.url, timeout_seconds=60)
    return require_log_probabilities(connection, endpoint_of(server, **changes), [1, 2, 3], policy)


def engine_of(server: ChatServer, kind: str) -> OpenAIEngine:
    server.answer = lambda request: reply_of(kind, request)
    method = method_of(server)
    return OpenAIEngine(ServerSettings(endpoint=endpoint_of(server, log_probabilities=method)), Letters())


@pytest.mark.parametrize("kind", ["vllm", "echo"])
def test_both_forms_give_the_log_probabilities_of_the_continuation(kind: str, server: ChatServer) -> None:
    scores = list(engine_of(server, kind).score([PROMPT] * 3, [(7, 8), (9,), (7, 8, 9)]))
    assert [score.log_probabilities for score in scores] == [(-0.25, -1.5), (-3.0,), (-0.25, -1.5, -3.0)]
    assert [score.is_greedy for score in scores] == [(True, False), (True,), (True, False, True)]
    assert server.requests[-1].body["max_tokens"] == 1


def test_a_server_without_log_probabilities_is_refused_in_one_line(server: ChatServer) -> None:
    with pytest.raises(EngineError, match=r"^--signal: the server \S+ knows neither prompt_logprobs nor echo"):
        engine_of(server, "neither")


def test_a_busy_server_is_not_said_to_lack_log_probabilities(server: ChatServer) -> None:
    server.answer = lambda _: Response(status=503)
    with pytest.raises(EngineError, match="answers 503"):
        method_of(server, ONCE)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"api": "chat"}, "takes no given answer"), ({"prompts": "text"}, "no prompts of token ids")],
)
def test_an_endpoint_that_cannot_take_a_given_answer_is_refused(
    changes: dict[str, Any], reason: str, server: ChatServer
) -> None:
    with pytest.raises(EngineError, match=reason):
        method_of(server, **changes)


@pytest.mark.parametrize(
    "logprobs",
    [
        # Behind the prompt of three tokens stands the one of the answer.
        pytest.param({"token_logprobs": [-1.0, -2.0, -3.0], "top_logprobs": [{}] * 3}, id="without the first"),
        pytest.param({"token_logprobs": [None, -1.0, -math.inf, -3.0], "top_logprobs": [{}] * 4}, id="infinite"),
        pytest.param({"token_logprobs": [None, -1.0, math.nan, -3.0], "top_logprobs": [{}] * 4}, id="no number"),
        pytest.param({"token_logprobs": [None, -1.0, 0.5, -3.0], "top_logprobs": [{}] * 4}, id="positive"),
        pytest.param({"token_logprobs": [None, -1.0, -2.0, -3.0], "top_logprobs": None}, id="without the best"),
        pytest.param({"token_logprobs": [-3.0], "top_logprobs": [{}]}, id="of the answer alone"),
        pytest.param({"content": []}, id="of a chat"),
    ],
)
def test_what_is_no_log_probability_of_every_token_is_refused(logprobs: dict[str, Any], server: ChatServer) -> None:
    choice = {"index": 0, "text": "x", "finish_reason": "length", "logprobs": logprobs}
    server.answer = lambda request: text_completion("x", read=3, choices=[choice])
    with pytest.raises(EngineError, match="knows neither"):
        method_of(server)


def test_a_reply_that_lacks_a_token_is_an_error(server: ChatServer) -> None:
    engine = engine_of(server, "vllm")
    server.answer = lambda request: text_completion("x", read=len(request.prompt))
    with pytest.raises(EngineError, match="an answer holds no log-probabilities"):
        list(engine.score([PROMPT], [(7, 8)]))
    server.answer = lambda request: text_completion("x", read=2)
    with pytest.raises(EngineError, match="counts 2 prompt tokens of 5"):
        list(engine.score([PROMPT], [(7, 8)]))
