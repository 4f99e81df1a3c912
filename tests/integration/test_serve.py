"""Servers that a run starts and stops, and a real server that gives the scores of the hf engine."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longctx.fixtures.calibration.recipe import SOLVED
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.corpora import Corpora
from longctx.fixtures.engines import Engine
from longctx.fixtures.engines.hf.engine import load_hf_engine
from longctx.fixtures.engines.hf.settings import HfSettings
from longctx.fixtures.engines.openai.endpoint import Endpoint, ServerSettings, connect
from longctx.fixtures.engines.openai.engine import OpenAIEngine
from longctx.fixtures.engines.openai.probe import Probe, is_ready
from longctx.fixtures.engines.openai.server_process import ServeError, ServerProcess, free_port, split_command
from longctx.fixtures.http.retry import RetryPolicy
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tokenization.load import load_tokenizer
from longctx.fixtures.tokenization.prompts import PromptFormatter
from tests.helpers.journals import computed_samples
from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import PYTEST
from tests.helpers.processes import all_gone, is_running
from tests.helpers.runs import CompletedRun, calibration_checkpoint, run_pytest
from tests.helpers.servers import forget_keys

KEY = "sk-4f1e9a77c0ffee5ecret0123456789"
START_SECONDS = 300
SAMPLES, LENGTH = 2, 512
# The requests of the probe and of the canaries.
BEFORE_THE_RUN = 7
# The server's child ignores SIGTERM, so the grace period has to be short.
BRIEF = """
from longctx.fixtures.engines.openai.server_process import ServerProcess

ServerProcess.__init__.__kwdefaults__["grace_seconds"] = 1.0
"""
CAN_SERVE = all(importlib.util.find_spec(name) for name in ("fastapi", "uvicorn", "accelerate"))
serves = pytest.mark.skipif(not CAN_SERVE, reason="needs the packages of transformers[serving]")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_keys(monkeypatch)


@pytest.fixture(scope="module")
def model() -> Path:
    return calibration_checkpoint("full")


@pytest.fixture(scope="module")
def url(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `transformers serve` on the checkpoint."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "hub").mkdir()
    port = free_port()
    served = "serve {model} --device cpu --dtype float32 --host 127.0.0.1 --port {port}"
    settings = {"HF_HOME": str(folder), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment = " ".join(f"{name}={value}" for name, value in settings.items())
    command = f"env {environment} {PYTEST.with_name('transformers')} {served}"
    server = ServerProcess(split_command(command, model=str(model), port=port), folder / "log")
    address = f"http://127.0.0.1:{port}/v1"
    try:
        server.wait(lambda: is_ready(address), seconds=START_SECONDS)
        yield address
    finally:
        server.stop()


def endpoint_of(url: str, model: Path) -> Endpoint:
    tokenizer = load_tokenizer(str(model))

    def ids(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=True, verbose=False)["input_ids"])

    unknown = Endpoint(url=url, model=str(model), api="completions")
    probe = Probe(connection=connect(url, timeout_seconds=60), endpoint=unknown, ids=ids)
    return probe.described([str(model)], None, is_own_tokenizer=True)


@pytest.mark.whole_loop
@serves
def test_a_server_gives_every_sample_the_score_of_the_hf_engine(url: str, model: Path) -> None:
    tokenizer: Any = load_tokenizer(str(model))
    formatter = PromptFormatter(tokenizer)
    tasks = [TASKS[name] for name in (*SOLVED, "niah_multivalue")]
    samples = [
        task.sample(LENGTH, index, seed=0, tokenizer=formatter, corpora=Corpora())
        for task in tasks
        for index in range(SAMPLES)
    ]
    checkpoint = read_checkpoint(str(model))
    hf: Engine = load_hf_engine(checkpoint, HfSettings(device="cpu", dtype="float32"), tokenizer=tokenizer)
    served: Engine = OpenAIEngine(ServerSettings(endpoint=endpoint_of(url, model), batch_size=2), tokenizer)
    prompts = [sample.prompt for sample in samples]
    hf_generations, served_generations = list(hf.generate(prompts)), list(served.generate(prompts))
    scored = [
        [TASKS[sample.task].score(sample, generation.text) for generation in pair]
        for sample, *pair in zip(samples, hf_generations, served_generations, strict=True)
    ]
    assert [hf_score for hf_score, _ in scored] == [served_score for _, served_score in scored]
    assert {score.value for score, _ in scored} >= {1.0}, "the checkpoint solves its tasks"
    pairs = list(zip(hf_generations, served_generations, strict=True))
    assert all(full.prompt_tokens == early.prompt_tokens for early, full in pairs)
    # The hf engine may end an answer as soon as its score is settled.
    assert all(full.text.startswith(early.text) for early, full in pairs)
    assert all(early.text == full.text for early, full in pairs if early.finish != "decided")


def paired_differences(ended: CompletedRun) -> list[tuple[int, float]]:
    """Return the number of pairs and the difference of every case that was compared with the baseline."""
    cases = ended.report["regression"]["cases"].values()
    return [(case["pairs"], case["difference"]) for case in cases if case["pairs"]]


@pytest.mark.whole_loop
@serves
def test_a_served_model_is_compared_with_a_checkpoint_on_the_hf_engine(url: str, model: Path, tmp_path: Path) -> None:
    """One checkpoint on both engines scores the same; both compute all samples."""
    selection = (f"--model={model}", "--suite=ruler", "--lengths=512", "--samples=3", "-k", "single_1 or multivalue")
    baseline = (f"--baseline={model}", "--device=cpu", "--dtype=float32")
    ended = run_pytest(
        tmp_path, *selection, f"--base-url={url}", "--full", *baseline, "--report-json", f"{tmp_path}/report.json"
    )
    assert ended.exit_code == 0, ended.output + ended.errors
    assert f"note: --baseline: hf loads {model} on this machine" in ended.output
    regression = ended.report["regression"]
    assert (ended.report["model"]["engine"], regression["baseline"]["engine"]) == ("openai", "hf")
    assert paired_differences(ended) == [(3, 0.0)] * 2
    assert ended.report["run"]["computed_samples"] == 2 * 2 * 3


def pids(log: Path) -> list[int]:
    return [int(pid) for pid in re.findall(r"^pid (\d+)$", log.read_text(), re.MULTILINE)]


def fake(model: Path) -> str:
    return f"{sys.executable} -m tests.helpers.serve_checkpoint {{model}} {{port}}"


def test_stopping_a_server_ends_it_and_its_children(model: Path, tmp_path: Path) -> None:
    port = free_port()
    server = ServerProcess(split_command(fake(model), model=str(model), port=port), tmp_path / "log", grace_seconds=0.3)
    server.wait(lambda: is_ready(f"http://127.0.0.1:{port}/v1"), seconds=60)
    (child,) = pids(tmp_path / "log")
    assert is_running(child)
    server.stop()
    server.stop()
    assert all_gone([child])
    assert not is_ready(f"http://127.0.0.1:{port}/v1")


def test_a_process_that_left_the_servers_group_ends_with_it(tmp_path: Path) -> None:
    """Daemons such as Ray's leave the process group of the server."""
    words = ["sh", "-c", "setsid sh -c 'sleep 600 & echo pid $!; wait' & echo pid $!; wait"]
    server = ServerProcess(words, tmp_path / "log", grace_seconds=2)
    deadline = time.monotonic() + 60
    while len(pids(tmp_path / "log")) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    process_ids = pids(tmp_path / "log")
    assert len(process_ids) == 2
    assert all(map(is_running, process_ids))
    server.stop()
    assert all_gone(process_ids)


