"""Requests of the openai engine: their content, order and concurrency, and how their replies are read."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import msgspec
import pytest

from longctx.fixtures.engines.openai.endpoint import ServerSettings, TokenCounting
from longctx.fixtures.records import Conversation, Generation
from tests.helpers.clients import answers, asking, echo, endpoint_of, engine_of, refused
from tests.helpers.servers import ChatServer, Request, Response, chat_completion, text_completion


def test_an_answer_takes_one_greedy_request_and_uses_the_servers_token_counts(server: ChatServer) -> None:
    server.answer = lambda _: text_completion(" seven", read=5, written=2, cached=3)
    (generation,) = engine_of(server).generate(asking("what is the magic number", stop=("\n",)))
    (request,) = server.requests
    assert request.path == "/v1/completions"
    assert request.body == {
        "model": "m", "prompt": "what is the magic number", "max_tokens": 8, "temperature": 0, "stop": ["\n"],
        "frequency_penalty": 0, "presence_penalty": 0, "repetition_penalty": 1, "repeat_penalty": 1,
    }  # fmt: skip
    expected = Generation(
        text=" seven", prompt_tokens=5, generated_tokens=2, computed_tokens=4, reused_tokens=3, finish="stop", seconds=0
    )
    assert msgspec.structs.replace(generation, seconds=0) == expected


def test_cached_tokens_that_a_server_counts_apart_are_tokens_of_the_prompt(server: ChatServer) -> None:
    server.answer = lambda _: text_completion(" seven", read=2, written=2, cached=3)
    (generation,) = engine_of(server).generate(asking("what is the magic number"))
    assert (generation.prompt_tokens, generation.reused_tokens, generation.computed_tokens) == (5, 3, 4)


def test_answers_come_in_the_order_of_the_prompts(server: ChatServer) -> None:
    def delay_first(request: Request) -> Response:
        return replace(echo(request), delay_seconds=0.2 if "first" in str(request.prompt) else 0.0)

    server.answer = delay_first
    assert answers(engine_of(server), "a first", "b second", "c third") == [" first", " second", " third"]


def test_the_batch_size_limits_concurrent_requests(server: ChatServer) -> None:
    together = threading.Barrier(3, timeout=60)

    def answer(request: Request) -> Response:
        together.wait()
        return replace(echo(request), delay_seconds=0.05)

    server.answer = answer
    texts = [f"{number} x{number}" for number in range(9)]
    assert answers(engine_of(server, batch_size=3), *texts) == [f" x{number}" for number in range(9)]
    assert server.most_at_once == 3


def test_prompts_with_a_common_prefix_wait_for_the_first_of_them(server: ChatServer) -> None:
    """Sent together, all would be computed in full: a server caches a prefix only after computing it."""
    finished: list[str] = []
    finished_before: dict[str, list[str]] = {}
    unrelated, unrelated_began = "quite another text", threading.Event()

    def slow(request: Request) -> Response:
        finished_before[str(request.prompt)] = list(finished)
        if unrelated == request.prompt:
            unrelated_began.set()
        # The first of them takes until the other prompt has been sent, and then for so long that more could be sent.
        unrelated_began.wait(10)
        time.sleep(0.1)
        finished.append(str(request.prompt))
        return echo(request)

    server.answer = slow
    shared = "one two three four five six"
    texts = [f"{shared} a", f"{shared} b", unrelated, f"{shared} c"]
    assert answers(engine_of(server), *texts) == [" a", " b", " text", " c"]
    leader, *others = sorted((text for text in texts if shared in text), key=lambda text: len(finished_before[text]))
    assert leader not in finished_before[unrelated]
    assert all(leader in finished_before[text] for text in others)


@pytest.mark.parametrize(
    ("written", "expected"), [(" 12\nQuestion: more", " 12"), (" 12", " 12"), ("\n12", ""), (" 1 END 2\n", " 1 ")]
)
def test_an_answer_is_cut_at_its_first_stop_string(server: ChatServer, written: str, expected: str) -> None:
    server.answer = lambda _: text_completion(written, read=2)
    assert answers(engine_of(server), "a b", stop=("\n", "END")) == [expected]


def test_the_server_gets_four_stop_strings_and_the_engine_applies_all(server: ChatServer) -> None:
    server.answer = lambda _: text_completion(" yes E no", read=2)
    assert answers(engine_of(server), "a b", stop=("A", "B", "C", "D", "E")) == [" yes "]
    assert server.requests[0].body["stop"] == ["A", "B", "C", "D"]


def test_token_ids_are_sent_to_a_server_that_takes_them(server: ChatServer) -> None:
    server.answer = lambda request: text_completion(" x", read=len(request.prompt))
    (prompt,) = asking("a b c")
    (generation,) = engine_of(server, endpoint=endpoint_of(server, prompts="ids")).generate([prompt])
    assert server.requests[0].prompt == list(prompt.token_ids)
    assert generation.prompt_tokens == 3


def test_prefetched_prompts_are_requested_once_and_in_the_background(server: ChatServer) -> None:
    engine = engine_of(server, batch_size=2)
    server.answer = lambda request: replace(echo(request), delay_seconds=0.2)
    generations = engine.generate(asking("an a", "a b"))
    engine.prefetch(asking("a c", "a d"))
    assert next(generations).text == " a"
    # A prefetched request starts as soon as the batch has room for it.
    deadline = time.monotonic() + 60
    while len(server.requests) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(server.requests) == 4
    assert [generation.text for generation in generations] == [" b"]
    assert answers(engine, "a c", "a d") == [" c", " d"]
    assert len(server.requests) == 4
    assert server.most_at_once <= 2


def test_queued_requests_can_be_cancelled(server: ChatServer) -> None:
    cancelled = threading.Event()

    def answer(request: Request) -> Response:
        cancelled.wait(10)
        return echo(request)

    server.answer = answer
    engine = engine_of(server, batch_size=1)
    prompts = asking("an a", "a b", "a c")
    engine.prefetch(prompts)
    while not server.requests:
        time.sleep(0.01)
    engine.cancel_queued()
    cancelled.set()
    assert [engine.is_prefetched(prompt) for prompt in prompts] == [True, False, False]
    assert [generation.text for generation in engine.generate(prompts[:1])] == [" a"]
    assert len(server.requests) == 1
    assert answers(engine, "a c") == [" c"]


CLOSES_EARLY = """
from tests.helpers.clients import asking, endpoint_of, engine_of
from longctx.fixtures.engines import EngineError
from types import SimpleNamespace
import sys

