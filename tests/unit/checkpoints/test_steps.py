"""The step of a checkpoint is read right from what trainers write, or it is not read at all."""

import json
import os
from pathlib import Path

import pytest

from longctx.fixtures.checkpoints.steps import RECORDS, named_steps, recorded_step, step_of

READ = {
    # transformers, TRL, axolotl, LLaMA-Factory
    "checkpoint-500": 500, "checkpoint-10": 10, "checkpoint-1000-merged": 1000, "Checkpoint_7": 7,
    "tmp-checkpoint-9": 9,
    # Lightning
    "epoch=0-step=200": 200, "epoch=0-step=200-val_loss=2.11": 200, "epoch=3-step=1200-v1": 1200,
    "step=200-epoch=1-loss=0.5": 200, "epoch=0-step=200.ckpt": 200, "last-epoch=1-step=5": 5,
    # NeMo
    "megatron_gpt--val_loss=2.11-step=99-consumed_samples=25344.0": 99,
    "model--reduced_train_loss=0.0000-epoch=0-step=99-consumed_samples=25344.0-last": 99,
    "llama3--val_loss=1.92-epoch=2-step=3000-consumed_samples=96000.0": 3000,
    # Megatron, torchtitan, torchtune, DeepSpeed, OLMo, Pythia, Levanter, MaxText, LitGPT, Composer, fairseq
    "iter_0001000": 1000, "iter_0000000": 0, "step-1000": 1000, "step-0": 0, "step_100": 100, "global_step500": 500,
    "step1000-unsharded": 1000, "stage1-step140000-tokens294B": 140_000, "step143000": 143_000, "step-10000": 10_000,
    "1000": 1000, "0001000": 1000, "step-00001000": 1000, "ep0-ba2000-rank0": 2000, "checkpoint_500": 500,
    # verl, OpenRLHF, AReaL, prime-rl, slime
    "global_step_100": 100, "global_step100_hf": 100, "epoch0epochstep9globalstep10": 10, "weights-step_40": 40,
    # names of one's own
    "step-1k": 1000, "step-900": 900, "step_10B": 10**10, "step-2M": 2_000_000, "step-200-ckpt-7b": 200,
    "llama-3.1-8b-step-1000": 1000, "step-1000-7b": 1000, "step-3-of-10": 3, "max_steps_5000-step_300": 300,
    "step #12": 12, "step 12": 12, "step: 12": 12, "Step-12": 12, "ckpt.300": 300, "ckpt-10k": 10_000,
    "run3-iteration-250": 250, "train_step_90": 90, "lr1e-4-step-80": 80, "step-70-lr1e-4": 70, "updates_33": 33,
    "step_100-bs_32": 100, "seed42_step60": 60, "v2.1-step-11": 11, "ckpt300": 300, "iters-5": 5,
    "log_steps_10_checkpoint-500": 500, "grad_acc_steps_8_checkpoint-500": 500, "checkpoint-500 (copy)": 500,
    "num_inference_steps_50-step_300": 300, "sub_step-12_step-1200": 1200, "optimizer_step_500": 500,
    "1200k": 1_200_000, "ep1-ba200-hf": 200, "TinyLlama-1.1B-intermediate-step-955k-token-2T": 955_000,
    "lc-32k-to-64k-step-12000": 12_000, "stage2-ingredient1-step1000-tokens3B": 1000, "rollout_steps_8_step_100": 100,
    "steps_per_epoch_100_step_500": 500, "train_iter_700": 700, "global_steps_90": 90, "step-500-128k": 500,
    "2026-11-28_12-30-05_step-1200": 1200, "iter_0005000-tp8-pp4": 5000, "step_1200_of_5000": 1200,
}  # fmt: skip
NOT_READ = (
    "epoch-3-of-10", "epoch_1", "val_loss=2.11", "consumed_samples=25344.0", "tokens-10B", "stage1-tokens4B",
    "llama-3.1-8b", "pythia-70m", "run3-1500", "best-7", "footstep_9", "stepping-2", "v2", "final", "", "9f3a1c",
    "step-1.5k", "step=99.0", "step-1,000", "step=-1", "2026-03-01", "checkpoint-2026-03-01", "checkpoint_3_1000",
    "ckpt-7b", "checkpoint-70m", "step_1e5", "step-1000-20260301", "max_steps_5000", "warmup-steps-100",
    "micro_step_4",
    "cooldown_steps_500", "max_train_steps_1000", "total_training_steps=5000", "horizon_steps_16", "min_step_10",
    "resume-from-step-3000", "start_step_1000", "9f3ba7", "0ba12", "step-5\u0660", "llama3--val_loss=1.2-epoch=0-last",
    "checkpoint_2025-01-01_12-00-00.123456", "1000.orbax-checkpoint-tmp-1764", "hf-500", "step_5e3", "step-1k5",
    "step-" + "9" * 19, "step-\u0661\u0662", "num_steps=10", "loss-0.5-1000", "1000steps", "lr-1e-5",
    "gemma-3-270m-it-500", "20261128", "checkpoint-20261128", "ckpt_1764350000", "steps-1200-to-1400",
    "step-1200..1400", "save_every_steps_500", "tinystories-ckpt-8m", "N-Step-Checkpoint_0_5000", "step=1_000_000",
)  # fmt: skip
SEVERAL = {
    "epoch=0-step=200-step=300": [200, 300], "step=200-iter=100": [100, 200], "checkpoint-5-ckpt-6": [5, 6],
    "global_step_10-step_20": [10, 20], "checkpoint-3-step-1200": [3, 1200],
}  # fmt: skip