# Sends a signal before every instruction of a guard that waits for its command.
SIGNALS_ANYWHERE = """
import signal, sys, threading
from longctx.fixtures import supervisor

def trace(frame, event, argument):
    if frame.f_code.co_filename not in (supervisor.__file__, threading.__file__) or frame.f_code.co_name == "receive":
        return None
    frame.f_trace_opcodes = True
    if event == "opcode":
        signal.raise_signal(signal.SIGTERM)
    return trace

def start_and_trace(process, *arguments, **named):
    start(process, *arguments, **named)
    sys.settrace(trace)
    sys._getframe(1).f_trace = trace

start, supervisor.subprocess.Popen.__init__ = supervisor.subprocess.Popen.__init__, start_and_trace
supervisor.guard(signal.SIGTERM, 5.0, ["sleep", "600"])
"""


def test_a_signal_at_any_instruction_ends_a_server() -> None:
    """A handler that takes the lock of the interrupted thread waits forever."""
    guard = subprocess.run([sys.executable, "-c", SIGNALS_ANYWHERE], cwd=REPOSITORY, stdin=subprocess.PIPE, timeout=60)
    assert guard.returncode == 0


def test_a_server_ends_when_its_run_is_killed(model: Path, tmp_path: Path) -> None:
    words = split_command(fake(model), model=str(model), port=free_port())
    script = (
        "import sys, time; from pathlib import Path; "
        "from longctx.fixtures.engines.openai.server_process import ServerProcess; "
        f"ServerProcess({words!r}, Path({str(tmp_path / 'log')!r}), grace_seconds=0.3); time.sleep(600)"
    )
    run = subprocess.Popen([sys.executable, "-c", script], cwd=REPOSITORY)
    deadline = time.monotonic() + 60
    while not ((tmp_path / "log").is_file() and pids(tmp_path / "log")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    (child,) = pids(tmp_path / "log")
    assert all_gone([child])


def test_a_run_starts_its_server_uses_it_and_stops_it(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGCTX_API_KEY", KEY)
    log = tmp_path / "server-log"
    command = f"sh -c 'env > {log}; exec {fake(model)} >> {log}'"
    selection = (f"--model={model}", "--suite=ruler", "--lengths=512", "--samples=2", "-k", "single_1 or single_2")
    (tmp_path / "brief.py").write_text(BRIEF)
    plugin = ("-p", "brief", "-n", "2", "--report-json", f"{tmp_path}/report.json")
    ended = run_pytest(tmp_path, *selection, f"--serve={command}", *plugin)
    assert ended.report["run"]["computed_samples"] == 4, ended.output + ended.errors
    assert [case["error"] for case in ended.cases.values()] == [None, None]
    assert (ended.report["model"]["engine"], ended.report["model"]["execution"]["prompts"]) == ("openai", "ids")
    requests = re.findall("^request (.*)$", log.read_text(), re.MULTILINE)
    # Those of the probe, of the canaries and of the samples.
    assert len(requests) > 3 + 4
    assert set(requests) == {f"Bearer {KEY}"}
    assert "LONGCTX_API_KEY" not in log.read_text()
    assert all_gone(pids(log))


@pytest.mark.whole_loop
@pytest.mark.parametrize("workers", ["0", "3"])
def test_model_and_baseline_are_served_in_turn_and_each_is_started_once(
    model: Path, tmp_path: Path, workers: str
) -> None:
    """The baseline is a checkpoint first, and then the report of a server, which is extended."""
    (tmp_path / "brief.py").write_text(BRIEF)
    memory, report = tmp_path / "memory", tmp_path / "report.json"
    other = calibration_checkpoint("512")
    common = ("--suite=ruler", "--lengths=512", "-k", "single_2 or single_3", "-p", "brief", "-n", workers)
    served = (f"--serve=env MEMORY={memory} {fake(model)}", f"--report-json={report}", *common)
    ended = run_pytest(tmp_path, f"--model={other}", f"--baseline={model}", "--samples=3", *served)
    assert paired_differences(ended) == [(3, 0.0)] * 2, ended.output + ended.errors
    assert ended.report["regression"]["baseline"]["engine"] == "openai"
    assert "starting the server of --serve for the baseline" in ended.output
    assert memory.read_text().split() == [str(other), str(model)]
    first = report.rename(tmp_path / "first.json")
    ended = run_pytest(tmp_path, f"--model={model}", f"--baseline={first}", "--samples=5", *served)
    assert paired_differences(ended) == [(5, 0.0)] * 2, ended.output + ended.errors
    assert memory.read_text().split() == [str(other), str(model), str(model), str(other)]


@pytest.mark.whole_loop
def test_a_server_that_ends_during_its_run_is_not_waited_for(model: Path, tmp_path: Path) -> None:
    """Others are waited for, because they may come back."""
    (tmp_path / "brief.py").write_text(BRIEF)
    ended = run_pytest(
        tmp_path, f"--model={model}", "--lengths=512", "--samples=9", "-k", "single_1", "--batch-size=1", "-p", "brief",
        f"--serve=env ANSWERS={BEFORE_THE_RUN + 5} {fake(model)}", f"--report-json={tmp_path}/report.json",
    )  # fmt: skip
    assert ended.exit_code == 1
    (case,) = ended.report["cases"]
    assert case["score"] is None
    assert re.fullmatch(r"--serve: the server ended during the run; see .*\.log; .* continues", case["error"])
    assert 0 < computed_samples(tmp_path / "journal").total() < 6
    assert ended.report["run"]["seconds"] < RetryPolicy().seconds / 2


def test_a_server_that_ends_while_it_is_described_is_not_waited_for(model: Path, tmp_path: Path) -> None:
    (tmp_path / "brief.py").write_text(BRIEF)
    ended = run_pytest(
        tmp_path, f"--model={model}", "--lengths=512", "--samples=1", "-k", "single_1", "-p", "brief",
        f"--serve=env ANSWERS=1 {fake(model)}",
    )  # fmt: skip
    assert ended.exit_code == 4
    assert re.fullmatch(r"ERROR: --serve: the server ended during the run; see .*\.log; .*\n+", ended.errors)


def test_a_serve_command_that_exits_is_a_one_line_error(model: Path, tmp_path: Path) -> None:
    serve = "--serve=sh -c 'echo RuntimeError: no GPU; echo warning: 2 leaked objects; exit 3'"
    ended = run_pytest(tmp_path, f"--model={model}", "--lengths=512", "--samples=1", "-k", "single_1", serve)
    assert ended.exit_code == 4
    line = r"ERROR: --serve: sh -c .* ended before it served \(RuntimeError: no GPU\); see .*\.log\n+"
    assert re.fullmatch(line, ended.errors)


def test_a_serve_command_with_a_key_is_refused_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGCTX_API_KEY", KEY)
    with pytest.raises(ServeError, match="contains a key") as raised:
        split_command(f"vllm --api-key {KEY}", model="m", port=1)
    assert KEY not in str(raised.value)
