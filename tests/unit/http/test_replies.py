"""What is read of the replies of servers and gateways, and what each failure is taken for."""

from collections.abc import Iterator

import msgspec
import pytest

from longctx.fixtures.engines.openai.endpoint import Endpoint
from longctx.fixtures.http.completion import Completion, InvalidReply
from longctx.fixtures.http.connection import Connection
from longctx.fixtures.http.retry import ONCE, RequestFailure
from tests.helpers.servers import ChatServer, Response, in_json

THOUGHT = [{"type": "text", "text": "hm"}]


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


# By what the server does: the changes of a reply's choice, and the text and whether there was a thought, or the error.
REPLIES: dict[str, tuple[dict[str, object], object]] = {
    "parts": ({"message": {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}}, ("ab", False)),
    "a thought in parts": (
        {"message": {"content": [{"type": "thinking", "thinking": THOUGHT}, {"type": "text", "text": "a"}]}},
        ("a", True),
    ),
    "a thought in its own field": ({"message": {"content": "a", "reasoning": "hm"}}, ("a", True)),
    "a thought and nothing else": ({"message": {"content": None, "reasoning_content": "hm"}}, ("", True)),
    "an empty answer": ({"message": {"content": ""}}, ("", False)),
    "null for what it has not": ({"text": "a", "message": None, "logprobs": None}, ("a", False)),
    "a refusal": ({"message": {"content": None, "refusal": "no"}}, "is a refusal (no)"),
    "no text": ({"message": {"role": "assistant"}}, "holds no text"),
    "a list as text": ({"text": ["a"]}, "is no completion"),
    "an error in the choice": ({"text": "a", "error": {"message": "lost"}}, "holds an error ({'message': 'lost'})"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with pytest.MonkeyPatch.context() as patch, ChatServer().serving() as serving:
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield serving


def sent(server: ChatServer, response: Response) -> Completion | RequestFailure:
    """Return what is made of a response to one request."""
    server.answer = lambda _: response
    connection = Connection(server.url, None, timeout_seconds=20)

    def read(reply: Completion) -> Completion:
        reply.answer()
        return reply

    return connection.complete("chat", {}, ONCE, read)


@pytest.mark.parametrize("kind", REPLIES)
def test_one_answer_is_read_and_anything_else_is_named(kind: str, server: ChatServer) -> None:
    choice, expected = REPLIES[kind]
    body = {"choices": [{"finish_reason": "stop"} | choice], "usage": None, "error": None, "model": None}
    got = sent(server, in_json(body))
    if isinstance(got, RequestFailure):
        assert isinstance(expected, str)
        assert (got.kind, got.message[: len(expected)]) == ("unreadable", expected)
    else:
        assert (got.answer().text, got.answer().has_thought) == expected


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "is no JSON object ()"),
        (b"<html>busy</html>", "is no JSON object (<html>busy</html>)"),
        (b'data: {"choices": []}\n\ndata: [DONE]', "is no JSON object (data:"),
        (b"[]", "is no completion"),
        (b'{"choices": null}', "holds no choices"),
        (b'{"error": "lost", "choices": []}', "holds an error (lost)"),
    ],
)
def test_a_body_without_one_choice_is_unreadable(body: bytes, message: str, server: ChatServer) -> None:
    got = sent(server, Response(body=body))
    assert isinstance(got, RequestFailure)
    assert (got.kind, got.message[: len(message)]) == ("unreadable", message)


TOO_LONG = (
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
    "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000",
    "`inputs` must have less than 4096 tokens. Given: 5000",
    "Input tokens exceed the configured limit of 4096 tokens. Your messages resulted in 5000 tokens.",
    "prompt is too long: 5000 tokens > 4096 maximum",
    "input length and `max_tokens` exceed context limit: 5000 + 128 > 4096",
    "The input token count (5000) exceeds the maximum number of tokens allowed (4096).",
    "Prompt contains 5000 tokens, too large for model with 4096 maximum context length",
    "The sum of prompt length (5000.0) and max_tokens (128) should not exceed max_num_tokens (4096)",
    "Please reduce the length of the messages or completion.",
    "Request prompt has 5000 tokens in total, larger than the model input length limit 4096.",
    "default_max_tokens (-99) must be greater than 0, default_max_tokens (-99) = max_seq_len(4096) - prompt_len(5000)",
    "Number of tokens in the prompt (5000) is greater than the allowed max (4096)",
    "prompt token count 5000 + max_tokens 128 > max length 4096",
    "Input length of input_ids is 5000, but `max_length` is set to 4096",
    "Prompt length of 5000 is too big for the KV cache size 4096",
    {"code": "context_length_exceeded", "message": "no"},
    {"message": f"{'I am sorry. ' * 40} The prompt is too long."},
)
OTHERS = (
    "Unsupported parameter: 'max_tokens'; use 'max_completion_tokens'",
    "Unexpected field: cache_salt",
    "temperature must be less than 2",
    "`logprobs` must be <= 5",
    "max_tokens must be greater than 0",
    "413 Request Entity Too Large",
    "The model 'm' does not exist",
)


def test_a_prompt_that_is_too_long_is_known_in_the_words_of_every_server(server: ChatServer) -> None:
    for error in (*TOO_LONG, *OTHERS):
        for status in (400, 413, 422, 500):
            for body in ({"error": error}, {"detail": error}, {"error": {"message": error}}):
                got = sent(server, in_json(body, status=status))
                assert isinstance(got, RequestFailure)
                assert got.is_too_long == (error in TOO_LONG), (status, body)
    got = sent(server, in_json({"error": "Rate limit exceeded: too many tokens"}, status=429))
    assert isinstance(got, RequestFailure)
    assert (got.is_too_long, got.is_transient) == (False, True)


@pytest.mark.parametrize(
    ("url", "status", "remedy"),
    [
        ("http://h:1", 404, "write http://h:1/v1 as --base-url"),
        ("http://h:1/", 405, "write http://h:1/v1 as --base-url"),
        ("http://h:1/v1/chat/completions", 404, "write http://h:1/v1 as --base-url"),
        ("http://h:1/proxy/v1/completions", 405, "write http://h:1/proxy/v1 as --base-url"),
        ("http://h:1/v1", 404, "correct --base-url, name the model as URL/models/NAME (now 'm'), or use --chat server"),
        ("http://h:1/v1/", 405, "correct --base-url"),
        ("http://h:1/v1", 308, "give the address that it redirects to as --base-url"),
        ("http://h:1/v1", 401, "set LONGCTX_API_KEY to a key of this server"),
        ("http://h:1/v1", 403, "set LONGCTX_API_KEY to a key that may use this model"),
        ("http://h:1/v1", 413, "use shorter --lengths, or let the server accept larger requests"),
        ("http://h:1/v1", 429, "start again when its rate limit allows, or with fewer requests at once (--batch-size)"),
        ("http://h:1/v1", 529, "look into its log and start again; finished answers are stored"),
    ],
)
def test_every_status_has_its_remedy(url: str, status: int, remedy: str) -> None:
    endpoint = Endpoint(url=url, model="m", api="completions")
    error = endpoint.error(RequestFailure(kind="status", message="no", status=status))
    assert str(error) == f"server {url}: answers {status} (no); {remedy}"
