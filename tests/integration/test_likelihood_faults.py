"""Faults of pretrained checkpoints that likelihood sees in another light than answers do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.faults.checkpoint_faults import CheckpointContent, CheckpointFault, write_faulty
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from tests.helpers.paths import REPOSITORY
from tests.helpers.real_models import GEMMA, LLAMA, needs_real_models, real_checkpoint
from tests.helpers.runs import run_pytest

pytestmark = needs_real_models
PLUGIN = ("-p", "benchmarks.faults.plugin", "--inject-fault")
LOSS = """
[regression]
drop = 2
"""


def report_of(folder: Path, model: Path, length: str, *options: str) -> Mapping[str, Any]:
    """Return the report of a full run on eight samples with keys in each other's place."""
    folder.mkdir()
    thresholds = folder / "gates.toml"
    thresholds.write_text(LOSS, encoding="utf-8")
    ended = run_pytest(
        folder, f"--model={model}", f"--lengths={length}", "-k", "niah_multikey_1", "--samples=8", "--full",
        "--batch-size=8", f"--thresholds={thresholds}", f"--report-json={folder}/report.json", *options,
    )  # fmt: skip
    assert ended.exit_code in (0, 1), ended.output + ended.errors
    return ended.report


def measured(report: Mapping[str, Any]) -> Mapping[str, Any]:
    (panel,) = report["likelihood"]["panels"]
    return dict(panel)


def injected(model: Path, out: Path, fault: str) -> Path:
    command = [sys.executable, "-m", "benchmarks.faults", "inject", str(model), str(out), "--fault", fault]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    return out


def scale_last_norm(content: CheckpointContent, strength: float) -> None:
    (name,) = (name for name in content.tensors if name.endswith("model.norm.weight"))
    # In bfloat16 every weight would be rounded on its own, and answers would change.
    content.tensors[name] = (1 - strength) * content.tensors[name].float()


SCALED_NORM = CheckpointFault(
    name="scaled_norm", summary="", threads=(), scale="", usual=0.1, change=scale_last_norm, needs_weights=True
)  # fmt: skip


def test_a_scaled_norm_changes_every_probability_and_no_answer(tmp_path: Path) -> None:
    model = real_checkpoint(LLAMA)
    scaled = write_faulty(read_checkpoint(str(model)), tmp_path / "scaled", SCALED_NORM, 0.1)
    sound = report_of(tmp_path / "sound", model, "512", "--signal=both", "--dtype=float32")
    report = report_of(
        tmp_path / "run", scaled, "512", "--signal=both", "--dtype=float32",
        f"--baseline={tmp_path}/sound/report.json",
    )  # fmt: skip
    change = measured(report)["change"]
    assert change["nll"]["mean"] > 0.01
    assert measured(report)["greedy"] == measured(sound)["greedy"]
    assert [case["score"] for case in report["cases"]] == [case["score"] for case in sound["cases"]]
    assert [gate["verdict"] for gate in report["gates"] if gate["kind"] == "regression"] == ["pass"]


def test_likelihood_sees_no_fault_of_stopping_and_answers_do(tmp_path: Path) -> None:
    model = real_checkpoint(LLAMA)
    sound = report_of(tmp_path / "sound", model, "512", "--signal=both")
    report = report_of(
        tmp_path / "run", model, "512", "--signal=both", f"--baseline={tmp_path}/sound/report.json",
        *PLUGIN, "short_answers:0.97",
    )  # fmt: skip
    assert measured(report)["change"]["nll"]["mean"] == 0
    assert sound["cases"][0]["score"] > 0 == report["cases"][0]["score"]
    assert [gate["verdict"] for gate in report["gates"] if gate["kind"] == "regression"] == ["fail"]


def test_damage_to_short_prompts_is_a_finding_of_its_own(tmp_path: Path) -> None:
    """A linear factor on the global layers damages the short prompts too, which keeps the recovery up."""
    model = real_checkpoint(GEMMA)
    report_of(tmp_path / "sound", model, "1k", "--signal=likelihood")
    broken = injected(model, tmp_path / "broken", "linear_factor")
    report = report_of(
        tmp_path / "run", broken, "1k", "--signal=likelihood", f"--baseline={tmp_path}/sound/report.json"
    )
    panel = measured(report)
    assert panel["change"]["evidence"]["mean"] > 0.05
    assert panel["recovery"]["mean"] > 80
    assert any(finding.startswith("short contexts have suffered") for finding in panel["findings"])


def test_a_window_that_is_off_by_one_moves_likelihood_by_less_than_a_hundredth_of_a_nat(tmp_path: Path) -> None:
    """`--invariance` compares logits, and sees it."""
    model = real_checkpoint(GEMMA)
    report_of(tmp_path / "sound", model, "1k", "--signal=likelihood")
    report = report_of(
        tmp_path / "run", model, "1k", "--signal=likelihood", f"--baseline={tmp_path}/sound/report.json",
        *PLUGIN, "window_off_by_one",
    )  # fmt: skip
    change = measured(report)["change"]["nll"]["mean"]
    assert 0 < abs(change) < 0.01
