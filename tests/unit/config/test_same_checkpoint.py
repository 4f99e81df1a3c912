"""A checkpoint is its own baseline only if the weights and all settings that decide its answers are equal."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longctx.fixtures.engines import execution_settings
from longctx.plugins.config.run import Run, is_same_checkpoint
from longctx.plugins.config.run_facts import Baseline
from tests.helpers.runs import calibration_checkpoint
from tests.helpers.workers import run_of


@pytest.fixture
def compared(tmp_path: Path) -> Run:
    """A run whose model is its own baseline."""
    run = run_of(calibration_checkpoint("512"), journal=str(tmp_path))
    baseline = Baseline(name="itself", fingerprint=run.checkpoint.fingerprint, journal=str(tmp_path))
    return replace(run, baseline=baseline)


def executions(run: Run, **changed: int | str) -> dict[str, dict[str, str]]:
    """Return the settings of both roles; `changed` are those in which the baseline differs."""
    settings: Any = run.engine_settings("model")
    return {
        "model": execution_settings(run.checkpoint, settings),
        "baseline": execution_settings(run.checkpoint, replace(settings, **changed)),
    }


@pytest.mark.parametrize("changed", [{"batch_size": 8}, {"dtype": "bfloat16"}, {"prefill_chunk": "whole"}])
def test_another_setting_that_may_change_answers_is_no_repetition(changed: dict[str, int | str], compared: Run) -> None:
    assert is_same_checkpoint(compared, executions(compared))
    assert not is_same_checkpoint(compared, executions(compared, **changed))


def test_other_weights_a_missing_baseline_and_an_unmeasured_run_are_no_repetition(compared: Run) -> None:
    known = executions(compared)
    assert compared.baseline is not None
    other = replace(compared, baseline=replace(compared.baseline, fingerprint="0" * 32))
    assert not is_same_checkpoint(other, known)
    assert not is_same_checkpoint(replace(compared, baseline=None), known)
    assert not is_same_checkpoint(compared, {})
    assert not is_same_checkpoint(compared, {"model": known["model"]})


def test_a_server_is_no_repetition_of_itself(compared: Run) -> None:
    served = {"engine": "openai", "url": "http://localhost:8000/v1"}
    assert not is_same_checkpoint(compared, {"model": served, "baseline": served})
