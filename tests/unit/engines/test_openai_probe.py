"""The probe finds the server's name for the model, its token counting, its input format and its answer prefix."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from longctx.fixtures.engines import EngineError
from longctx.fixtures.engines.openai.endpoint import LIMITS, Endpoint, ServerSettings, connect
from longctx.fixtures.engines.openai.engine import OpenAIEngine
from longctx.fixtures.engines.openai.probe import Probe
from longctx.fixtures.http.retry import RetryPolicy
from longctx.fixtures.records import Prompt
from tests.golden.engines import Letters
from tests.helpers.servers import ChatServer, Request, Response, chat_completion, in_json, text_completion

pytestmark = pytest.mark.usefixtures("no_keys")
NAMES = ("/ckpt/step_9", "step_9")
FIELDS = LIMITS | {"stop", "frequency_penalty", "presence_penalty", "repetition_penalty"}


@pytest.fixture
def server(server: ChatServer) -> ChatServer:
    server.models = in_json({"data": [{"id": "step_9", "root": "/ckpt/step_9"}]})
    server.answer = count_characters
    return server


def characters(text: str) -> list[int]:
    """Tokenize into code points after a BOS."""
    return [0, *map(ord, text)]


def count_characters(request: Request) -> Response:
    """Reply with a count of characters and a BOS; accept token ids, and continue a begun assistant turn."""
    if "messages" not in request.body:
        count = len(request.prompt) + isinstance(request.prompt, str)
        return text_completion(" x", read=count)
    contents = [str(turn["content"]) for turn in request.body["messages"]]
    end_tokens = 4 * (len(contents) > 1 and not request.body.get("continue_final_message"))
    return chat_completion(" x", read=8 + sum(map(len, contents)) + end_tokens)


def refusing(field: str, message: str, status: int = 400) -> Callable[[Request], Response]:
    """Return a server that refuses requests with a field."""
    refusal = in_json({"error": {"message": message}}, status=status)
    return lambda request: refusal if field in request.body else count_characters(request)


def probed(
    server: ChatServer,
    timeout_seconds: float = 60,
    policy: RetryPolicy = RetryPolicy(seconds=5),
    served_name: str | None = None,
    is_own_tokenizer: bool = True,
    **changes: Any,
) -> Endpoint:
    known: dict[str, Any] = {"url": server.url, "model": served_name or NAMES[0], "api": "completions"}
    connection = connect(server.url, timeout_seconds=timeout_seconds)
    probe = Probe(connection=connection, endpoint=Endpoint(**known | changes), ids=characters, policy=policy)
    return probe.described(NAMES, served_name, is_own_tokenizer=is_own_tokenizer)


def refused(server: ChatServer, **changes: Any) -> str:
    with pytest.raises(EngineError) as raised:
        probed(server, **changes)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_server_that_counts_like_the_tokenizer_gets_ids_and_exact_counting(server: ChatServer) -> None:
    endpoint = probed(server)
    assert (endpoint.model, endpoint.serves) == ("step_9", "")
    assert (endpoint.prompts, endpoint.prefix, endpoint.counting.exact) == ("ids", "continued", True)
    assert probed(server, is_own_tokenizer=False) == replace(endpoint, serves="/ckpt/step_9")


def test_another_tokenizer_is_refused_for_a_checkpoint_and_accepted_for_a_model_name(
    server: ChatServer,
) -> None:
    server.answer = lambda request: text_completion(" x", read=len(request.prompt) // 2)
    assert "does not count tokens as the tokenizer of --model does" in refused(server)
    endpoint = probed(server, is_own_tokenizer=False)
    assert (endpoint.prompts, endpoint.counting.exact) == ("text", False)
    assert endpoint.counting.ratio == pytest.approx(0.5, abs=0.02)


def test_a_server_that_doubles_the_bos_or_does_not_count_is_refused(server: ChatServer) -> None:
    server.answer = lambda request: text_completion(" x", read=len(request.prompt) + 2)
    assert "or reads prompts otherwise" in refused(server)
    server.answer = lambda _: in_json({"choices": [{"text": "x"}]})
    assert "without usage.prompt_tokens a cut prompt would go unnoticed" in refused(server)


@pytest.mark.parametrize(
    ("models", "named", "model"),
    [
        pytest.param(Response(status=404), None, "/ckpt/step_9", id="no list"),
        pytest.param(Response(status=500), None, "/ckpt/step_9", id="a list that fails"),
        pytest.param(in_json({"data": []}), None, "/ckpt/step_9", id="an empty list"),
        pytest.param(in_json({"data": None}), None, "/ckpt/step_9", id="a null list"),
        pytest.param(in_json({"data": []}), "mine", "mine", id="a given name"),
        pytest.param(in_json({"data": [{"id": "m", "root": "/ckpt/step_9"}]}), None, "m", id="by its directory"),
        pytest.param(in_json({"data": [{"id": "x"}, {"id": "step_9"}]}), None, "step_9", id="one of two"),
    ],
)
def test_requests_use_the_servers_name_for_the_model(
    server: ChatServer, models: Response, named: str | None, model: str
) -> None:
    server.models = models
    assert probed(server, served_name=named).model == model
    assert {request.body["model"] for request in server.requests} == {model}


def test_a_server_without_the_model_is_refused(server: ChatServer) -> None:
    server.models = in_json({"data": [{"id": "step_8", "root": "/ckpt/step_8"}]})
    assert "has step_8, but no '/ckpt/step_9'; name the model in the address" in refused(server)


@pytest.mark.parametrize(
    ("entry", "context"),
    [({"max_model_len": 8192}, 8192), ({"context_length": 512}, 512), ({"max_model_len": None}, None), ({}, None)],
)
def test_the_context_is_read_from_the_servers_list(
    server: ChatServer, entry: dict[str, Any], context: int | None
) -> None:
    server.models = in_json({"data": [{"id": "step_9", "root": "/ckpt/step_9"} | entry]})
    assert probed(server).context == context


def test_a_chat_server_that_can_continue_an_answer_gets_its_prefix(server: ChatServer) -> None:
    endpoint = probed(server, api="chat")
    assert (endpoint.prefix, endpoint.counting.exact, endpoint.counting.overhead) == ("continued", True, 7.0)
    server.requests.clear()
    engine = OpenAIEngine(ServerSettings(endpoint=endpoint), Letters())
    turns = ("Where?", "It is")
    prompt = Prompt(text="", token_ids=tuple(characters("".join(turns))), length_tokens=1, generation_tokens=4)
    (generation,) = engine.generate([replace(prompt, turns=turns)])
    (request,) = server.requests
    assert request.body["messages"] == [
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": "It is"},
    ]
    assert (request.body["continue_final_message"], request.body["add_generation_prompt"]) == (True, False)
    assert request.body["max_completion_tokens"] == 4
    assert generation.text == " x"


@pytest.mark.parametrize("refuses", [True, False])
def test_a_chat_server_that_cannot_continue_an_answer_gets_an_instruction(server: ChatServer, refuses: bool) -> None:
    def without_continuation(request: Request) -> Response:
        if refuses and "continue_final_message" in request.body:
            return in_json({"detail": "Unexpected fields"}, status=422)
        request.body.pop("continue_final_message", None)
        return count_characters(request)

    server.answer = without_continuation
    assert probed(server, api="chat").prefix == "instruction"


def test_a_model_that_takes_no_temperature_is_sampled_and_reported_so(server: ChatServer) -> None:
    assert probed(server, api="chat").greedy is True
    server.answer = refusing("temperature", "Unsupported value: 'temperature'")
    assert probed(server, api="chat").greedy is False


FAULTS = {
    "busy": in_json({"error": "busy"}, status=429),
    "busy, without a pause": in_json({"error": "busy"}, status=429, Retry_After="0"),
    "unavailable": Response(status=503),
    "broken": Response(status=500),
    "cut": Response(body=b"{}", cut=True),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("api", ["completions", "chat"])
def test_failures_before_every_reply_do_not_change_the_endpoint(server: ChatServer, api: str, fault: str) -> None:
    expected = probed(server, api=api)
    sent: Counter[str] = Counter()

    def fail_twice(request: Request) -> Response:
        sent[str(request.body)] += 1
        return count_characters(request) if sent[str(request.body)] > 2 else FAULTS[fault]

    server.answer = fail_twice
    assert probed(server, api=api) == expected
    assert list(sent.values()) == [3, 3, 3]


@pytest.mark.parametrize("status", [400, 404, 405, 415, 422, 500, 501])
def test_a_server_that_always_refuses_ids_gets_text(server: ChatServer, status: int) -> None:
    refusal = in_json({"error": "no"}, status=status)
    server.answer = lambda request: count_characters(request) if isinstance(request.prompt, str) else refusal
    assert probed(server).prompts == "text"
    assert len(server.requests) == (6 if status == 500 else 3)


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_stays_busy_during_the_probe_is_a_one_line_error(server: ChatServer, status: int) -> None:
    """Otherwise a busy server would be probed differently at every start."""
    busy = in_json({"error": "later"}, status=status)
    short_policy = RetryPolicy(seconds=0.2)
    server.answer = lambda request: count_characters(request) if isinstance(request.prompt, str) else busy
    assert f"answers {status} (later); " in refused(server, policy=short_policy)
    server.answer = lambda request: count_characters(request) if len(request.body["messages"]) == 1 else busy
    assert f"answers {status} (later); " in refused(server, policy=short_policy, api="chat")
    server.models = busy
    assert f"answers {status} (later); " in refused(server, policy=short_policy)


def test_a_wrong_address_is_reported_long_before_retries_end() -> None:
    with ChatServer().serving() as gone:
        pass
    began = time.monotonic()
    assert "the connection fails" in refused(gone, policy=RetryPolicy())
    assert time.monotonic() - began < RetryPolicy().seconds / 2


def test_the_openai_api_needs_a_key() -> None:
    with pytest.raises(EngineError, match=r"no key for .*; set LONGCTX_API_KEY"):
        connect("https://api.openai.com/v1", timeout_seconds=1)


@pytest.mark.parametrize("status", [400, 422, 500])
@pytest.mark.parametrize(
    ("api", "refused", "named", "left"),
    [
        ("completions", "repetition_penalty", True, FIELDS - {"repetition_penalty", "max_completion_tokens"}),
        ("completions", "repetition_penalty", False, {"max_tokens"}),
        ("completions", "stop", True, FIELDS - {"stop", "max_completion_tokens"}),
        ("chat", "stop", False, {"max_tokens", "max_completion_tokens"}),
        ("chat", "max_tokens", True, FIELDS - {"max_tokens"}),
        ("chat", "max_tokens", False, {"max_completion_tokens"}),
        ("chat", "max_completion_tokens", True, FIELDS - {"max_completion_tokens"}),
        ("chat", "max_completion_tokens", False, {"max_tokens"}),
    ],
)
def test_a_field_that_the_server_refuses_is_left_out_of_all_later_requests(
    server: ChatServer, api: str, refused: str, named: bool, left: set[str], status: int
) -> None:
    """A server that names no field gets none of the optional ones."""
    message = f"Unexpected fields in the request: {{'{refused}'}}" if named else "Bad request"
    server.answer = refusing(refused, message, status)
    endpoint = probed(server, api=api)
    assert refused in endpoint.refused
    assert FIELDS & server.requests[-1].body.keys() == left
    # A server may mean either limit; the openai client repeats a 500, which may pass.
    most = 3 if refused in LIMITS else 1
    sent = sum(refused in request.body for request in server.requests)
    assert sent <= most * (4 if status == 500 else 1)


@pytest.mark.parametrize(
    ("message", "left"),
    [
        ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", "max_completion_tokens"),
        ("max_tokens and max_completion_tokens cannot both be set", "max_completion_tokens"),
        ("'max_completion_tokens' is unknown; use 'max_tokens'", "max_tokens"),
    ],
)
def test_a_chat_gets_the_limit_that_a_server_does_not_refuse(server: ChatServer, message: str, left: str) -> None:
    other = next(iter(LIMITS - {left}))
    server.answer = refusing(other, message)
    probed(server, api="chat")
    assert server.requests[-1].body.keys() & FIELDS == FIELDS - {other}


def test_a_salt_keeps_caches_apart_where_the_server_accepts_one(server: ChatServer) -> None:
    salted = probed(server, salt="run-1")
    assert {request.body["cache_salt"] for request in server.requests} == {"run-1"}
    assert (salted.salt, salted.refused) == ("run-1", frozenset())
    server.answer = refusing("cache_salt", "Unrecognized request argument supplied: cache_salt")
    assert probed(server, salt="run-1").refused == {"cache_salt"}
