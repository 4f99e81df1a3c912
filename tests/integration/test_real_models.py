"""Pretrained checkpoints through the commands of a user: both suites, a search and a watch over a fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.faults.checkpoint_faults import CHECKPOINT_FAULTS, CheckpointContent, write_faulty
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from tests.helpers.paths import REPOSITORY
from tests.helpers.real_models import GEMMA, LLAMA, needs_real_models, real_checkpoint
from tests.helpers.runs import run_pytest

pytestmark = needs_real_models
FAULT, STRENGTH = CHECKPOINT_FAULTS["rope_interleaved"], 0.25
# The standard deviation of the noise on the first layer, relative to that of each of its matrices.
NOISE = 1e-3
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


def write_steps(out: Path, *, edge: int, steps: int) -> Path:
    """Write checkpoints that differ by small noise, with a fault from step `edge` on."""
    sound = read_checkpoint(str(real_checkpoint(LLAMA)))
    for step in range(1, steps + 1):

        def change(content: CheckpointContent, strength: float, step: int = step) -> None:
            random = torch.Generator().manual_seed(step)
            for name, stored in content.tensors.items():
                if ".layers.0." in name and stored.dim() == 2:
                    weights = stored.float()
                    noise = torch.randn(weights.shape, generator=random) * weights.std()
                    content.tensors[name] = (weights + NOISE * noise).to(stored.dtype)
            if step >= edge:
                FAULT.change(content, strength)

        write_faulty(sound, out / f"step-{step}", replace(FAULT, change=change, needs_weights=True), STRENGTH)
    return out


def run_longctx(*words: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    samples: Sequence[str] = ("--suite", "ruler", "--lengths", "512", "--samples", "40", "--batch-size", "32")
    return subprocess.run(
        [sys.executable, "-m", "longctx", *words, *samples],
        cwd=REPOSITORY, env=inherited, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_search_names_the_step_from_which_a_fault_is_in_the_weights(tmp_path: Path) -> None:
    run = write_steps(tmp_path / "run", edge=3, steps=4)
    ended = run_longctx(
        "bisect", "--good", f"{run}/step-1", "--bad", f"{run}/step-4", "--checkpoints", f"{run}/step-*",
        "--case", "test_ruler[niah_multikey_1-512]", "--out", f"{tmp_path}/out", "--journal", f"{tmp_path}/journal",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert json.loads((tmp_path / "out" / "bisect.json").read_text())["first_bad"] == 3


def test_a_watch_fails_the_steps_with_a_fault_and_no_other(tmp_path: Path) -> None:
    run = write_steps(tmp_path / "run", edge=3, steps=3)
    ended = run_longctx(
        "watch", str(run), "--once", "--out", f"{tmp_path}/out", "-k", "niah_multikey_1",
        "--journal", f"{tmp_path}/journal",
    )  # fmt: skip
    history = [json.loads(line) for line in (tmp_path / "out" / "history.jsonl").read_text().splitlines()]
    verdicts = {line["step"]: line["word"] for line in history if line["event"] == "measured"}
    assert verdicts == {1: "pass", 2: "pass", 3: "fail"}, ended.stdout + ended.stderr
