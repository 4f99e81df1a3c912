"""Complete runs against failing servers: the same report as without faults, or one error line per case."""

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

from longctx.fixtures.engines import Engine
from longctx.fixtures.engines.openai.endpoint import ServerSettings
from longctx.fixtures.engines.openai.engine import OpenAIEngine
from longctx.fixtures.records import Sample, Score
from longctx.fixtures.seeding import stable_hash
from longctx.fixtures.tokenization.load import load_tokenizer
from tests.helpers.clients import endpoint_of
from tests.helpers.runs import CompletedRun, calibration_checkpoint, run_pytest, text_of_files
from tests.helpers.servers import ChatServer, Request, Response, in_json, text_completion
from tests.helpers.workers import worker_of

KEY = "sk-4f1e9a77c0ffee5ecret0123456789"
SAMPLES = 12
TASKS = ("niah_single_2", "niah_multikey_1", "niah_multivalue")
SIZE = ("--model=calibration:512", "--lengths=512", f"--samples={SAMPLES}", "--full", "-k", " or ".join(TASKS))
# Retries with short waits.
SHORT_WAITS = """
from openai import _base_client

from longctx.fixtures.engines.openai import engine
from longctx.fixtures.http.retry import RetryPolicy
from longctx.plugins.config import resolve

resolve.REQUEST_SECONDS = {timeout}
engine.OpenAIEngine.__init__.__defaults__ = (RetryPolicy(seconds={seconds}),)
_base_client.INITIAL_RETRY_DELAY = 0.02
"""
NEVER_SECONDS = 600.0
# The requests that probe a server before the run are shorter.
MAX_PROBE_CHARACTERS = 500
# The most verbose output of a run.
VERBOSE = ("-vv", "--tb=long", "--showlocals", "-o", "log_level=DEBUG", "-o", "log_cli=true")
# For requests that are meant to time out, and for all others.
SHORT_TIMEOUT_SECONDS, REQUEST_TIMEOUT_SECONDS = 2.0, 60.0
ERROR_BODY = {"error": {"message": f"not now, Bearer {KEY}\n at once"}}
FAULTS: dict[str, Response] = {
    "rate limit": in_json(ERROR_BODY, status=429, Retry_After="0.1"),
    "server error": in_json(ERROR_BODY, status=500),
    "reset": Response(body=b"{}", cut=True),
    "time-out": in_json(ERROR_BODY, delay_seconds=NEVER_SECONDS),
    "stall": replace(in_json(ERROR_BODY), stall_seconds=NEVER_SECONDS),
}


@dataclass
class GuessingServer:
    """A request handler that answers with a random number of the prompt, which is sometimes right."""

    tokenizer: Any
    """The tokenizer of the checkpoint, which counts the prompt tokens."""
    fails_one_in: int = 10**9
    """One of this many requests fails."""
    faults: Iterator[str] = field(default_factory=lambda: cycle(FAULTS))
    """The faults of successive failing requests, as keys of FAULTS."""
    answered: Counter[str] = field(default_factory=Counter)
    """The number of answers by prompt."""
    injected_faults: Counter[str] = field(default_factory=Counter)
    """The number of failed requests by fault."""
    tries: Counter[str] = field(default_factory=Counter)
    """The number of requests by prompt."""

    def __call__(self, request: Request) -> Response:
        prompt = request.prompt
        if not isinstance(prompt, str):
            return in_json({"error": "prompt must be a string"}, status=400)
        is_sample = len(prompt) > MAX_PROBE_CHARACTERS
        numbers = re.findall(r"\d{7}", prompt) if is_sample else []
        if numbers:
            self.tries[prompt] += 1
            if self.tries.total() % self.fails_one_in == 0:
                fault = next(self.faults)
                self.injected_faults[fault] += 1
                return FAULTS[fault]
            self.answered[prompt] += 1
        guess = random.Random(stable_hash(prompt)).choice(numbers) if numbers else "none"
        return text_completion(f" {guess}. {KEY}", read=len(self.tokenizer.encode(prompt).ids))


@contextmanager
def guessing(**settings: Any) -> Iterator[tuple[ChatServer, GuessingServer]]:
    guesser = GuessingServer(Tokenizer.from_file(str(calibration_checkpoint("512") / "tokenizer.json")), **settings)
    with ChatServer().serving() as server:
        server.answer = guesser
        yield server, guesser


def run_at(
    server: ChatServer,
    folder: Path,
    *arguments: str,
    retry_seconds: float = 60.0,
    request_timeout_seconds: float = REQUEST_TIMEOUT_SECONDS,
) -> CompletedRun:
    """Run the suite against this server, with every report."""
    folder.mkdir(exist_ok=True)
    (folder / "short_waits.py").write_text(SHORT_WAITS.format(seconds=retry_seconds, timeout=request_timeout_seconds))
    reports = [f"--report-{kind}={folder}/report.{kind}" for kind in ("json", "html", "md")]
    server_options = (f"--base-url={server.url}", f"--junitxml={folder}/junit.xml")
    return run_pytest(folder, "-p", "short_waits", *SIZE, *server_options, *reports, *arguments)


def without_times(completed: CompletedRun) -> dict[str, Any]:
    """Return the report without its times and without the address of the server."""
    report = completed.report
    run = {name: report["run"][name] for name in ("tokens", "computed_samples", "partial")}
    cases = [{name: case[name] for name in case if name != "seconds"} for case in report["cases"]]
    return {"run": run, "cases": cases} | {name: report[name] for name in ("gates", "ruler")}


