"""The processes of a watch, the runs that it starts, and wrong use of its command."""

import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longctx.ci.suite_process import LocalProcesses, SuiteRun, run_suite
from longctx.ci.watch.history import LOCK
from longctx.fixtures.calibration.recipe import Spec, build
from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import preloaded
from tests.helpers.report_records import report_of


def test_sigterm_ends_the_watch_cleanly(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    process = subprocess.Popen(
        [
            sys.executable, "-m", "longctx", "watch", str(tmp_path / "run"), "--every", "1h",
            "--out", str(tmp_path / "out"),
        ],
        cwd=REPOSITORY, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert "watching" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert "stopped; the same command continues" in process.communicate(timeout=120)[0]
    assert process.returncode == 0


GATE = """
[[gate]]
name = "needles"
kind = "level"
tasks = ["niah_single_2"]
above = 85
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder with checkpoints that fail, for the processes of several watches."""

    path: Path

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path / "out" / "history.jsonl").read_text().splitlines()]

    @property
    def notified(self) -> list[str]:
        return (self.path / "notified").read_text().splitlines()

    def add_step(self, step: int) -> None:
        build(Spec(window=512, blind=0.99, step=step), self.path / "run" / f"step-{step}")

    def start(self, name: str, *more: str) -> subprocess.Popen[bytes]:
        """Start a watch whose output is in the file `name`."""
        with (self.path / name).open("wb") as output:
            return subprocess.Popen(
                [
                    str(preloaded("longctx")), "watch", str(self.path / "run"), "--every", "0.1s",
                    "--out", str(self.path / "out"), "--on-failure", f'echo "$LONGCTX_STEP" >> {self.path}/notified',
                    "--suite=ruler", "-k", "niah_single_2", "--lengths=256", "--samples=40",
                    f"--thresholds={self.path}/gate.toml", f"--journal={self.path}/journal", *more,
                ],
                cwd=REPOSITORY, stdout=output, stderr=output,
            )  # fmt: skip

    def output(self, name: str) -> str:
        return (self.path / name).read_text()

    def wait_for(self, text: str, name: str) -> None:
        deadline = time.monotonic() + 120
        while text not in self.output(name):
            assert time.monotonic() < deadline, self.output(name)
            time.sleep(0.02)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "gate.toml").write_text(GATE)
    folder = Folder(path=tmp_path)
    folder.add_step(1)
    return folder


@pytest.mark.whole_loop
def test_watches_of_one_folder_that_start_together_measure_and_notify_once(folder: Folder) -> None:
    processes = [folder.start(name, "--once", "--launch", "sh -c '{command}'") for name in ("1", "2")]
    codes = [process.wait(120) for process in processes]
    others = ["nothing to do here" in folder.output(name) for name in ("1", "2")]
    # The one that measures reports the failure.
    assert sorted(zip(others, codes, strict=True)) == [(False, 1), (True, 0)]
    assert re.search(rf"\(process \d+ on {platform.node()}, since ", folder.output("12"[others.index(True)]))
    assert [(line["event"], line.get("word")) for line in folder.events] == [("measured", "fail"), ("notified", None)]
    assert folder.notified == ["1"]


@pytest.mark.whole_loop
def test_a_watch_that_waits_goes_on_when_the_other_one_is_killed(folder: Folder) -> None:
    first = folder.start("first")
    folder.wait_for("step 1: fail", "first")
    second = folder.start("second")
    folder.wait_for("waiting until it ends", "second")
    folder.add_step(2)
    folder.wait_for("step-2: measuring", "first")
    # The program that was started only waits for the process that it named in the lock.
    os.kill(int((folder.path / "out" / LOCK).read_text().split()[1]), signal.SIGKILL)
    assert first.wait(60) != 0
    folder.wait_for("step 2: fail", "second")
    second.terminate()
    assert second.wait(120) == 1
    assert "1 measured before" in folder.output("second")
    measured = [(line["step"], line["word"]) for line in folder.events if line["event"] == "measured"]
    assert measured == [(1, "fail"), (2, "fail")]
    assert folder.notified == ["1"]
    assert list((folder.path / "out").glob(".*")) == []


@pytest.fixture
def fast_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the runs of the watch with packages that are imported already."""
    monkeypatch.setattr(sys, "executable", str(preloaded("python")))


@pytest.mark.whole_loop
@pytest.mark.usefixtures("fast_runs")
def test_an_incomplete_run_leaves_no_report(tmp_path: Path) -> None:
    """Check that wrong use leaves no report, since a later run would reuse it."""
    report = tmp_path / "report.json"

    def measure() -> SuiteRun:
        nothing = ["--model", str(tmp_path / "nothing")]
        return run_suite(nothing, report=report, fingerprints=["f"], executor=LocalProcesses())

    failed = measure()
    assert (failed.exit_code, failed.report) == (4, None)
    assert failed.reason.startswith("--model: no such directory")
    assert not report.exists()
    run = {"options": {"journal": "/j"}}
    earlier, other = (report_of({"model": {"fingerprint": name}, "run": run}) for name in ("f", "g"))
    report.write_bytes(msgspec.json.encode(earlier))
    reused = measure()
    assert (reused.exit_code, reused.report) == (0, earlier)
    report.write_bytes(msgspec.json.encode(other))
    again = measure()
    assert (again.exit_code, again.report) == (4, None)
