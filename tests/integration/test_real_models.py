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
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from tests.helpers.paths import REPOSITORY
from tests.helpers.real_models import GEMMA, LLAMA, needs_real_models, real_checkpoint
from tests.helpers.runs import run_pytest

pytestmark = needs_real_models
FAULT = "rope_interleaved:0.25"
RULER_TASKS = 13
# One task of each category that needs no judge and no long documents.
HELMET_TASKS = ("ruler_niah_multivalue", "nq", "asqa", "msmarco", "trec_coarse")


@pytest.mark.parametrize("model_type", [LLAMA, GEMMA])
@pytest.mark.parametrize("suite", ["ruler", "helmet"])
def test_the_tasks_of_a_suite_are_measured(suite: str, model_type: str, tmp_path: Path) -> None:
    gates = tmp_path / "gates.toml"
    gates.write_text("[regression]\ndrop = 2\n")
    # A cited passage and its question do not fit a shorter prompt.
    selection = ["--lengths=1k"] if suite == "ruler" else ["--lengths=2k", "-k", " or ".join(HELMET_TASKS)]
    ended = run_pytest(
        tmp_path, f"--model={real_checkpoint(model_type)}", f"--suite={suite}", "--samples=1", "--full",
        f"--thresholds={gates}", f"--report-json={tmp_path}/report.json", *selection,
    )  # fmt: skip
    assert ended.exit_code == 0, ended.output + ended.errors
    cases = ended.report["cases"]
    assert len(cases) == (RULER_TASKS if suite == "ruler" else len(HELMET_TASKS))
    assert [case["error"] for case in cases] == [None] * len(cases)
    scores = [case["score"] for case in cases]
    assert all(0 <= score <= 100 for score in scores)
    # Both models solve some; a broken prompt or a wrong template would score nothing.
    assert max(scores) > 0


def test_a_search_names_the_step_from_which_a_fault_is_in_the_weights(tmp_path: Path) -> None:
    few = ["--checkpoints", "4", "--samples", "40"]
    assert bisect_faults([str(real_checkpoint(LLAMA)), "--work", str(tmp_path), "--faults", FAULT, *few]) == 0


def test_a_watch_fails_the_steps_with_a_fault_and_no_other(tmp_path: Path) -> None:
    run = link_chain(read_checkpoint(str(real_checkpoint(LLAMA))), tmp_path, FAULT, edge=3, steps=3)
    command = [
        sys.executable, "-m", "longctx", "watch", str(run), "--once", "--out", str(tmp_path / "out"),
        "--suite", "ruler",
        "-k", "niah_multikey_1", "--lengths", "512", "--samples", "40", "--batch-size", "32",
        "--journal", str(tmp_path / "journal"),
    ]  # fmt: skip
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ended = subprocess.run(command, cwd=REPOSITORY, env=inherited, capture_output=True, text=True, check=False)
    history = [json.loads(line) for line in (tmp_path / "out" / "history.jsonl").read_text().splitlines()]
    verdicts = {line["step"]: line["word"] for line in history if line["event"] == "measured"}
    assert verdicts == {1: "pass", 2: "pass", 3: "fail"}, ended.stdout + ended.stderr
