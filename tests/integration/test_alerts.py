"""From a failed step to a closed alert: a watch finds the culprit, and a repaired step closes it."""

import html
import json
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
        notify = f'echo "$LONGCTX_EVENT $LONGCTX_STEP $LONGCTX_CULPRIT" >> {self.path}/notified'
        return self.command(
            "watch", str(self.path / "run"), "--once", "--every", "0.1s", "--out", str(self.path / "out"),
            "--every-nth", "3", "--on-failure", "bisect", "--on-failure",
            notify, "--suite=ruler", "-k", "niah_single_2",
            "--lengths=256", "--samples=24", f"--thresholds={self.path}/gate.toml", f"--journal={self.path}/journal",
            *more,
        )  # fmt: skip

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path / "out" / "history.jsonl").read_text().splitlines()]

    @property
    def notified(self) -> str:
        return (self.path / "notified").read_text()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "gate.toml").write_text(GATE)
    return Run(tmp_path)


@pytest.mark.whole_loop
def test_a_loss_becomes_one_alert_with_its_culprit_that_a_repaired_step_closes(run: Run) -> None:
    for step in range(1, 5):
        run.add_step(step, blind=0.6 if step >= 3 else 0.0)
    # A file of an earlier version changes nothing.
    (run.path / "out").mkdir()
    (run.path / "out" / "alerts.jsonl").write_text('{"event": "opened", "alert": 1}\n')
    code, printed = run.watch()
    assert code == 1, printed
    assert "alert at step 4: the loss began at step 3 (99.9 % sure)" in printed
    assert [(line["step"], line["word"]) for line in run.events if line["event"] == "measured"] == [
        (1, "pass"), (4, "fail")
    ]  # fmt: skip
    assert run.notified == "begun 4 \nfound 4 step 3 (99.9 % sure)\n"
    page = html.unescape((run.path / "out" / "index.html").read_text())
    assert "FAIL since step 3 (99.9 % sure); the last good one is step 2" in page
    assert "Alert, open: niah_single_2-256 lost " in page

    # The shown command runs as it stands, on the samples of the alert.
    (command,) = re.findall(r"<dt>cause</dt><dd><code>(longctx [^<]*)<", page)
    cause = shlex.split(command)[1:]
    assert cause[1:3] == [f"{run.path}/run/step-2", f"{run.path}/run/step-3"]
    code, printed = run.command(*cause)
    assert code in (0, 1), printed
    assert "that GOOD answers and BAD misses" in printed

    for step in (5, 6, 7):
        run.add_step(step)
    code, printed = run.watch()
    assert "alert, closed by step 7: niah_single_2-256 lost " in printed
    assert [line["stage"] for line in run.events if line["event"] == "notified"] == ["begun", "found"]
    assert len([line for line in run.events if line["event"] == "searched"]) == 1
    # A command for failures is not run for what is repaired.
    assert run.notified == "begun 4 \nfound 4 step 3 (99.9 % sure)\n"
