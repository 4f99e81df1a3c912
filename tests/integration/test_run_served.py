"""Whole runs against servers that fail: the same report as without faults, or one line for each case and a journal."""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from fixtures.checkpoints.checkpoint import read_checkpoint
from fixtures.engines import ENGINES, Engine
from fixtures.engines.openai.endpoint import Endpoint, TokenCounting
from fixtures.records import Sample, Score
from fixtures.seeding import stable_hash
from fixtures.tokenization.load import load_tokenizer
from tests.helpers.runs import CompletedRun, calibration_checkpoint, run_pytest
from tests.helpers.servers import ChatServer, Request, Response, in_json, text_completion
from tests.helpers.workers import worker_of

KEY = "sk-4f1e9a77c0ffee5ecret0123456789"
SAMPLES = 24
TASKS = ("niah_single_2", "niah_multikey_1", "niah_multivalue")
WHAT = ("--model=calibration:512", "--lengths=512", f"--samples={SAMPLES}", "--full", "-k", " or ".join(TASKS))
# Waits that a test can wait for.
QUICK = """
from fixtures.engines.openai import engine
from fixtures.engines.openai.retry import RetryPolicy

engine.load.__kwdefaults__["retry_policy"] = RetryPolicy(seconds={seconds}, first_wait_seconds=0.02)
"""
NEVER = 600.0
# What a server is asked before the run is shorter.
MOST_PROBE_CHARACTERS = 500
# As talkative as a run can be.
TALK = ("-vv", "--tb=long", "--showlocals", "-o", "log_level=DEBUG", "-o", "log_cli=true")
TOO_LATE_SECONDS = 2.0
SAID = {"error": {"message": f"not now, Bearer {KEY}\n at once"}}
FAULTS: dict[str, Response] = {
    "rate limit": in_json(SAID, status=429, Retry_After="0.1", X_Key=KEY),
    "server error": in_json(SAID, status=500),
    "reset": Response(body=b"{}", cut=True),
    "time-out": in_json(SAID, delay_seconds=NEVER),
    "stall": replace(in_json(SAID), stall_seconds=NEVER),
}


@dataclass
class Guesser:
    """Answers with a number of the prompt, which is right now and then; counts as the checkpoint's tokenizer does."""

    tokenizer: Any
    # Of so many requests one fails; how those that do fail, one after another.
    one_in: int = 10**9
    faults: Iterator[str] = field(default_factory=lambda: cycle(FAULTS))
    answered: Counter[str] = field(default_factory=Counter)
    befell: Counter[str] = field(default_factory=Counter)
    tries: Counter[str] = field(default_factory=Counter)

    def __call__(self, request: Request) -> Response:
        prompt = request.prompt
        if not isinstance(prompt, str):
            return in_json({"error": "prompt must be a string"}, status=400)
        numbers = re.findall(r"\d{7}", prompt) if len(prompt) > MOST_PROBE_CHARACTERS else []
        if numbers:
            self.tries[prompt] += 1
            if self.tries.total() % self.one_in == 0:
                fault = next(self.faults)
                self.befell[fault] += 1
                return FAULTS[fault]
            self.answered[prompt] += 1
        said = random.Random(stable_hash(prompt)).choice(numbers) if numbers else "none"
        return text_completion(f" {said}. {KEY}", read=len(self.tokenizer.encode(prompt).ids))


@contextmanager
def guessing(**settings: Any) -> Iterator[tuple[ChatServer, Guesser]]:
    guesser = Guesser(Tokenizer.from_file(str(calibration_checkpoint("512") / "tokenizer.json")), **settings)
    with ChatServer().serving() as server:
        server.answer = guesser
        yield server, guesser


def run_at(server: ChatServer, folder: Path, *arguments: str, retry_policy: float = 60.0) -> CompletedRun:
    """A run with every report."""
    folder.mkdir(exist_ok=True)
    (folder / "quick.py").write_text(QUICK.format(seconds=retry_policy))
    reports = [f"--report-{kind}={folder}/report.{kind}" for kind in ("json", "html", "md")]
    late = f"--request-timeout={TOO_LATE_SECONDS}"
    server_options = (f"--base-url={server.url}", late, f"--junitxml={folder}/junit.xml")
    return run_pytest(folder, "-p", "quick", *WHAT, *server_options, *reports, *arguments)


def told(ended: CompletedRun) -> dict[str, Any]:
    """What a report says of the model: all but when and how long, and where the server stood."""
    report = ended.report
    run = {name: report["run"][name] for name in ("tokens", "computed_samples", "partial")}
    cases = [{name: case[name] for name in case if name != "seconds"} for case in report["cases"]]
    return {"run": run, "cases": cases} | {name: report[name] for name in ("gates", "ruler")}


def everything(folder: Path) -> str:
    """All that a run printed and wrote."""
    return "".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())


@contextmanager
def with_a_key() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OPENAI_API_KEY", raising=False)
        patch.setenv("LONGCTX_API_KEY", KEY)
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield patch


@pytest.fixture(autouse=True)
def a_key() -> Iterator[None]:
    with with_a_key():
        yield


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> CompletedRun:
    with with_a_key(), guessing() as (server, guesser):
        ended = run_at(server, tmp_path_factory.mktemp("undisturbed"))
    assert set(guesser.answered.values()) == {1}
    return ended


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[CompletedRun, Guesser]:
    """One in five requests fails; all that can be logged is."""
    with with_a_key() as patch, guessing(one_in=5) as (server, guesser):
        patch.setenv("OPENAI_LOG", "debug")
        return run_at(server, tmp_path_factory.mktemp("disturbed"), *TALK), guesser


