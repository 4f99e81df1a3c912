"""`python -m ci.watch`: never half a checkpoint, never one missed, nothing lost between starts."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ci.suite_process import Ran, run_suite
from ci.watch import __main__ as watch
from ci.watch.history import History, Measured
from tests.helpers.checkpoints import write_step
from tests.helpers.paths import REPOSITORY
from tests.helpers.servers import ChatServer, Response


class Suite:
    """Stands in for the suite: fails the steps it is told to, and remembers what it was asked."""

    def __init__(self, failing: Sequence[int] = (), broken: Sequence[int] = ()):
        self.failing, self.broken = failing, broken
        self.asked: list[tuple[int, str | None]] = []
        self.environments: list[Mapping[str, str] | None] = []

    def __call__(
        self, arguments: Sequence[str], *, report: Path, log: Path, environment: Mapping[str, str] | None, again: bool
    ) -> Ran:
        option = {name: value for name, value in itertools.pairwise(arguments) if name.startswith("--")}
        step = int(option["--model"].rpartition("-")[2])
        self.asked.append((step, option.get("--baseline")))
        self.environments.append(environment)
        if step in self.broken:
            return Ran(code=4, report=None, reason="--lengths: unknown '8kb'; write 8k")
        fails = step in self.failing
        gate = {"name": "mean at 8k", "blocking": True, "verdict": "fail" if fails else "pass", "reason": "70.1 is not"}
        report.parent.mkdir(exist_ok=True)
        report.write_text("{}")
        return Ran(code=int(fails), report={"gates": [gate], "cases": [], "ruler": {"effective_length_label": "8192"}})


Start = Callable[..., int]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts a watch over `run` that ends when nothing is left."""

    def started(suite: Suite, *more: str) -> int:
        monkeypatch.setattr(watch, "run_suite", suite)
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        fixed = ["--every", "0.01s", "--once", "--out", str(tmp_path / "out")]
        return watch.main([str(tmp_path / "run"), *fixed, *more])

    return started


