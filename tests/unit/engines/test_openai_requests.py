"""The requests of the openai engine, their order and number at once, and its reading of the replies."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from fixtures.checkpoints.checkpoint import Checkpoint
from fixtures.engines import execution_settings
from fixtures.engines.openai.endpoint import TokenCounting
from fixtures.engines.openai.requests import prefix_families
from fixtures.records import Generation
from tests.helpers.clients import CHECKPOINT, answers, asking, echo, endpoint_of, engine_of, refused
from tests.helpers.servers import ChatServer, Request, Response, forget_keys, text_completion


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_keys(monkeypatch)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer().serving() as serving:
        serving.answer = echo
        yield serving


def test_an_answer_takes_one_greedy_request_and_counts_what_the_server_read(server: ChatServer) -> None:
    server.answer = lambda _: text_completion(" seven", read=5, written=2, cached=3)
    (generation,) = engine_of(server).generate(asking("what is the magic number", stop=("\n",)))
    (request,) = server.requests
    assert request.path == "/v1/completions"
    assert request.body == {
        "model": "m", "prompt": "what is the magic number", "max_tokens": 8, "temperature": 0, "stop": ["\n"],
    }  # fmt: skip
    expected = Generation(
        text=" seven", prompt_tokens=5, generated_tokens=2, computed_tokens=4, reused_tokens=3, finish="stop", seconds=0
    )
    assert msgspec.structs.replace(generation, seconds=0) == expected


def test_answers_come_in_the_order_of_the_prompts_whichever_is_ready_first(server: ChatServer) -> None:
    def late(request: Request) -> Response:
        return replace(echo(request), delay_seconds=0.2 if "first" in str(request.prompt) else 0.0)

    server.answer = late
    assert answers(engine_of(server), "a first", "b second", "c third") == [" first", " second", " third"]


def test_no_more_is_asked_at_once_than_allowed(server: ChatServer) -> None:
    server.answer = lambda request: replace(echo(request), delay_seconds=0.05)
    texts = [f"{number} x{number}" for number in range(9)]
    assert answers(engine_of(server, batch_size=3), *texts) == [f" x{number}" for number in range(9)]
    assert server.most_at_once == 3


def test_what_shares_a_beginning_is_asked_after_the_first_of_it_has_been_read(server: ChatServer) -> None:
    """Asked together, each would be read whole: the server's cache has a prefix only once it was computed."""
    done: list[str] = []
    begun: dict[str, list[str]] = {}

    def slow(request: Request) -> Response:
        begun[str(request.prompt)] = list(done)
        time.sleep(0.1)
        done.append(str(request.prompt))
        return echo(request)

    server.answer = slow
    shared = "one two three four five six"
    texts = [f"{shared} a", f"{shared} b", "quite another text", f"{shared} c"]
    assert answers(engine_of(server), *texts) == [" a", " b", " text", " c"]
    leader, *others = sorted((text for text in texts if shared in text), key=lambda text: len(begun[text]))
    assert leader not in begun["quite another text"]
    assert all(leader in begun[text] for text in others)


def test_families_share_half_of_their_tokens() -> None:
    assert prefix_families([(1, 2, 3, 4), (9, 9), (1, 2, 5, 6), (1, 7, 8, 8)]) == [[0, 2], [3], [1]]
    assert prefix_families([]) == []


@pytest.mark.parametrize(
    ("written", "kept"), [(" 12\nQuestion: more", " 12"), (" 12", " 12"), ("\n12", ""), (" 1 END 2\n", " 1 ")]
)
def test_an_answer_is_cut_at_its_first_stop_string_whatever_the_server_leaves_there(
    server: ChatServer, written: str, kept: str
) -> None:
    server.answer = lambda _: text_completion(written, read=2)
    assert answers(engine_of(server), "a b", stop=("\n", "END")) == [kept]


def test_of_many_stop_strings_the_server_is_told_four_and_all_are_heeded(server: ChatServer) -> None:
    server.answer = lambda _: text_completion(" yes E no", read=2)
    assert answers(engine_of(server), "a b", stop=("A", "B", "C", "D", "E")) == [" yes "]
    assert server.requests[0].body["stop"] == ["A", "B", "C", "D"]