@pytest.mark.parametrize(("name", "step"), READ.items())
def test_the_step_is_the_number_behind_a_word_for_steps(name: str, step: int) -> None:
    assert named_steps(name, is_step=True) == [step]


@pytest.mark.parametrize("name", NOT_READ)
def test_other_numbers_are_no_step(name: str) -> None:
    assert named_steps(name, is_step=True) == []


@pytest.mark.parametrize(("name", "steps"), SEVERAL.items())
def test_several_numbers_that_may_be_the_step_are_all_returned(name: str, steps: list[int]) -> None:
    assert named_steps(name, is_step=True) == steps
    assert step_of(f"/runs/step-7/{name}") is None


@pytest.mark.parametrize(
    ("path", "step"),
    [
        ("/models/run/step_1000", 1000), ("global_step2000/actor/huggingface", 2000), ("a/step_5/b/step_70/model", 70),
        ("steps_3.json", 3), ("llama-3.1-8b", None), ("/models/1000", None), ("v2/model", None), ("", None),
    ],
)  # fmt: skip
def test_the_step_of_a_path_is_in_its_last_part_that_names_one(path: str, step: int | None) -> None:
    assert step_of(path) == step


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("trainer_state.json", {"global_step": 77, "log_history": [{"loss": float("nan")}]}),
        ("metadata.json", {"step": 77, "timestamp": "2026"}),
        ("metadata.json", {"iteration": 77}),
        ("checkpoint_metadata.json", {"metas": {"last_train_step": 77}}),
    ],
)
def test_what_the_trainer_recorded_beats_the_name(name: str, content: object, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-5"
    folder.mkdir()
    assert step_of(str(folder)) == 5
    (folder / name).write_text(json.dumps(content))
    assert step_of(str(folder)) == 77


@pytest.mark.parametrize(
    "content",
    [b"", b"[" * 99_999, b"[]", b'{"global_step": "7"}', b'{"global_step": -1}', b'{"global_step": 1.5}',
     b'{"global_step": true}', b'{"global_step": 1' + b"0" * 30 + b"}", b'{"metas": 5}', b"\xff", b"\x00"],
)  # fmt: skip
@pytest.mark.parametrize("name", RECORDS)
def test_a_damaged_record_leaves_the_name(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / "step-5").mkdir()
    (tmp_path / "step-5" / name).write_bytes(content)
    assert recorded_step(tmp_path / "step-5") is None
    os.truncate(tmp_path / "step-5" / name, 2**40)
    assert step_of(str(tmp_path / "step-5")) == 5