def test_a_server_that_fails_a_fifth_of_all_requests_leaves_no_trace_in_the_report(
    undisturbed: CompletedRun, disturbed: tuple[CompletedRun, Guesser]
) -> None:
    ended, guesser = disturbed
    assert set(guesser.befell) == set(FAULTS), "each kind of fault befell the run"
    assert guesser.befell.total() == guesser.tries.total() // 5
    assert told(ended) == told(undisturbed)
    assert {case["verdict"] for case in ended.cases.values()}.isdisjoint({"error"})
    assert len({case["score"] for case in ended.cases.values()}) > 1, "a report that could differ"


def test_no_key_is_in_anything_that_a_run_prints_or_writes(
    undisturbed: CompletedRun, disturbed: tuple[CompletedRun, Guesser], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_LOG", "debug")
    with guessing(one_in=1, faults=cycle(["server error"])) as (server, _):
        broken = run_at(server, tmp_path, *TALK, "--samples=1", retry_policy=0.2)
    assert "answers 500 (not now, Bearer *** at once)" in broken.output
    for folder in (undisturbed.folder, disturbed[0].folder, tmp_path):
        written = everything(folder)
        assert "***" in written, "the server did repeat it"
        assert KEY not in written


def test_a_server_that_is_gone_is_one_line_for_each_case_and_the_next_run_does_the_rest(
    undisturbed: CompletedRun, tmp_path: Path
) -> None:
    ends_after = 20
    with guessing() as (server, guesser):

        def answer(request: Request) -> Response:
            response = guesser(request)
            if sum(guesser.answered.values()) >= ends_after:
                threading.Thread(target=server.end).start()
            return response

        server.answer = answer
        ended = run_at(server, tmp_path / "gone", retry_policy=0.5)
    assert ended.exit_code == 1
    assert {case["verdict"] for case in ended.cases.values()} == {"error"}
    for case in ended.cases.values():
        assert "\n" not in case["error"]
        assert "the connection fails" in case["error"]
    journal = tmp_path / "gone" / "journal"
    kept = [json.loads(line) for file in journal.glob("*/*.jsonl") for line in file.read_text().splitlines()]
    kept = [line for line in kept if "element" in line]
    # What it had answered, and what was on its way at that moment.
    assert ends_after <= len(kept) <= ends_after + 8
    with guessing() as (server, guesser):
        again = run_at(server, tmp_path / "gone")
    assert sum(guesser.answered.values()) == len(TASKS) * SAMPLES - len(kept)
    assert again.report["run"]["computed_samples"] == len(TASKS) * SAMPLES - len(kept)
    assert told(again)["cases"] == told(undisturbed)["cases"]
    assert told(again)["gates"] == told(undisturbed)["gates"]


def engine_at(server: ChatServer, model: Path, *, at_once: int) -> Engine:
    counting = TokenCounting(ratio=1.0, overhead=0.0, exact=True)
    endpoint = Endpoint(
        url=server.url, model="m", api="completions", prompts="text", prefix="continued", counting=counting
    )
    return ENGINES["openai"](
        read_checkpoint(str(model)), tokenizer=load_tokenizer(str(model)), endpoint=endpoint, batch_size=at_once
    )


def test_what_was_answered_behind_a_failure_is_in_the_journal(tmp_path: Path) -> None:
    model = calibration_checkpoint("512")
    with guessing() as (server, guesser):

        def first_fails(request: Request) -> Response:
            if server.requests[0] is request:
                return in_json({"error": "no"}, status=400, delay_seconds=1)
            return guesser(request)

        server.answer = first_fails
        with worker_of(model, engine_at(server, model, at_once=4), tmp_path) as (worker, case):
            result = worker.measure(case)
            entries = worker.models["model"].journal.entries
    assert result.error is not None
    assert "answers 400 (no)" in result.error
    # What shares a text with the one that failed was not asked.
    assert len(entries) == guesser.answered.total() >= 1


def test_what_comes_next_is_on_its_way_while_an_answer_is_scored_and_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that waits for this side is paid for doing nothing; an answer that is dropped is paid for twice."""
    monkeypatch.setattr("plugins.runner.batches.FEW_SAMPLES_LEFT", 0)
    model = calibration_checkpoint("512")
    on_their_way: list[int] = []
    with guessing() as (server, guesser):
        engine = engine_at(server, model, at_once=2)
        with worker_of(model, engine, tmp_path, cases=3) as (worker, case):
            score = worker.builder.score

            def slow(sample: Sample, text: str) -> Score:
                ends = time.monotonic() + 5
                while not on_their_way and len(server.requests) < 4 and time.monotonic() < ends:
                    time.sleep(0.01)
                on_their_way.append(len(server.requests))
                return score(sample, text)

            monkeypatch.setattr(worker.builder, "score", slow)
            # Time is up after the first answer.
            monkeypatch.setattr(worker, "_is_late", lambda: bool(on_their_way))
            worker.measure(case)
            entries = worker.models["model"].journal.entries
    assert on_their_way[0] >= 4
    assert len(entries) == len(server.requests)
    assert set(guesser.answered.values()) == {1}