def test_token_ids_are_sent_where_the_server_takes_them(server: ChatServer) -> None:
    server.answer = lambda request: text_completion(" x", read=len(request.prompt))
    (prompt,) = asking("a b c")
    (generation,) = engine_of(server, endpoint=endpoint_of(server, prompts="ids")).generate([prompt])
    assert server.requests[0].prompt == list(prompt.token_ids)
    assert generation.prompt_tokens == 3


def test_an_empty_answer_is_an_answer(server: ChatServer) -> None:
    server.answer = lambda _: text_completion("", read=2)
    assert answers(engine_of(server), "one two") == [""]


def test_what_was_begun_is_asked_once_and_while_nobody_reads(server: ChatServer) -> None:
    engine = engine_of(server, batch_size=2)
    server.answer = lambda request: replace(echo(request), delay_seconds=0.2)
    given = engine.generate(asking("an a", "a b"))
    engine.prefetch(asking("a c", "a d"))
    assert next(given).text == " a"
    # A free place is taken at once.
    ends = time.monotonic() + 10
    while len(server.requests) < 4 and time.monotonic() < ends:
        time.sleep(0.01)
    assert len(server.requests) == 4
    assert [generation.text for generation in given] == [" b"]
    assert answers(engine, "a c", "a d") == [" c", " d"]
    assert len(server.requests) == 4
    assert server.most_at_once <= 2


def test_what_waits_for_its_place_can_be_withdrawn(server: ChatServer) -> None:
    server.answer = lambda request: replace(echo(request), delay_seconds=0.5)
    engine = engine_of(server, batch_size=1)
    prompts = asking("an a", "a b", "a c")
    engine.prefetch(prompts)
    while not server.requests:
        time.sleep(0.01)
    engine.cancel_queued()
    assert [engine.is_prefetched(prompt) for prompt in prompts] == [True, False, False]
    assert [generation.text for generation in engine.generate(prompts[:1])] == [" a"]
    assert len(server.requests) == 1
    assert answers(engine, "a c") == [" c"]


ENDS = """
from tests.helpers.clients import asking, endpoint_of, engine_of
from fixtures.engines import EngineError
from types import SimpleNamespace
import sys, time

engine = engine_of(SimpleNamespace(url=sys.argv[1]), batch_size=1, timeout_seconds=600.0)
engine.prefetch(asking("a b", "a c"))
time.sleep(1)
engine.close()
engine.close()
try:
    list(engine.generate(asking("a b")))
except EngineError as error:
    print(error)
"""


def test_a_process_ends_without_what_is_on_its_way(server: ChatServer) -> None:
    server.answer = lambda request: replace(echo(request), delay_seconds=600)
    ended = subprocess.run(
        [sys.executable, "-c", ENDS, server.url],
        capture_output=True, text=True, timeout=120, check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert "was given up after another error; start again" in ended.stdout
    assert len(server.requests) == 1


def test_a_foreign_tokenizer_tells_half_a_prompt_from_a_whole_one(server: ChatServer) -> None:
    loose = TokenCounting(ratio=0.8, overhead=4.0, exact=False)
    words = " ".join(f"w{number}" for number in range(100))
    engine = engine_of(server, endpoint=endpoint_of(server, counting=loose))
    server.answer = lambda _: text_completion(" ok", read=78)
    assert answers(engine, words) == [" ok"]
    server.answer = lambda _: text_completion(" ok", read=50)
    assert "it read 50 tokens where some 84 were sent" in refused(engine, words)


def test_where_a_server_stands_does_not_name_its_answers_but_what_it_serves_does(server: ChatServer) -> None:
    def named(**changes: Any) -> dict[str, str]:
        settings: dict[str, Any] = {"batch_size": 0, "thinking_tokens": 0, "timeout_seconds": 1.0}
        checkpoint: Checkpoint = CHECKPOINT
        return execution_settings(checkpoint, engine="openai", endpoint=endpoint_of(server, **changes), **settings)

    assert named() == named(url="http://other.example/v1")
    assert len({str(named(**each)) for each in CHANGES}) == len(CHANGES)
    assert named()["engine"] == "openai"


CHANGES: Sequence[dict[str, Any]] = (
    {}, {"serves": "/ckpt/step_2"}, {"api": "chat"}, {"api": "chat", "prefix": "instruction"}, {"prompts": "ids"},
)  # fmt: skip
