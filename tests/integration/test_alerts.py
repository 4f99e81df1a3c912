"""From a failed step to a closed case, by the commands: a watch finds the culprit, and a repaired step closes it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from longctx.fixtures.calibration.recipe import Spec, build
from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import preloaded

GATE = """
[[gate]]
name = "needles"
kind = "level"
tasks = ["niah_single_2"]
above = 10

[regression]
drop = 2
"""


@dataclass(frozen=True, slots=True)
class Run:
    """A folder with the checkpoints of a run, and the commands that a user types there."""

    path: Path

    def add_step(self, step: int, *, blind: float = 0.0) -> None:
        build(Spec(window=512, blind=blind, step=step), self.path / "run" / f"step-{step}")

    def command(self, *words: str) -> tuple[int, str]:
        ended = subprocess.run(
            [str(preloaded("longctx")), *words], cwd=REPOSITORY, capture_output=True, text=True, timeout=300
        )
        return ended.returncode, ended.stdout + ended.stderr

    def watch(self, *more: str) -> tuple[int, str]:
        return self.command(
            "watch", str(self.path / "run"), "--once", "--every", "0.1s", "--out", str(self.path / "out"),
            "--every-nth", "3", "--on-failure", "bisect", "--on-failure",
            f'echo "$LONGCTX_ALERT $LONGCTX_CULPRIT" >> {self.path}/notified', "--suite=ruler", "-k", "niah_single_2",
            "--lengths=256", "--samples=24", f"--thresholds={self.path}/gate.toml", f"--journal={self.path}/journal",
            *more,
        )  # fmt: skip

    def alerts(self, *words: str) -> str:
        code, printed = self.command("alerts", str(self.path / "out"), *words)
        assert code == 0, printed
        return printed


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "gate.toml").write_text(GATE)
    return Run(tmp_path)


@pytest.mark.whole_loop
def test_a_loss_becomes_one_alert_with_its_culprit_that_a_repaired_step_closes(run: Run) -> None:
    for step in range(1, 5):
        run.add_step(step, blind=0.6 if step >= 3 else 0.0)
    code, printed = run.watch()
    assert code == 1, printed
    assert "alert 1: the loss began at step 3" in printed
    measured = [json.loads(line) for line in (run.path / "out" / "history.jsonl").read_text().splitlines()]
    assert [(line["step"], line["word"]) for line in measured if line["event"] == "measured"] == [
        (1, "pass"), (4, "fail")
    ]  # fmt: skip
    assert (run.path / "notified").read_text() == "1 step 3 (99.9 % sure)\n"

    page = (run.path / "out" / "index.html").read_text()
    assert "Alert 1, new" in page
    assert "FAIL since step 3; step 2 is good" in page
    listed = run.alerts()
    assert listed.count("alert 1") == 1
    assert "1 open (1 new), 0 closed" in listed
    assert "test_ruler[niah_single_2-256]" in listed
    assert "acknowledged" in run.alerts("ack", "1", "--owner", "mira", "--note", "rope change")

    # The printed commands run as they stand: the same loss on the same samples, computed anew, and on others.
    for name in ("again", "fresh"):
        (line,) = re.findall(rf"^\s*{name}:?\s+(longctx .*)$", listed, re.MULTILINE)
        code, printed = run.command(*shlex.split(line)[1:])
        assert (code, "FAIL" in printed) == (1, True), printed

    # So does the one that looks for the cause, on the samples of the alarm.
    (line,) = re.findall(r"^\s*cause:?\s+(longctx .*)$", listed, re.MULTILINE)
    assert f"{run.path}/run/step-2 {run.path}/run/step-3 " in line
    code, printed = run.command(*shlex.split(line)[1:])
    assert code in (0, 1), printed
    assert "that GOOD answers and BAD misses" in printed
    assert "bad answer" in (run.path / "out" / "alert-1" / "diagnosis.html").read_text()

    # Nothing happens twice.
    assert run.watch()[0] == 1
    assert (run.path / "notified").read_text() == "1 step 3 (99.9 % sure)\n"
    page = (run.path / "out" / "index.html").read_text()
    assert "Alert 1, acknowledged by mira" in page
    assert '<a href="alert-1/diagnosis.html">' in page
    assert re.search(r"^\s*found +\S", run.alerts(), re.MULTILINE)

    for step in (5, 6, 7):
        run.add_step(step)
    code, printed = run.watch()
    assert "alert 1: fixed" in printed
    assert "0 open, 1 closed" in run.alerts()
    assert "mira" in run.alerts("--all")
    code, digest = run.command("history", str(run.path / "out"), "--digest", "7d")
    assert code == 0, digest
    assert "step 3" in digest
    assert (run.path / "notified").read_text() == "1 step 3 (99.9 % sure)\n"
