"""`python -m ci.watch`: every checkpoint is measured once, failures are delivered, and restarts lose nothing."""

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

from ci.suite_process import SuiteRun, run_suite
from ci.watch import __main__ as watch
from ci.watch import loop
from ci.watch.history import History, Measurement
from tests.helpers.checkpoints import write_step
from tests.helpers.paths import REPOSITORY
from tests.helpers.servers import ChatServer, Response


class FakeSuite:
    """A fake of the suite that fails the given steps and records its calls."""

    def __init__(self, failing: Sequence[int] = (), broken: Sequence[int] = ()):
        self.failing, self.broken = failing, broken
        self.runs: list[tuple[int, str | None]] = []
        self.environments: list[Mapping[str, str] | None] = []

    def __call__(
        self, arguments: Sequence[str], *, report: Path, log: Path, environment: Mapping[str, str] | None, again: bool
    ) -> SuiteRun:
        option = {name: value for name, value in itertools.pairwise(arguments) if name.startswith("--")}
        step = int(option["--model"].rpartition("-")[2])
        self.runs.append((step, option.get("--baseline")))
        self.environments.append(environment)
        if step in self.broken:
            return SuiteRun(exit_code=4, report=None, reason="--lengths: unknown '8kb'; write 8k")
        fails = step in self.failing
        gate = {"name": "mean at 8k", "blocking": True, "verdict": "fail" if fails else "pass", "reason": "70.1 is not"}
        report.parent.mkdir(exist_ok=True)
        report.write_text("{}")
        written = {"gates": [gate], "cases": [], "ruler": {"effective_length_label": "8192"}}
        return SuiteRun(exit_code=int(fails), report=written)


