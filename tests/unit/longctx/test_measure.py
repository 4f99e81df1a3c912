"""`longctx.measure` and the callback: a model in memory gets the scores that its checkpoint gets."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments, default_data_collator

import longctx
from longctx.callback import LongContextCallback
from tests.helpers.paths import REPOSITORY
from tests.helpers.runs import calibration_checkpoint

TASK, CASE = "niah_single_2", "test_ruler[niah_single_2-512]"
SMALL: dict[str, Any] = {"suite": "ruler", "lengths": "512", "samples": 2, "task_names": [TASK]}


@pytest.fixture
def model() -> Any:
    return AutoModelForCausalLM.from_pretrained(calibration_checkpoint("512"))


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(calibration_checkpoint("512"))


def test_a_model_in_memory_is_judged_and_left_as_it_was(model: Any, tokenizer: Any, tmp_path: Path) -> None:
    model.train()
    before = [weight.clone() for weight in model.parameters()]
    report = longctx.measure(model, tokenizer, name="mine", step=7, **SMALL)
    assert (report.scores, report.passed) == ({CASE: 100}, True)
    assert (report.metrics[f"task/{TASK}/512"], len(report.samples)) == (100, 2)
    assert (report.document["model"]["name"], report.document["run"]["step"]) == ("mine", 7)
    assert model.training
    assert all(torch.equal(weight, old) for weight, old in zip(model.parameters(), before, strict=True))
    report.write(tmp_path / "report.json")
    with torch.no_grad():
        model.lm_head.weight.zero_()
    broken = longctx.measure(model, tokenizer, thresholds=str(REPOSITORY / "ci/recipes/needle.toml"), **SMALL)
    assert broken.scores == {CASE: 0}
    assert [gate["verdict"] for gate in broken.document["gates"]] == ["fail"]
    assert not broken.passed
    assert broken.document["model"]["fingerprint"] != report.document["model"]["fingerprint"]


def test_a_checkpoint_is_measured_by_its_path(tmp_path: Path) -> None:
    report = longctx.measure(calibration_checkpoint("512"), journal=str(tmp_path / "journal"), **SMALL)
    assert report.scores == {CASE: 100}
    assert (tmp_path / "journal").is_dir()


def trainer_of(model: Any, tokenizer: Any, folder: Path, **changes: Any) -> Trainer:
    """Return a trainer of four steps whose model loses everything in the second one, by its learning rate."""
    rows = [{"input_ids": [5, 6, 7, 8], "labels": [5, 6, 7, 8]}] * 4
    settings: dict[str, Any] = {
        "max_steps": 4, "per_device_train_batch_size": 1, "learning_rate": 100.0, "report_to": "none",
        "warmup_steps": 2, "use_cpu": True, "save_strategy": "no", "disable_tqdm": True, "optim": "sgd",
        "logging_steps": 2,
    }  # fmt: skip
    arguments = TrainingArguments(output_dir=str(folder), **settings | changes)
    return Trainer(
        model, arguments, train_dataset=rows, processing_class=tokenizer, data_collator=default_data_collator
    )


def loss_lines(trainer: Trainer) -> list[dict[str, float]]:
    return [entry for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.filterwarnings("error")
def test_the_callback_logs_scores_beside_an_unchanged_loss(model: Any, tokenizer: Any, tmp_path: Path) -> None:
    plain = trainer_of(AutoModelForCausalLM.from_pretrained(calibration_checkpoint("512")), tokenizer, tmp_path)
    plain.train()
    trainer = trainer_of(model, tokenizer, tmp_path)
    callback = LongContextCallback(trainer, every_steps=2, **SMALL)
    trainer.add_callback(callback)
    trainer.train()
    assert len(loss_lines(plain)) == 2
    assert loss_lines(trainer) == loss_lines(plain)
    assert sorted(callback.reports) == [2, 4]
    logged = {entry["step"]: entry[f"longctx/task/{TASK}/512"] for entry in trainer.state.log_history
              if f"longctx/task/{TASK}/512" in entry}  # fmt: skip
    assert logged == {step: report.scores[CASE] for step, report in callback.reports.items()}
    assert logged[4] < 100
    assert model.training


def test_a_measurement_that_fails_is_a_warning_and_training_goes_on(model: Any, tokenizer: Any, tmp_path: Path) -> None:
    trainer = trainer_of(model, tokenizer, tmp_path)
    thresholds = tmp_path / "thresholds.toml"
    thresholds.write_bytes((REPOSITORY / "ci/recipes/needle.toml").read_bytes())
    callback = LongContextCallback(trainer, every_steps=2, thresholds=str(thresholds), **SMALL)
    trainer.add_callback(callback)
    thresholds.unlink()
    with pytest.warns(UserWarning, match="step 2 was not measured: .*thresholds.toml"):
        trainer.train()
    assert (trainer.state.global_step, callback.reports, len(loss_lines(trainer))) == (4, {}, 2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"every_steps": 0}, "every_steps: 0; give a whole number of at least 1"),
        ({"every_steps": 0.5}, "every_steps: 0.5; give a whole number of at least 1"),
        ({"lengths": "4kb"}, "--lengths: unknown '4kb'"),
        ({"task_names": ["niah"]}, "task_names: no case of 'niah'"),
        ({"length": "4k"}, "unknown key 'length'; did you mean 'lengths'"),
        ({"step": 7}, "step: the callback gives that of the training"),
        ({"thresholds": "no.toml"}, "no.toml"),
        ({"lengths": "64"}, "cannot fit"),
        ({"report_html": "r.html"}, "report-html: has no meaning in longctx.measure"),
    ],
)
def test_the_callback_refuses_when_it_is_made_what_it_could_not_measure_later(
    changes: dict[str, Any], said: str, model: Any, tokenizer: Any, tmp_path: Path
) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        LongContextCallback(trainer_of(model, tokenizer, tmp_path), **{"every_steps": 2} | SMALL | changes)


def test_the_callback_needs_the_tokenizer_of_the_trainer(model: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="trainer: has no processing_class; give Trainer the model's tokenizer"):
        LongContextCallback(trainer_of(model, None, tmp_path), every_steps=2, **SMALL)
