"""Sound servers keep every property that shows from outside, and faults of caches and batches break one."""

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from benchmarks.faults.engine_faults import ENGINE_FAULTS
from longctx.fixtures.engines.hf.engine import HfEngine
from longctx.fixtures.engines.openai.endpoint import ServerSettings
from longctx.fixtures.engines.openai.engine import OpenAIEngine
from longctx.fixtures.invariance.server_check import ServerQuestion, check_server_engine
from longctx.fixtures.records import Prompt
from tests.golden.engines import Letters
from tests.helpers.servers import ChatServer, Request, Response, text_completion
from tests.helpers.tiny_engines import engine_of
from tests.helpers.tiny_models import CONFIGS, prompt, random_prompt, save_model
from tests.unit.engines.test_openai_scores import endpoint_of

TEXT, END = random_prompt(140).token_ids, random_prompt(40).token_ids
SHARPNESS = 5.0
# Some tokens that scripted servers say they took from their cache.
READ_FROM_CACHE = 16


def question(number: int) -> ServerQuestion:
    one, other = ((number + 10, *TEXT, *END[at : at + 20]) for at in (0, 20))
    return ServerQuestion(name=f"question {number}", prompt=prompt(one, 16), other=prompt(other, 16))


QUESTIONS = [question(number) for number in range(3)]
BATCH = [question(number) for number in range(3, 6)]


def answers_of(engine: HfEngine) -> Callable[[Request], Response]:
    """Return a function that answers like a server which keeps one prefix cache for all requests."""
    lock = threading.Lock()

    def answer(request: Request) -> Response:
        steps: list[dict[str, float]] = []
        ids = tuple(int(token) for token in request.prompt)
        with lock:
            engine.record_logits = lambda _, logits: steps.append(best_of(logits))
            (generation,) = engine.generate([prompt(ids, request.body["max_tokens"])])
        tokens = generation.text.split()
        return reply(tokens, steps[: len(tokens)], read=len(ids), cached=generation.reused_tokens)

    return answer


def best_of(logits: Tensor) -> dict[str, float]:
    values, tokens = logits.log_softmax(0).topk(5)
    return {str(token): value for token, value in zip(tokens.tolist(), values.tolist(), strict=True)}


def reply(
    tokens: list[str], steps: list[dict[str, float]], *, read: int, cached: int | None = READ_FROM_CACHE
) -> Response:
    """Return a reply with the log-probabilities of the best tokens of every step."""
    choice: dict[str, Any] = {"index": 0, "text": " ".join(tokens), "finish_reason": "stop"}
    if steps:
        values = [step[token] for token, step in zip(tokens, steps, strict=True)]
        choice["logprobs"] = {"tokens": tokens, "token_logprobs": values, "top_logprobs": steps}
    return text_completion("", read=read, cached=cached, choices=[choice])


def verdicts(server: ChatServer, **settings: Any) -> dict[str, str]:
    findings = check_server_engine(served(server, **settings), QUESTIONS, BATCH)
    return {finding.name: finding.verdict for finding in findings}


def served(server: ChatServer, **settings: Any) -> OpenAIEngine:
    return OpenAIEngine(ServerSettings(endpoint=endpoint_of(server), **settings), Letters())


SOUND = {"warm": "pass", "order": "pass", "batch": "pass"}
NOT_SEEN = dict.fromkeys(("prefill", "decode", "chunks"), "skipped")


@pytest.mark.parametrize(
    ("fault", "failed"),
    [(None, ()), ("stale_state", ("warm", "order")), ("merge_base_two", ("order",))],
)
def test_faults_of_a_server_s_cache_break_the_properties_they_concern(
    fault: str | None, failed: tuple[str, ...], server: ChatServer, tmp_path: Path
) -> None:
    engine = engine_of(save_model(CONFIGS["llama"], tmp_path / "llama"))
    # Random weights have no preference; a trained model is sure of most tokens.
    engine.loaded.model.lm_head.weight.data *= SHARPNESS
    if fault:
        ENGINE_FAULTS[fault].inject(engine, ENGINE_FAULTS[fault].usual)
    server.answer = answers_of(engine)
    found = verdicts(server)
    expected = NOT_SEEN | SOUND | dict.fromkeys(failed, "fail")
    if fault:
        # Requests of a batch reach the cache in any order, so that a wrong cache may change their answers or not.
        del expected["batch"]
        assert found.pop("batch") in ("pass", "fail")
    assert found == expected


def scripted(server: ChatServer, tokens: Callable[[Request], list[str]], value: float | None) -> None:
    def answer(request: Request) -> Response:
        words = tokens(request)
        steps: list[dict[str, float]] = []
        if value is not None:
            others = dict.fromkeys("abx", math.log1p(-math.exp(value)))
            steps = [others | {word: value} for word in words]
        return reply(words, steps, read=len(request.prompt))

    server.answer = answer


def test_a_batch_with_other_answers_fails_and_names_token_and_both_texts(server: ChatServer) -> None:
    together = threading.Barrier(3, timeout=60)
    is_batch = {tuple(one.prompt.token_ids): True for one in BATCH}

    def tokens(request: Request) -> list[str]:
        if is_batch.pop(tuple(int(token) for token in request.prompt), False):
            together.wait()
            return ["a", "x"]
        return ["a", "b"]

    scripted(server, tokens, -0.01)
    finding = list(check_server_engine(served(server), QUESTIONS, BATCH))[-1]
    assert (finding.name, finding.verdict, finding.token) == ("batch", "fail", 2)
    assert finding.line.startswith("batch: question 3: token 2 of the answer: log-probabilities differ by 4.6")
    assert finding.line.endswith("'a x' instead of 'a b'")


@pytest.mark.parametrize("value", [-0.7, None])
def test_a_flip_at_a_near_tie_or_of_one_text_is_no_alarm(value: float | None, server: ChatServer) -> None:
    seen: list[Prompt | tuple[int, ...]] = []

    def tokens(request: Request) -> list[str]:
        ids = tuple(int(token) for token in request.prompt)
        seen.append(ids)
        return ["a", "x" if ids == QUESTIONS[0].prompt.token_ids and seen.count(ids) > 1 else "b"]

    scripted(server, tokens, value)
    assert verdicts(server) == NOT_SEEN | SOUND


def test_without_log_probabilities_other_texts_fail(server: ChatServer) -> None:
    seen: set[tuple[int, ...]] = set()

    def tokens(request: Request) -> list[str]:
        ids = tuple(int(token) for token in request.prompt)
        again = ids in seen
        seen.add(ids)
        return ["x" if again else "a"]

    scripted(server, tokens, None)
    assert verdicts(server, batch_size=1) == NOT_SEEN | {"warm": "fail", "order": "fail", "batch": "skipped"}


def test_a_cache_that_serves_nothing_is_not_exercised(server: ChatServer) -> None:
    def answer(request: Request) -> Response:
        time.sleep(0.05)
        return reply(["1"], [{"1": -0.1}], read=len(request.prompt), cached=None)

    server.answer = answer
    findings = {finding.name: finding for finding in check_server_engine(served(server), QUESTIONS, BATCH)}
    assert [findings[name].verdict for name in ("warm", "order", "batch")] == ["skipped", "skipped", "pass"]
    assert findings["warm"].reason.startswith("not exercised: the server counts no cached tokens")
