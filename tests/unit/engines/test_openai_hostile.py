"""The openai engine against every behaviour of a hostile server: answers are read, and anything else is one line."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from longctx.fixtures.engines import EngineError
from longctx.fixtures.engines.openai.endpoint import Endpoint, ServerSettings, connect
from longctx.fixtures.engines.openai.engine import OpenAIEngine
from longctx.fixtures.engines.openai.probe import Probe
from longctx.fixtures.http.retry import RetryPolicy, TimeBudget
from longctx.fixtures.records import Prompt
from tests.fuzz.hostile_server import Behaviour, HostileServer
from tests.fuzz.server_behaviours import BEHAVIOURS, KEY, key_forms
from tests.helpers.clients import EXACT, Words
from tests.helpers.servers import forget_keys

NUMBER = "8142739"
PROMPT = " ".join(["word"] * 480) + f" the number is {NUMBER} and more"
# A busy machine may be slow to answer; a server that does not answer costs all of its time.
SOUND_REQUEST_SECONDS, REQUEST_SECONDS = 30.0, 0.4
# The most that all tries of a prompt may take, on a busy machine.
MOST_SECONDS = 60.0
RETRIES = RetryPolicy(seconds=0.3)
KINDS = sorted({behaviour.kind for behaviour in BEHAVIOURS.values()})
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


def words(prompt: str | Sequence[int]) -> list[int]:
    return list(range(len(prompt.split() if isinstance(prompt, str) else prompt)))


@pytest.fixture(scope="module")
def server() -> Iterator[HostileServer]:
    with HostileServer(BEHAVIOURS, "m", lambda prompt: len(words(prompt))).serving() as serving:
        yield serving


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_keys(monkeypatch)
    monkeypatch.setenv("LONGCTX_API_KEY", KEY)


def probed(url: str, timeout_seconds: float) -> Endpoint:
    policy = replace(RETRIES, budget=TimeBudget(time.time() + MOST_SECONDS))
    endpoint = Endpoint(url=url, model="m", api="completions")
    probe = Probe(connection=connect(url, timeout_seconds=timeout_seconds), endpoint=endpoint, ids=words, policy=policy)
    return probe.described(["m"], None, is_own_tokenizer=True)


def answered(url: str, stage: str, timeout_seconds: float) -> Any:
    """Return the generation for a prompt, or the message of the error in its place."""
    plain: dict[str, Any] = {"url": url, "model": "m", "api": "completions", "prompts": "text", "prefix": "continued"}
    try:
        endpoint = (
            Endpoint(**plain, counting=EXACT, answers_as="m") if stage == "answer" else probed(url, timeout_seconds)
        )
        engine = OpenAIEngine(ServerSettings(endpoint=endpoint, timeout_seconds=timeout_seconds), Words(), RETRIES)
        ids = tuple(words(PROMPT))
        prompt = Prompt(text=PROMPT, token_ids=ids, length_tokens=len(ids), generation_tokens=8)
        (generation,) = engine.generate([prompt])
        return generation
    except EngineError as error:
        return str(error)


def problem_of(behaviour: Behaviour, server: HostileServer) -> str:
    """Return what is wrong with the answer or the error; empty if nothing is."""
    began = time.monotonic()
    timeout_seconds = SOUND_REQUEST_SECONDS if behaviour.is_sound else REQUEST_SECONDS
    given = answered(server.url(behaviour), behaviour.stage, timeout_seconds)
    seconds = time.monotonic() - began
    shown = given if isinstance(given, str) else given.text
    if isinstance(given, str) == behaviour.is_sound:
        return f"{behaviour.path}: {given}"
    if any(form in shown for form in key_forms(KEY).values()) or KEY[:9] in shown:
        return f"{behaviour.path}: shows the key ({shown})"
    if isinstance(given, str) and not (given.isprintable() and ";" in given):
        return f"{behaviour.path}: not one line with a remedy ({given!r})"
    if not isinstance(given, str):
        counts = (given.generated_tokens, given.computed_tokens, given.reused_tokens)
        if NUMBER not in shown or any(count is not None and not 0 <= count < 10**6 for count in counts):
            return f"{behaviour.path}: {given}"
    return f"{behaviour.path}: took {seconds:.1f} s" if seconds > MOST_SECONDS else ""


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_is_read_and_anything_else_is_one_line_without_a_key(kind: str, server: HostileServer) -> None:
    # That a context is too small shows only once the lengths of a run are known.
    chosen = [each for each in BEHAVIOURS.values() if each.kind == kind and each.name != "small"]
    with ThreadPoolExecutor(32) as pool:
        problems = [problem for problem in pool.map(lambda each: problem_of(each, server), chosen) if problem]
    assert problems == []
