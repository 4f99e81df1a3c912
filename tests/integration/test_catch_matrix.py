"""The table of catches: harmless changes are harmless, finished rows are kept, and real checkpoints are checked."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from transformers import LlamaConfig

from benchmarks.catch_matrix import Result, main
from benchmarks.harmless_changes import FILE_CHANGES, write_changed
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from tests.helpers.real_models import LLAMA, needs_real_models, real_checkpoint
from tests.helpers.tiny_models import SIZES, save_model

RESULT = Result(
    checkpoint="a", row="=sharded", tried=("load",), caught_by="load", line="ERROR: refused", verdict=None, reason="",
    pairs=0, practice=None, cpu_seconds=1.0,
)  # fmt: skip


def test_harmless_changes_raise_no_alarm_of_the_load_check(tmp_path: Path) -> None:
    source = save_model(LlamaConfig(**SIZES, tie_word_embeddings=True), tmp_path / "source")
    for name in FILE_CHANGES:
        changed = read_checkpoint(str(write_changed(source, tmp_path / name, name)))
        assert (name, changed.warning) == (name, None)


def test_a_finished_row_is_kept_and_a_false_alarm_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "harmless-sharded.json").write_text(json.dumps(asdict(RESULT)))
    assert main([str(tmp_path), "--work", str(tmp_path), "--rows", "=sharded"]) == 1
    assert main([str(tmp_path), "--work", str(tmp_path), "--table"]) == 1
    assert "| a | `sharded` | load | - | - | 1 |" in capsys.readouterr().out


@needs_real_models
def test_three_faults_of_a_real_checkpoint_are_caught_and_two_harmless_changes_are_not(tmp_path: Path) -> None:
    checkpoint = real_checkpoint(LLAMA)
    work = ["--work", str(tmp_path), "--means", "load,invariance"]
    assert main([str(checkpoint), *work, "--rows", "isolated_chunks,stale_state,merge_base_two,=sharded,=eager"]) == 0
    caught = {path.stem: json.loads(path.read_text())["caught_by"] for path in tmp_path.glob("*.json")}
    assert caught == dict.fromkeys(("isolated_chunks", "stale_state", "merge_base_two"), "invariance") | dict.fromkeys(
        ("harmless-sharded", "harmless-eager")
    )