engine = engine_of(SimpleNamespace(url=sys.argv[1]), batch_size=1, timeout_seconds=600.0)
engine.prefetch(asking("a b", "a c"))
sys.stdin.readline()
engine.close()
engine.close()
try:
    list(engine.generate(asking("a b")))
except EngineError as error:
    print(error)
"""


def test_a_process_ends_without_waiting_for_pending_requests(server: ChatServer) -> None:
    server.answer = lambda request: replace(echo(request), delay_seconds=600)
    process = subprocess.Popen(
        [sys.executable, "-c", CLOSES_EARLY, server.url],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    while not server.requests and process.poll() is None:
        time.sleep(0.01)
    printed, _ = process.communicate("close\n", timeout=300)
    assert process.returncode == 0
    assert "was given up after another error; start again" in printed
    assert len(server.requests) == 1


def test_approximate_counting_detects_a_prompt_cut_in_half(server: ChatServer) -> None:
    approximate = TokenCounting(ratio=0.8, overhead=4.0, exact=False)
    words = " ".join(f"w{number}" for number in range(100))
    engine = engine_of(server, endpoint=endpoint_of(server, counting=approximate))
    server.answer = lambda _: text_completion(" ok", read=78)
    assert answers(engine, words) == [" ok"]
    server.answer = lambda _: text_completion(" ok", read=50)
    assert "it read 50 tokens where some 84 were sent" in refused(engine, words)


def test_execution_settings_depend_on_what_a_server_serves_and_not_on_its_address(server: ChatServer) -> None:
    def settings_of(**changes: Any) -> dict[str, str]:
        return ServerSettings(endpoint=endpoint_of(server, **changes)).execution()

    assert settings_of() == settings_of(url="http://other.example/v1")
    assert len({str(settings_of(**change)) for change in CHANGES}) == len(CHANGES)
    assert settings_of()["engine"] == "openai"


CHANGES: Sequence[dict[str, Any]] = (
    {}, {"serves": "/ckpt/step_2"}, {"api": "chat"}, {"api": "chat", "prefix": "instruction"}, {"prompts": "ids"},
)  # fmt: skip


def test_a_conversation_is_sent_turn_by_turn(server: ChatServer) -> None:
    server.answer = lambda _: chat_completion("seven", read=5)
    (prompt,) = asking("all turns as one text", turns=("Who?", ""))
    conversation = Conversation(
        **asdict(prompt), earlier=(("system", "Be brief."), ("user", "Read."), ("assistant", "Done."))
    )
    list(engine_of(server, endpoint=endpoint_of(server, api="chat")).generate([conversation]))
    assert server.requests[-1].body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Read."},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "Who?"},
    ]