def history(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out" / "history.jsonl").read_text().splitlines()]


def test_each_step_is_measured_against_the_last_that_passed(tmp_path: Path, start: Start) -> None:
    for step in (100, 20, 3):
        write_step(tmp_path / "run", step)
    suite = Suite(failing=[20])
    assert start(suite) == 1
    assert [step for step, _ in suite.asked] == [3, 20, 100]
    against = [baseline and Path(baseline).name.partition("-")[2].partition("-")[0] for _, baseline in suite.asked]
    assert against == [None, "3", "3"]
    lines = [line for line in history(tmp_path) if line["event"] == "measured"]
    assert [(line["step"], line["word"], line["baseline"]) for line in lines] == [
        (3, "pass", None), (20, "fail", 3), (100, "pass", 3)
    ]  # fmt: skip
    assert lines[1]["failed"] == ["mean at 8k: 70.1 is not"]


def test_newest_first(tmp_path: Path, start: Start) -> None:
    for step in (1, 2, 3):
        write_step(tmp_path / "run", step)
    suite = Suite()
    assert start(suite, "--order", "newest") == 0
    assert [step for step, _ in suite.asked] == [3, 2, 1]


def test_a_restart_measures_what_is_new_and_tries_errors_again(tmp_path: Path, start: Start) -> None:
    for step in (1, 2):
        write_step(tmp_path / "run", step)
    assert start(Suite(broken=[2])) == 1
    write_step(tmp_path / "run", 3)
    again = Suite()
    assert start(again) == 0
    assert [step for step, _ in again.asked] == [2, 3]


def test_a_gpu_budget_ends_it_and_a_larger_one_goes_on(tmp_path: Path, start: Start, capsys: Any) -> None:
    for step in (1, 2):
        write_step(tmp_path / "run", step)
    suite = Suite()
    start(suite, "--gpus", "0,1")
    spent = tmp_path / "out" / "history.jsonl"
    lines = [json.loads(line) | {"gpu_seconds": 30.0} for line in spent.read_text().splitlines()]
    spent.write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_step(tmp_path / "run", 3)
    assert start(suite, "--gpu-budget", "1m") == 0
    assert "the GPU budget is spent" in capsys.readouterr().out
    assert len(suite.asked) == 2
    start(suite, "--gpu-budget", "2m")
    assert [step for step, _ in suite.asked] == [1, 2, 3]
    assert suite.environments[0] == {"CUDA_VISIBLE_DEVICES": "0,1"}


def test_a_failure_is_told_to_a_command_with_the_facts(tmp_path: Path, start: Start) -> None:
    write_step(tmp_path / "run", 7)
    told = tmp_path / "told"
    start(Suite(failing=[7]), "--on-failure", f'echo "$LONGCTX_STEP $LONGCTX_VERDICT $LONGCTX_FAILED" >> {told}')
    assert told.read_text() == "7 fail mean at 8k: 70.1 is not\n"
    start(Suite(), "--on-failure", f"echo again >> {told}")
    assert "again" not in told.read_text()


def test_a_failure_behind_an_error_is_told_too(tmp_path: Path, start: Start) -> None:
    write_step(tmp_path / "run", 7)
    told = tmp_path / "told"
    telling = ("--on-failure", f'echo "$LONGCTX_VERDICT" >> {told}')
    for suite in (Suite(broken=[7]), Suite(broken=[7]), Suite(failing=[7]), Suite()):
        assert start(suite, *telling) == 1
    assert told.read_text() == "error\nfail\n"


def test_who_heard_of_an_error_has_not_heard_of_the_failure(tmp_path: Path) -> None:
    """In the history that is written, and in one that was ended before it could tell."""
    history = History(tmp_path)
    error = Measured(
        step=1, checkpoint="/run/step-1", fingerprint="f", word="error", code=4, failed=(), report="r", baseline=None,
        effective_length=None, gpu_seconds=100.0, ended="now",
    )  # fmt: skip
    for measured in (error, replace(error, word="fail", code=1, gpu_seconds=50.0)):
        history.add(measured)
        assert history.untold == History(tmp_path).untold == [measured]
        history.note_told(measured)
        assert history.untold == History(tmp_path).untold == []
    assert history.gpu_seconds == History(tmp_path).gpu_seconds == 150.0


def test_a_retry_adds_to_what_is_spent(tmp_path: Path, start: Start) -> None:
    write_step(tmp_path / "run", 1)
    start(Suite(broken=[1]))
    start(Suite())
    path = tmp_path / "out" / "history.jsonl"
    lines = [line | {"gpu_seconds": 40.0} for line in history(tmp_path) if line["event"] == "measured"]
    assert len(lines) == 2
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_step(tmp_path / "run", 2)
    suite = Suite()
    start(suite, "--gpu-budget", "80s")
    assert suite.asked == []
    start(suite, "--gpu-budget", "81s")
    assert [step for step, _ in suite.asked] == [2]


def test_a_webhook_that_is_away_hears_of_it_at_the_next_start(tmp_path: Path, start: Start, capsys: Any) -> None:
    write_step(tmp_path / "run", 7)
    with ChatServer().serving() as server:
        server.queue = [Response(status=503)] * 20
        start(Suite(failing=[7]), "--webhook", f"{server.url}/secret-token")
        said = capsys.readouterr().out
        assert "--webhook: HTTPError: Service Unavailable; it is tried again" in said
        assert "secret-token" not in said
        server.queue = []
        before = len(server.requests)
        start(Suite(), "--webhook", f"{server.url}/secret-token")
        (heard,) = server.requests[before:]
    assert heard.body["text"] == "step 7: fail: mean at 8k: 70.1 is not"
    assert heard.body["report"].endswith(".json")


@settings(deadline=None)
@given(st.integers(0, 400))
def test_a_torn_history_loses_no_whole_line(cut: int) -> None:
    with_lines = [
        Measured(
            step=step, checkpoint=f"/run/step-{step}", fingerprint="f", word="pass", code=0, failed=(), report="r",
            baseline=None, effective_length=None, gpu_seconds=1.0, ended="now",
        )
        for step in (1, 2)
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = History(folder)
        for each in with_lines:
            written.add(each)
        data = written.path.read_bytes()
        written.path.write_bytes(data[: max(0, len(data) - cut)])
        whole = written.path.read_bytes().count(b"\n")
        read = History(folder)
        # A last line that lacks its newline only is whole as well.
        assert len(read.measured) - whole in (0, 1)
        read.add(with_lines[1])
        assert ("/run/step-2", "f") in History(folder).measured
        assert len(History(folder).measured) == len({*read.measured, ("/run/step-2", "f")})


def test_sigterm_ends_it_cleanly(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "ci.watch", str(tmp_path / "run"), "--every", "1h", "--out", str(tmp_path / "out")],
        cwd=REPOSITORY, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert "watching" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert "stopped; the same command goes on from here" in process.communicate(timeout=30)[0]
    assert process.returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent was killed")
def test_the_suite_ends_with_a_watch_that_was_killed(tmp_path: Path) -> None:
    script = (
        "from ci.suite_process import start; import sys, time\n"
        "print(start([sys.executable, '-c', 'import time; time.sleep(600)'], 2).pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    for _ in range(200):
        if not is_running(child):
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the child lives on")


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_run_that_did_not_come_to_its_end_leaves_no_report(tmp_path: Path) -> None:
    """A report that is there is taken for an answer, so wrong use must not leave one."""
    report = tmp_path / "report.json"
    ran = run_suite(["--model", str(tmp_path / "nothing")], report=report, log=tmp_path / "log")
    assert (ran.code, ran.report) == (4, None)
    assert ran.reason.startswith("--model: no such directory")
    assert not report.exists()
    report.write_text(json.dumps({"schema": "longctx-report/1", "cases": []}))
    known = run_suite(["--model", str(tmp_path / "nothing")], report=report, log=tmp_path / "log")
    assert (known.code, known.report) == (0, {"schema": "longctx-report/1", "cases": []})


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("nowhere",), "DIR: no such directory 'nowhere'"),
        ((".", "--every", "30"), "--every: unknown '30'; write 30s, 5m or 8h"),
        ((".", "--every", "0s"), "--every: unknown '0s'"),
        ((".", "--gpu-budget", "much"), "--gpu-budget: unknown 'much'"),
        ((".", "--webhook", "file:///etc/passwd"), "--webhook: not an address"),
    ],
)
def test_wrong_use_is_one_line(arguments: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert watch.main(list(arguments)) == 4
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1
