"""A checkpoint that is replaced while a run uses it is never scored under its name."""

import json
from pathlib import Path

from longctx.fixtures.calibration import build, parse_spec
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from tests.helpers.runs import run_pytest

ONE_CASE = ("--lengths=512", "--samples=5", "--full", "--batch-size=1", "-k", "niah_single_2")
# Replaces the checkpoint when this process appends its fourth answer, as the other one has answered before it.
SWAP = """
import os
from pathlib import Path

from longctx.plugins.journal import Journal

append = Journal.append
appended = []

def swap_first(self, entry):
    appended.append(entry)
    if len(appended) == 4:
        checkpoint = Path({checkpoint!r})
        checkpoint.rename(checkpoint.with_name("moved"))
        Path({other!r}).rename(checkpoint)
    append(self, entry)

Journal.append = swap_first
"""


def test_a_checkpoint_replaced_between_two_answers_is_an_error_and_the_true_answers_stay(tmp_path: Path) -> None:
    checkpoint, other = build(parse_spec("400"), tmp_path / "step-1"), build(parse_spec("200"), tmp_path / "other")
    fingerprint = read_checkpoint(str(checkpoint)).fingerprint
    (tmp_path / "run_plugin.py").write_text(SWAP.format(checkpoint=str(checkpoint), other=str(other)))
    report = f"--report-json={tmp_path}/report.json"
    run = run_pytest(tmp_path, "-p", "run_plugin", report, f"--model={checkpoint}", *ONE_CASE)
    assert run.exit_code == 1
    assert f"--model: {checkpoint} was replaced during the run (" in run.cases["niah_single_2-512"]["error"]
    (subject,) = (tmp_path / "journal").glob("*/subject.json")
    assert json.loads(subject.read_text())["fingerprint"] == fingerprint
    lines = [line for path in subject.parent.glob("*.jsonl") for line in path.read_text().splitlines()]
    assert len([line for line in lines if "element" in json.loads(line)]) == 4
