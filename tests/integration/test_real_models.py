"""Pretrained checkpoints through both suites.

LONGCTX_REAL_MODELS names a directory with an instruction-tuned Llama and a Gemma 3.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.helpers.runs import run_pytest

REAL_MODELS = os.environ.get("LONGCTX_REAL_MODELS")
pytestmark = pytest.mark.skipif(REAL_MODELS is None, reason="LONGCTX_REAL_MODELS names no directory of checkpoints")
LLAMA, GEMMA = "llama", "gemma3_text"
RULER_TASKS = 13
# One task of each category that needs no judge and no long documents.
HELMET_TASKS = ("ruler_niah_multivalue", "nq", "asqa", "msmarco", "trec_coarse")


def real_checkpoint(model_type: str) -> Path:
    """Return the first checkpoint of this type by name; the calling test fails if there is none."""
    configs = sorted(Path(str(REAL_MODELS)).glob("*/config.json"))
    found = [path.parent for path in configs if json.loads(path.read_text())["model_type"] == model_type]
    assert found, f"{REAL_MODELS} has no checkpoint of model_type {model_type!r}"
    return found[0]


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
