"""An openai engine for tests, with a tokenizer of words, prompts of words and a server that counts them."""

from dataclasses import replace
from typing import Any

import pytest

from longctx.fixtures.engines import EngineError
from longctx.fixtures.engines.openai.endpoint import Endpoint, ServerSettings, TokenCounting
from longctx.fixtures.engines.openai.engine import OpenAIEngine
from longctx.fixtures.http.retry import RetryPolicy
from longctx.fixtures.records import Prompt
from tests.helpers.servers import ChatServer, Request, Response, text_completion

EXACT = TokenCounting(ratio=1.0, overhead=0.0, exact=True)


class Words:
    """A tokenizer with one token per word."""

    eos_token_id = 0
    bos_token_id = None
    bos_token = None

    def __call__(self, text: str, *, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": list(range(1, len(text.split()) + 1))}

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool) -> str:
        return " ".join(f"w{token}" for token in token_ids)


def echo(request: Request) -> Response:
    """Answer with the prompt's last word and a correct token count."""
    words = str(request.prompt).split()
    return text_completion(f" {words[-1]}", read=len(words))


def asking(*texts: str, **changes: Any) -> list[Prompt]:
    """Return prompts with one token per word; equal words are equal tokens."""
    prompts = []
    for text in texts:
        ids = tuple(1 + hash(word) % 10_000_000 for word in text.split())
        prompts.append(Prompt(text=text, token_ids=ids, length_tokens=len(ids), generation_tokens=8, **changes))
    return prompts


def endpoint_of(server: ChatServer, **changes: Any) -> Endpoint:
    plain = Endpoint(url=server.url, model="m", api="completions", prompts="text", prefix="continued", counting=EXACT)
    return replace(plain, **changes)


def engine_of(
    server: ChatServer, *, retry_policy: float = 5.0, most_attempts: int = 4, **settings: Any
) -> OpenAIEngine:
    known: dict[str, Any] = {"endpoint": endpoint_of(server), "timeout_seconds": 20.0, "batch_size": 4}
    return OpenAIEngine(
        ServerSettings(**known | settings), Words(), RetryPolicy(seconds=retry_policy, most_attempts=most_attempts)
    )


def answers(engine: OpenAIEngine, *texts: str, **changes: Any) -> list[str]:
    return [generation.text for generation in engine.generate(asking(*texts, **changes))]


def refused(engine: OpenAIEngine, *texts: str) -> str:
    """Return the one-line error of an engine that cannot answer."""
    with pytest.raises(EngineError) as raised:
        list(engine.generate(asking(*(texts or ("one two",)))))
    message = str(raised.value)
    assert "\n" not in message
    assert ";" in message, "an error says what to do"
    return message