Start = Callable[..., int]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Return a function that watches the folder `run` until everything is measured."""

    def run_watch(suite: FakeSuite, *more: str) -> int:
        monkeypatch.setattr(loop, "run_suite", suite)
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        fixed = ["--every", "0.01s", "--once", "--out", str(tmp_path / "out")]
        return watch.main([str(tmp_path / "run"), *fixed, *more])

    return run_watch


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out" / "history.jsonl").read_text().splitlines()]


def test_every_step_is_compared_with_the_last_one_that_passed(tmp_path: Path, start: Start) -> None:
    for step in (100, 20, 3):
        write_step(tmp_path / "run", step)
    suite = FakeSuite(failing=[20])
    assert start(suite) == 1
    assert [step for step, _ in suite.runs] == [3, 20, 100]
    against = [baseline and Path(baseline).name.partition("-")[2].partition("-")[0] for _, baseline in suite.runs]
    assert against == [None, "3", "3"]
    lines = [line for line in events(tmp_path) if line["event"] == "measured"]
    assert [(line["step"], line["word"], line["baseline"]) for line in lines] == [
        (3, "pass", None), (20, "fail", 3), (100, "pass", 3)
    ]  # fmt: skip
    assert lines[1]["failed"] == ["mean at 8k: 70.1 is not"]


def test_the_newest_checkpoint_is_measured_first_on_request(tmp_path: Path, start: Start) -> None:
    for step in (1, 2, 3):
        write_step(tmp_path / "run", step)
    suite = FakeSuite()
    assert start(suite, "--order", "newest") == 0
    assert [step for step, _ in suite.runs] == [3, 2, 1]


def test_a_restart_measures_new_checkpoints_and_retries_errors(tmp_path: Path, start: Start) -> None:
    for step in (1, 2):
        write_step(tmp_path / "run", step)
    assert start(FakeSuite(broken=[2])) == 1
    write_step(tmp_path / "run", 3)
    again = FakeSuite()
    assert start(again) == 0
    assert [step for step, _ in again.runs] == [2, 3]


def test_a_gpu_budget_ends_the_watch_and_a_larger_one_continues(tmp_path: Path, start: Start, capsys: Any) -> None:
    for step in (1, 2):
        write_step(tmp_path / "run", step)
    suite = FakeSuite()
    start(suite, "--gpus", "0,1")
    spent = tmp_path / "out" / "history.jsonl"
    lines = [json.loads(line) | {"gpu_seconds": 30.0} for line in spent.read_text().splitlines()]
    spent.write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_step(tmp_path / "run", 3)
    assert start(suite, "--gpu-budget", "1m") == 0
    assert "the GPU budget is spent" in capsys.readouterr().out
    assert len(suite.runs) == 2
    start(suite, "--gpu-budget", "2m")
    assert [step for step, _ in suite.runs] == [1, 2, 3]
    assert suite.environments[0] == {"CUDA_VISIBLE_DEVICES": "0,1"}


def test_a_failure_runs_the_command_with_the_facts(tmp_path: Path, start: Start) -> None:
    write_step(tmp_path / "run", 7)
    log = tmp_path / "log"
    start(FakeSuite(failing=[7]), "--on-failure", f'echo "$LONGCTX_STEP $LONGCTX_VERDICT $LONGCTX_FAILED" >> {log}')
    assert log.read_text() == "7 fail mean at 8k: 70.1 is not\n"
    start(FakeSuite(), "--on-failure", f"echo again >> {log}")
    assert "again" not in log.read_text()


def test_a_failure_after_an_error_is_notified_too(tmp_path: Path, start: Start) -> None:
    write_step(tmp_path / "run", 7)
    log = tmp_path / "log"
    notifying = ("--on-failure", f'echo "$LONGCTX_VERDICT" >> {log}')
    for suite in (FakeSuite(broken=[7]), FakeSuite(broken=[7]), FakeSuite(failing=[7]), FakeSuite()):
        assert start(suite, *notifying) == 1
    assert log.read_text() == "error\nfail\n"


def test_a_notified_error_does_not_cover_the_failure_after_it(tmp_path: Path) -> None:
    """Check the history in memory, and the one that a restart reads."""
    history = History(tmp_path)
    error = Measurement(
        step=1, checkpoint="/run/step-1", fingerprint="f", verdict="error", exit_code=4, failed=(), report="r",
        baseline=None, effective_length=None, gpu_seconds=100.0, ended="now",
    )  # fmt: skip
    for measurement in (error, replace(error, verdict="fail", exit_code=1, gpu_seconds=50.0)):
        history.add(measurement)
        assert history.unnotified == History(tmp_path).unnotified == [measurement]
        history.mark_notified(measurement)
        assert history.unnotified == History(tmp_path).unnotified == []
    assert history.gpu_seconds == History(tmp_path).gpu_seconds == 150.0


def test_a_retry_adds_to_the_gpu_time(tmp_path: Path, start: Start) -> None:
    write_step(tmp_path / "run", 1)
    start(FakeSuite(broken=[1]))
    start(FakeSuite())
    path = tmp_path / "out" / "history.jsonl"
    lines = [line | {"gpu_seconds": 40.0} for line in events(tmp_path) if line["event"] == "measured"]
    assert len(lines) == 2
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_step(tmp_path / "run", 2)
    suite = FakeSuite()
    start(suite, "--gpu-budget", "80s")
    assert suite.runs == []
    start(suite, "--gpu-budget", "81s")
    assert [step for step, _ in suite.runs] == [2]


def test_an_unavailable_webhook_is_retried_at_the_next_start(tmp_path: Path, start: Start, capsys: Any) -> None:
    write_step(tmp_path / "run", 7)
    with ChatServer().serving() as server:
        server.queue = [Response(status=503)] * 20
        start(FakeSuite(failing=[7]), "--webhook", f"{server.url}/secret-token")
        output = capsys.readouterr().out
        assert "--webhook: the server answered 503; it will be retried" in output
        assert "secret-token" not in output
        server.queue = []
        before = len(server.requests)
        start(FakeSuite(), "--webhook", f"{server.url}/secret-token")
        (request,) = server.requests[before:]
    assert request.body["text"] == "step 7: fail: mean at 8k: 70.1 is not"
    assert request.body["report"].endswith(".json")


@settings(deadline=None)
@given(st.integers(0, 400))
def test_a_torn_history_loses_no_complete_line(cut: int) -> None:
    measurements = [
        Measurement(
            step=step, checkpoint=f"/run/step-{step}", fingerprint="f", verdict="pass", exit_code=0, failed=(),
            report="r", baseline=None, effective_length=None, gpu_seconds=1.0, ended="now",
        )
        for step in (1, 2)
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = History(folder)
        for measurement in measurements:
            written.add(measurement)
        data = written.path.read_bytes()
        written.path.write_bytes(data[: max(0, len(data) - cut)])
        complete = written.path.read_bytes().count(b"\n")
        read = History(folder)
        # A last line that lacks only its newline is complete as well.
        assert len(read.measurements) - complete in (0, 1)
        read.add(measurements[1])
        assert ("/run/step-2", "f") in History(folder).measurements
        assert len(History(folder).measurements) == len({*read.measurements, ("/run/step-2", "f")})


def test_sigterm_ends_the_watch_cleanly(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "ci.watch", str(tmp_path / "run"), "--every", "1h", "--out", str(tmp_path / "out")],
        cwd=REPOSITORY, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert "watching" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert "stopped; the same command continues" in process.communicate(timeout=30)[0]
    assert process.returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent was killed")
def test_the_suite_ends_when_its_watch_is_killed(tmp_path: Path) -> None:
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
    pytest.fail("the child is still running")


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_an_incomplete_run_leaves_no_report(tmp_path: Path) -> None:
    """Check that wrong use leaves no report, since a later run would reuse it."""
    report, log = tmp_path / "report.json", tmp_path / "log"
    failed = run_suite(["--model", str(tmp_path / "nothing")], report=report, log=log, fingerprints=["f"])
    assert (failed.exit_code, failed.report) == (4, None)
    assert failed.reason.startswith("--model: no such directory")
    assert not report.exists()
    earlier = {"schema": "longctx-report/1", "model": {"fingerprint": "f"}, "cases": []}
    report.write_text(json.dumps(earlier))
    reused = run_suite(["--model", str(tmp_path / "nothing")], report=report, log=log, fingerprints=["f"])
    assert (reused.exit_code, reused.report) == (0, earlier)
    report.write_text(json.dumps(earlier | {"model": {"fingerprint": "g"}}))
    again = run_suite(["--model", str(tmp_path / "nothing")], report=report, log=log, fingerprints=["f"])
    assert (again.exit_code, again.report) == (4, None)


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
    errors = capsys.readouterr().err
    assert line in errors
    assert errors.count("\n") == 1
