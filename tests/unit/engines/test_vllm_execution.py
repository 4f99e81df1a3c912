"""What is known of vLLM before it is imported: where it is missing, and what its stored answers are keyed by."""

from pathlib import Path

import pytest

from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.engines import EngineError, execution_settings
from longctx.fixtures.engines.vllm import execution
from longctx.fixtures.engines.vllm.execution import VllmSettings
from tests.helpers.checkpoints import sound_checkpoint


@pytest.mark.parametrize(
    ("installed", "settings", "problem"),
    [
        (False, VllmSettings(device="cpu"), "--engine: vllm is not installed here; .* --engine hf"),
        (True, VllmSettings(device="cpu", batch_size=-1), "--batch-size: -1 is negative"),
    ],
)
def test_settings_that_cannot_run_are_refused_before_a_model_is_loaded(
    installed: bool, settings: VllmSettings, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "is_installed", lambda: installed)
    checkpoint = read_checkpoint(str(sound_checkpoint(tmp_path / "ckpt")))
    with pytest.raises(EngineError, match=problem):
        execution_settings(checkpoint, settings)


def test_answers_are_keyed_by_what_decides_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "is_installed", lambda: True)
    checkpoint = read_checkpoint(str(sound_checkpoint(tmp_path / "ckpt")))
    plain = execution_settings(checkpoint, VllmSettings(device="cpu"))
    assert (plain["engine"], plain["quantization"], "config" in plain) == ("vllm", "none", False)
    # The most tokens and the share of memory decide nothing.
    assert execution_settings(checkpoint, VllmSettings(device="cpu", context_tokens=9, memory_share=0.4)) == plain
    changed = execution_settings(checkpoint, VllmSettings(device="cpu", overrides=("rope_theta=1e6",)))
    assert changed == plain | {"config": "rope_theta=1e6"}
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    assert execution_settings(checkpoint, VllmSettings(device="cpu"))["batch_invariant"] == "True"
