"""Options of a served run, and the prompts that are sent to the server."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator
from tokenizers import Tokenizer

from longctx.fixtures.corpora import Corpora
from longctx.fixtures.records import Generation, Prompt
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tokenization.load import load_tokenizer
from longctx.fixtures.tokenization.prompts import PromptFormatter
from longctx.plugins.runner.samples import sample_problems
from tests.helpers.runs import SCHEMA, calibration_checkpoint, run_pytest, usage_error
from tests.helpers.servers import ChatServer, Request, Response, in_json, text_completion
from tests.helpers.workers import EmptyAnswerEngine, measure_case, worker_of

SMALL = ("--lengths", "512", "--samples", "1", "-k", "single_1")
URL = "http://127.0.0.1:9/v1"
MODEL = "--model=calibration:512"
WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "a key in the address": ((MODEL, "--base-url=http://me:sk-1@h/v1"), "--base-url: not of the form"),
    "a chat without a server": (
        (MODEL, "--chat=server"),
        "--chat: 'server' is for a server; give --base-url",
    ),
    "a baseline's server alone": (
        (MODEL, f"--baseline={MODEL[8:]}", f"--baseline-url={URL}"),
        "--baseline-url: is for a server; name the server of --model with --base-url, or start one with --serve",
    ),
    "server is down": ((MODEL, f"--base-url={URL}"), f"server {URL}: the connection fails"),
    "a base model that thinks": ((MODEL, "--thinking-budget=9"), "--thinking-budget: only models with a chat template"),
}


DECIDES = "leave it out: the server decides"
HF_OPTIONS = {
    "prefill-chunk": ("64", f"64 is for --engine hf; {DECIDES}"),
    "gpus-per-worker": ("2", f"2 is for --engine hf; {DECIDES}"),
    "config-override": ("a=1", "['a=1'] is for --engine hf; give it to the server (vLLM: --hf-overrides)"),
}


@pytest.mark.parametrize("server_option", [f"--base-url={URL}", "--serve=serve {model} --port {port}"])
@pytest.mark.parametrize("name", HF_OPTIONS)
def test_options_of_the_hf_engine_are_refused_with_a_server(name: str, server_option: str) -> None:
    value, refusal = HF_OPTIONS[name]
    assert usage_error(MODEL, server_option, f"--{name}={value}", *SMALL) == f"--{name}: {refusal}"


def test_defaults_of_the_hf_engine_are_allowed_with_a_server() -> None:
    defaults = ("--device=auto", "--dtype=auto", "--attention=auto", "--prefill-chunk=auto", "--gpus-per-worker=1")
    assert usage_error(MODEL, f"--base-url={URL}", *defaults, *SMALL).startswith(f"server {URL}: the connection fails")


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_use_is_a_one_line_error(wrong: str, capfd: pytest.CaptureFixture[str]) -> None:
    arguments, beginning = WRONG[wrong]
    message = usage_error(*arguments, *SMALL)
    assert message.startswith(beginning)
    assert "\n" not in message
    printed = capfd.readouterr()
    assert (
        printed.err,
        [line for line in printed.out.splitlines() if not line.startswith(("left out ", "asking "))],
    ) == ("", [])


def test_a_model_given_by_name_is_measured_with_another_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def count_words(request: Request) -> Response:
        assert isinstance(request.prompt, str)
        return text_completion(" seven", read=len(request.prompt.split()))

    with ChatServer().serving() as server:
        server.answer = count_words
        tokenizer = f"--length-tokenizer={calibration_checkpoint('512')}"
        report = ("--report-json", f"{tmp_path}/report.json")
        ended = run_pytest(tmp_path, "--model=gpt-9", f"--base-url={server.url}", tokenizer, *SMALL, *report)
    assert [case["error"] for case in ended.cases.values()] == [None], ended.output
    Draft202012Validator(SCHEMA).validate(ended.report)
    model = ended.report["model"]
    assert (model["name"], model["claimed_length"], model["architecture"]) == ("gpt-9", None, "unknown")
    assert {request.body["model"] for request in server.requests} == {"gpt-9"}


def test_a_context_that_is_too_short_is_refused_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths run from the shortest, so the first sample of the longest may come hours later."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    name = str(calibration_checkpoint("512"))
    tokenizer = Tokenizer.from_file(f"{name}/tokenizer.json")

    def count_tokens(request: Request) -> Response:
        prompt = request.prompt
        read = len(tokenizer.encode(prompt).ids) if isinstance(prompt, str) else len(prompt)
        return text_completion(" seven", read=read)

    with ChatServer().serving() as server:
        server.models = in_json({"data": [{"id": name, "max_model_len": 1024}]})
        server.answer = count_tokens
        ended = run_pytest(tmp_path, MODEL, f"--base-url={server.url}", "--samples=1", "--lengths=1k,2k", "-x")
    assert ended.exit_code == 4
    assert ended.errors.strip() == (
        f"ERROR: --lengths: 2048 tokens do not fit {server.url}, which serves {name!r} with a context of 1024; "
        "serve it with a longer one, or use shorter --lengths"
    )
    assert len(server.requests) < 5


@pytest.mark.parametrize("status", [503, 500])
def test_a_line_says_that_a_server_is_waited_for(
    status: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    checkpoint = calibration_checkpoint("512")
    sound = in_json({"data": [{"id": str(checkpoint), "max_model_len": 64}]})
    replies = [in_json({"error": "loading"}, status=status)]

    def lists() -> Response:
        return replies.pop(0) if replies else sound

    with ChatServer().serving() as server:
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        server.list_models = lists
        server.answer = lambda request: text_completion("x", read=len(request.prompt))
        usage_error(f"--model={checkpoint}", f"--base-url={server.url}", *SMALL)
        assert f"waiting for {server.url} ({status}: loading) ..." in capfd.readouterr().out


def test_a_plan_sends_no_request(tmp_path: Path) -> None:
    ended = run_pytest(tmp_path, MODEL, f"--base-url={URL}", *SMALL, "--plan")
    assert ended.exit_code == 0
    assert f"on a server: {URL}" in ended.output
    assert "GiB" not in ended.output


def formatter_of(**settings: Any) -> PromptFormatter:
    return PromptFormatter(load_tokenizer(str(calibration_checkpoint("512-chat"))), **settings)


def test_an_answer_prefix_that_cannot_be_continued_is_requested_in_the_users_turn() -> None:
    formatter = formatter_of(prefix="instruction", keeps_turns=True)
    prompt = formatter.prompt("Where?", "It is", generation_tokens=4)
    assert prompt.opening == "It is"
    assert prompt.turns == ("Where?\n\nBegin your answer with these words: It is", "")
    assert prompt.turns[0] in prompt.text
    assert not prompt.text.endswith("It is")
    assert formatter_of(keeps_turns=True).prompt("Where?", "It is", generation_tokens=4).turns == ("Where?", "It is")
    assert formatter_of().prompt("Where?", "It is", generation_tokens=4).turns is None


def test_samples_with_an_instructed_prefix_have_another_fingerprint_and_are_sound() -> None:
    assert len({formatter_of().fingerprint, formatter_of(prefix="instruction").fingerprint}) == 2
    formatter = formatter_of(prefix="instruction")
    task = TASKS["niah_single_2"]
    sample = task.sample(1024, 0, seed=0, tokenizer=formatter, corpora=Corpora())
    assert sample_problems(sample, task, formatter) == []
    spoiled = replace(sample, prompt=replace(sample.prompt, opening="not there"))
    assert sample_problems(spoiled, task, formatter) != []


class Thinker(EmptyAnswerEngine):
    """An engine whose model never finishes its thought."""

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Generation]:
        for generation in super().generate(prompts):
            yield msgspec.structs.replace(generation, finish="thinking")


def test_a_model_that_never_stops_thinking_fails_every_sample_as_unfinished(tmp_path: Path) -> None:
    with worker_of(calibration_checkpoint("512"), Thinker(), tmp_path) as (worker, case):
        result = measure_case(worker, case)
    assert {(outcome.score.value, outcome.score.failure) for outcome in result.outcomes} == {
        (0.0, "unfinished thinking")
    }
    kinds = SCHEMA["$defs"]["ReportCase"]["properties"]["failures"]["propertyNames"]["enum"]
    assert "unfinished thinking" in kinds
