"""Pretrained checkpoints through the commands of a user: both suites, a search and a watch over a fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.bisect_faults import link_chain
from benchmarks.bisect_faults import main as bisect_faults
from fixtures.checkpoints.checkpoint import read_checkpoint
from tests.helpers.paths import REPOSITORY
from tests.helpers.real_models import GEMMA, LLAMA, needs_real_models, real_checkpoint
from tests.helpers.runs import run_pytest

pytestmark = needs_real_models
FAULT = "rope_interleaved:0.25"
SUITES = {"ruler": 13, "helmet": 21}


@pytest.mark.parametrize("model_type", [LLAMA, GEMMA])
@pytest.mark.parametrize("suite", SUITES)
def test_every_task_of_a_suite_is_measured(suite: str, model_type: str, tmp_path: Path) -> None:
    """Check the cases that need no judge; two tasks of HELMET's four with one have a score without it."""
    gates = tmp_path / "gates.toml"
    gates.write_text("[regression]\ndrop = 2\n")
    ended = run_pytest(
        tmp_path, f"--model={real_checkpoint(model_type)}", f"--suite={suite}", "--lengths=2k", "--samples=1", "--full",
        f"--thresholds={gates}", f"--report-json={tmp_path}/report.json",
    )  # fmt: skip
    assert ended.exit_code == 0, ended.output + ended.errors
    cases = ended.report["cases"]
    assert len(cases) == SUITES[suite]
    assert not any(case["error"] for case in cases)
    assert all(0 <= case["score"] <= 100 for case in cases if case["score"] is not None)


def test_a_search_names_the_step_from_which_a_fault_is_in_the_weights(tmp_path: Path) -> None:
    few = ["--checkpoints", "4", "--samples", "40"]
    assert bisect_faults([str(real_checkpoint(LLAMA)), "--work", str(tmp_path), "--faults", FAULT, *few]) == 0


def test_a_watch_fails_the_steps_with_a_fault_and_no_other(tmp_path: Path) -> None:
    run = link_chain(read_checkpoint(str(real_checkpoint(LLAMA))), tmp_path, FAULT, edge=3, steps=3)
    command = [
        sys.executable, "-m", "ci.watch", str(run), "--once", "--out", str(tmp_path / "out"), "--suite", "ruler",
        "-k", "niah_multikey_1", "--lengths", "512", "--samples", "40", "--batch-size", "32",
        "--journal", str(tmp_path / "journal"),
    ]  # fmt: skip
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ended = subprocess.run(command, cwd=REPOSITORY, env=inherited, capture_output=True, text=True, check=False)
    history = [json.loads(line) for line in (tmp_path / "out" / "history.jsonl").read_text().splitlines()]
    verdicts = {line["step"]: line["verdict"] for line in history if "verdict" in line}
    assert verdicts == {1: "pass", 2: "pass", 3: "fail"}, ended.stdout + ended.stderr
