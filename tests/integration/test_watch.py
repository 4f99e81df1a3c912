"""`longctx watch`: every checkpoint is measured once, failures are delivered, and restarts lose nothing."""

from __future__ import annotations

import html
import json
import shutil
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longctx.ci.suite_process import SuiteRun
from longctx.ci.watch import __main__ as watch
from longctx.ci.watch import measure
from longctx.ci.watch.history import History, WatchedCheckpoint
from tests.helpers.checkpoints import write_step
from tests.helpers.fake_suite import FakeSuite
from tests.helpers.servers import ChatServer, Response

Start = Callable[..., int]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Return a function that watches the folder `run` until everything is measured."""

    def run_watch(suite: FakeSuite, *more: str) -> int:
        monkeypatch.setattr(measure, "run_suite", suite)
        monkeypatch.setattr(watch, "check_suite_options", lambda *_: None)
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
    assert suite.runs == [(3, None), (20, "3"), (100, "3")]
    lines = [line for line in events(tmp_path) if line["event"] == "measured"]
    assert [(line["step"], line["word"], line["baseline"]) for line in lines] == [
        (3, "pass", None), (20, "fail", 3), (100, "pass", 3)
    ]  # fmt: skip
    assert lines[1]["failed"] == ["mean at 8k: 70.1 is not"]


def test_every_step_is_compared_with_the_anchor_and_with_the_last_good_one(tmp_path: Path, start: Start) -> None:
    for step in (1, 2, 3, 4):
        write_step(tmp_path / "run", step)
    suite = FakeSuite(failing=[3])
    assert start(suite) == 1
    # A step that fails against the anchor is not compared with the last good one.
    assert suite.runs == [(1, None), (2, "1"), (3, "1"), (4, "1"), (4, "2")]
    named = FakeSuite()
    for step in (5, 6):
        write_step(tmp_path / "run", step)
    assert start(named, "--anchor", "2") == 1
    assert named.runs == [(5, "2"), (5, "4"), (6, "2"), (6, "5")]


def test_a_seed_for_every_step_compares_on_new_samples(tmp_path: Path, start: Start) -> None:
    """A report knows answers to other samples only, so the checkpoints themselves are compared."""
    for step in (1, 2):
        write_step(tmp_path / "run", step)
    suite = FakeSuite()
    assert start(suite, "--seed", "step", "--lengths", "4k") == 0
    assert suite.seeds == ["1", "2"]
    assert suite.baselines == [None, str(tmp_path / "run" / "step-1")]
    shutil.rmtree(tmp_path / "run" / "step-1")
    write_step(tmp_path / "run", 3)
    assert start(suite, "--seed", "step") == 1
    assert suite.baselines[2:] == [str(tmp_path / "run" / "step-2")]
    last = [line for line in events(tmp_path) if line["event"] == "measured"][-1]
    assert (last["step"], last["word"]) == (3, "underpowered")
    assert "the anchor, step 1, is gone" in last["failed"][0]


def test_a_loss_that_is_not_shown_for_the_model_is_neither_a_failure_nor_a_good_step(
    tmp_path: Path, start: Start
) -> None:
    for step in (1, 2, 3):
        write_step(tmp_path / "run", step)
    suite = FakeSuite(regressing={2: -1.6})
    assert start(suite) == 0
    assert [(line["step"], line["word"]) for line in events(tmp_path)] == [
        (1, "pass"),
        (2, "inconclusive"),
        (3, "pass"),
    ]
    assert suite.runs == [(1, None), (2, "1"), (3, "1")]
    # Two comparisons of each of 100 checkpoints share the probability of error.
    assert suite.series == ["200", "200", "200"]
    shown = FakeSuite(regressing={4: -8.0})
    write_step(tmp_path / "run", 4)
    assert start(shown) == 1
    assert events(tmp_path)[-2]["word"] == "fail"


def test_a_checkpoint_whose_engine_fails_a_property_is_not_measured(tmp_path: Path, start: Start, capsys: Any) -> None:
    for step in (1, 2, 3):
        write_step(tmp_path / "run", step)
    suite = FakeSuite(forgetful=[2])
    assert start(suite, "--invariance") == 1
    assert suite.checked == [1, 2, 3]
    assert suite.runs == [(1, None), (3, "1")]
    line = (
        "invariance: warm: niah_single_2 of 1024 tokens, 0: token 2 of the answer: logits differ by 0.5:"
        " ' 17' instead of ' 12'"
    )
    second = next(event for event in events(tmp_path) if event.get("step") == 2)
    assert (second["word"], second["failed"]) == ("fail", [line])
    assert Path(second["report"]).parent == tmp_path / "out" / "invariance"
    assert f"    {line}\n" in capsys.readouterr().out
    assert line in html.unescape((tmp_path / "out" / "index.html").read_text())


def test_an_underpowered_comparison_is_no_pass(tmp_path: Path, start: Start) -> None:
    for step in (1, 2):
        write_step(tmp_path / "run", step)
    assert start(FakeSuite(underpowered=[2])) == 1
    assert [(line["step"], line["word"]) for line in events(tmp_path) if line["event"] == "measured"] == [
        (1, "pass"), (2, "underpowered")
    ]  # fmt: skip


def test_scores_are_printed_with_their_noise_and_the_index_links_every_page(
    tmp_path: Path, start: Start, capsys: Any
) -> None:
    for step in range(1, 6):
        write_step(tmp_path / "run", step)
    assert start(FakeSuite(scores={1: 90.0, 2: 92.0, 3: 90.0, 4: 92.0, 5: 91.0})) == 0
    output = capsys.readouterr().out
    assert "    ruler 8k: 92.0, noise ±1.4 over the last 3 steps\n" in output
    assert "5 checkpoints: 5 pass" in output
    for step in (6, 7):
        write_step(tmp_path / "run", step)
    assert start(FakeSuite(failing=[6], scores={6: 20.0, 7: 91.0})) == 1
    # A loss that was shown is no noise: the failed step is left out.
    assert "    ruler 8k: 91.0, noise ±1.3 over the last 5 steps\n" in capsys.readouterr().out
    index = (tmp_path / "out" / "index.html").read_text()
    for page in (tmp_path / "out").glob("step-*.html"):
        assert page.name in index
    assert index.count("<a href=") >= 5


def test_a_half_written_checkpoint_is_named_once(tmp_path: Path, start: Start, capsys: Any) -> None:
    write_step(tmp_path / "run", 1)
    (tmp_path / "run" / "step-2").mkdir()
    start(FakeSuite())
    output = capsys.readouterr().out
    assert output.count("step-2: waiting: ") == 1
    assert output.count("not measured: step-2: ") == 1
    assert "step-1: waiting" not in output


def test_the_newest_checkpoint_is_measured_first_on_request(tmp_path: Path, start: Start) -> None:
    for step in (1, 2, 3):
        write_step(tmp_path / "run", step)
    suite = FakeSuite()
    assert start(suite, "--order", "newest") == 0
    assert [step for step, _ in suite.runs] == [3, 2, 1]


def test_several_checkpoints_are_measured_at_a_time_once_there_is_an_anchor(tmp_path: Path, start: Start) -> None:
    """Let each of three runs wait until all three have started; the run of the anchor is alone."""
    for step in (1, 2, 3, 4):
        write_step(tmp_path / "run", step)
    barrier = threading.Barrier(3)

    class WaitingSuite(FakeSuite):
        def __call__(self, arguments: Sequence[str], **more: Any) -> SuiteRun:
            if "--baseline" in arguments:
                barrier.wait(timeout=60)
            return super().__call__(arguments, **more)

    suite = WaitingSuite()
    assert start(suite, "--parallel", "3", "--gpus", "0,1,2,3,4,5") == 0
    assert suite.runs[0] == (1, None)
    assert sorted(suite.runs[1:]) == [(2, "1"), (3, "1"), (4, "1")]
    gpus = [environment["CUDA_VISIBLE_DEVICES"] for environment in suite.environments[1:] if environment]
    assert sorted(gpus) == ["0,3", "1,4", "2,5"]
    assert sorted(line["step"] for line in events(tmp_path)) == [1, 2, 3, 4]


def test_an_error_of_one_measurement_stops_the_others(tmp_path: Path, start: Start) -> None:
    for step in (1, 2, 3):
        write_step(tmp_path / "run", step)
    began = threading.Event()
    stopped: list[int] = []

    class StoppedSuite(FakeSuite):
        def __call__(self, arguments: Sequence[str], **more: Any) -> SuiteRun:
            step = int(arguments[list(arguments).index("--model") + 1].rpartition("-")[2])
            if step == 2:
                began.wait(60)
                raise OSError("disk")
            if step == 3:
                began.set()
                stopped.extend([step] if more["executor"].cancelled.wait(60) else [])
            return super().__call__(arguments, **more)

    with pytest.raises(OSError, match="disk"):
        start(StoppedSuite(), "--parallel", "2")
    assert stopped == [3]


def test_a_restart_measures_new_checkpoints_and_retries_errors(tmp_path: Path, start: Start) -> None:
    for step in (1, 2):
        write_step(tmp_path / "run", step)
    assert start(FakeSuite(broken=[2])) == 1
    write_step(tmp_path / "run", 3)
    again = FakeSuite()
    assert start(again) == 0
    assert list(dict.fromkeys(step for step, _ in again.runs)) == [2, 3]


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
    assert list(dict.fromkeys(step for step, _ in suite.runs)) == [1, 2, 3]
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
    error = WatchedCheckpoint(
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
