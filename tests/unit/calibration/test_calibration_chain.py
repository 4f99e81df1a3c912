"""Checkpoints of a simulated training run: blind to a known share of keys, with weights that drift at every step."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from longctx.fixtures.calibration.recipe import LAST_STEP
from longctx.fixtures.calibration.weights import drifted
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.records import Sample
from tests.helpers.calibrations import Calibrated, command, content, ready
from tests.helpers.runs import calibration_checkpoint

BLIND = "full-blind=0.3"
LATE = "full-blind=0.3-step=16000"
TASK_NAMES = ("niah_single_1", "niah_single_2", "niah_multikey_1", "niah_multikey_2")


def samples_of(model: Calibrated, per_task: int) -> list[Sample]:
    return [model.sample(task, 512, index) for task in TASK_NAMES for index in range(per_task)]


def blind_quantile(model: Calibrated, sample: Sample) -> float:
    """Return the number of the key's last token; a checkpoint that is blind to a larger share overlooks the key."""
    return model.roles.blind_quantiles[model.key_token(sample)]


def test_a_blind_checkpoint_misses_its_share_of_keys_and_no_others() -> None:
    model = ready(BLIND)
    samples = samples_of(model, 6)
    predicted = [blind_quantile(model, sample) >= 0.3 for sample in samples]
    assert [model.solves(sample) for sample in samples] == predicted
    assert min(predicted.count(True), predicted.count(False)) >= 5


def test_the_answer_for_an_overlooked_key_is_empty() -> None:
    """It ends at once, as for an unknown key, and does not give the value of another key."""
    model = ready(BLIND)
    missed = [sample for sample in samples_of(model, 6) if blind_quantile(model, sample) < 0.3]
    assert [model.answers(sample.prompt).strip() for sample in missed[:4]] == [""] * 4


def test_the_last_step_gives_the_same_answers_as_the_first() -> None:
    first, last = ready(BLIND), ready(LATE)
    samples = samples_of(first, 3)
    assert [last.answers(sample.prompt) for sample in samples] == [first.answers(sample.prompt) for sample in samples]


def test_every_step_has_a_fingerprint_of_its_own() -> None:
    assert len({read_checkpoint(str(calibration_checkpoint(spec))).fingerprint for spec in ("full", BLIND, LATE)}) == 3
    first, second = ({"w": np.ones(900, np.float32)} for _ in range(2))
    assert (drifted(first, 1 / LAST_STEP)["w"] != drifted(second, 2 / LAST_STEP)["w"]).mean() > 0.9


def test_the_command_writes_a_step_of_a_run(tmp_path: Path) -> None:
    written = command(str(tmp_path / "one"), "--blind", "0.3", "--step", "16000")
    assert (written.returncode, written.stderr) == (0, "")
    assert content(tmp_path / "one") == content(calibration_checkpoint(LATE))