@contextmanager
def with_api_key() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OPENAI_API_KEY", raising=False)
        patch.setenv("LONGCTX_API_KEY", KEY)
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield patch


@pytest.fixture(autouse=True)
def api_key() -> Iterator[None]:
    with with_api_key():
        yield


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> CompletedRun:
    with with_api_key(), guessing() as (server, guesser):
        completed = run_at(server, tmp_path_factory.mktemp("undisturbed"))
    assert set(guesser.answered.values()) == {1}
    return completed


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[CompletedRun, GuessingServer]:
    """A run in which one of five requests fails, with the most verbose logging."""
    with with_api_key() as patch, guessing(fails_one_in=5) as (server, guesser):
        patch.setenv("OPENAI_LOG", "debug")
        folder = tmp_path_factory.mktemp("disturbed")
        return run_at(server, folder, *VERBOSE, request_timeout_seconds=SHORT_TIMEOUT_SECONDS), guesser


def test_failures_of_a_fifth_of_all_requests_do_not_change_the_report(
    undisturbed: CompletedRun, disturbed: tuple[CompletedRun, GuessingServer]
) -> None:
    completed, guesser = disturbed
    assert set(guesser.injected_faults) == set(FAULTS), "some kind of fault was never injected"
    assert guesser.injected_faults.total() == guesser.tries.total() // 5
    assert without_times(completed) == without_times(undisturbed)
    assert {case["verdict"] for case in completed.cases.values()}.isdisjoint({"error"})
    assert len({case["score"] for case in completed.cases.values()}) > 1, (
        "all scores are equal, so the reports could not differ"
    )


def test_no_output_of_a_run_contains_the_api_key(
    undisturbed: CompletedRun,
    disturbed: tuple[CompletedRun, GuessingServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_LOG", "debug")
    with guessing(fails_one_in=1, faults=cycle(["server error"])) as (server, _):
        broken = run_at(server, tmp_path, *VERBOSE, "--samples=1", retry_seconds=0.2)
    assert "answers 500 (not now, Bearer *** at once)" in broken.output
    for folder in (undisturbed.folder, disturbed[0].folder, tmp_path):
        written = text_of_files(folder)
        assert "***" in written, "the server did not repeat the key"
        assert KEY not in written


def test_a_lost_server_is_one_error_line_per_case_and_the_next_run_computes_the_rest(
    undisturbed: CompletedRun, tmp_path: Path
) -> None:
    ends_after = 10
    with guessing() as (server, guesser):

        def answer(request: Request) -> Response:
            response = guesser(request)
            if sum(guesser.answered.values()) >= ends_after:
                threading.Thread(target=server.end).start()
            return response

        server.answer = answer
        completed = run_at(server, tmp_path / "gone", retry_seconds=0.5)
    assert completed.exit_code == 1
    assert {case["verdict"] for case in completed.cases.values()} == {"error"}
    for case in completed.cases.values():
        assert "\n" not in case["error"]
        assert "the connection fails" in case["error"]
    journal = tmp_path / "gone" / "journal"
    stored = [json.loads(line) for file in journal.glob("*/*.jsonl") for line in file.read_text().splitlines()]
    stored = [line for line in stored if "element" in line]
    # The samples that the server had answered, and those in flight when it stopped.
    assert ends_after <= len(stored) <= ends_after + 8
    with guessing() as (server, guesser):
        again = run_at(server, tmp_path / "gone")
    assert sum(guesser.answered.values()) == len(TASKS) * SAMPLES - len(stored)
    assert again.report["run"]["computed_samples"] == len(TASKS) * SAMPLES - len(stored)
    assert without_times(again)["cases"] == without_times(undisturbed)["cases"]
    assert without_times(again)["gates"] == without_times(undisturbed)["gates"]


def engine_at(server: ChatServer, model: Path, *, at_once: int) -> Engine:
    tokenizer: Any = load_tokenizer(str(model))
    return OpenAIEngine(ServerSettings(endpoint=endpoint_of(server), batch_size=at_once), tokenizer)


def test_answers_after_a_failed_request_are_stored_in_the_journal(tmp_path: Path) -> None:
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
    # Samples that share a text with the failed one were never sent.
    assert len(entries) == guesser.answered.total() >= 1


def test_the_next_requests_are_in_flight_while_an_answer_is_scored_and_their_answers_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle server costs money, and a discarded answer would have to be computed again."""
    monkeypatch.setattr("longctx.plugins.runner.worker.FEW_SAMPLES_LEFT", 0)
    model = calibration_checkpoint("512")
    requests_in_flight: list[int] = []
    with guessing() as (server, guesser):
        engine = engine_at(server, model, at_once=2)
        with worker_of(model, engine, tmp_path, cases=3) as (worker, case):
            score = worker.builder.score

            def slow_score(sample: Sample, text: str) -> Score:
                deadline = time.monotonic() + 60
                while not requests_in_flight and len(server.requests) < 4 and time.monotonic() < deadline:
                    time.sleep(0.01)
                requests_in_flight.append(len(server.requests))
                return score(sample, text)

            monkeypatch.setattr(worker.builder, "score", slow_score)
            # The time budget is used up after the first answer.
            monkeypatch.setattr(worker, "_is_late", lambda: bool(requests_in_flight))
            worker.measure(case)
            entries = worker.models["model"].journal.entries
    assert requests_in_flight[0] >= 4
    assert len(entries) == len(server.requests)
    assert set(guesser.answered.values()) == {1}
