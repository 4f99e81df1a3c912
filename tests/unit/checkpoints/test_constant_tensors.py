"""Weights that were most likely never written are named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from longctx.fixtures.checkpoints.consistency import constant_tensors

WRITTEN = torch.arange(40_000, dtype=torch.float32).reshape(200, 200)
ONE_DIFFERENT = torch.zeros(200, 200)
ONE_DIFFERENT[123, 45] = 1.0


@pytest.mark.parametrize(
    ("tensors", "named"),
    [
        ({"a.weight": WRITTEN}, []),
        ({"a.weight": torch.zeros(200, 200), "b.weight": WRITTEN}, ["a.weight"]),
        ({"a.weight": torch.full((3, 70_000), -1.5, dtype=torch.bfloat16)}, ["a.weight"]),
        ({"a.weight": ONE_DIFFERENT}, []),
        # Biases start at 0, and norms at 1 or, where 1 is added, at 0.
        ({"a.bias": torch.zeros(200), "norm.weight": torch.ones(200)}, []),
        ({"1.norm.weight": torch.zeros(200), "2.norm.weight": torch.zeros(200)}, []),
        ({"1.norm.weight": torch.ones(200), "2.norm.weight": torch.zeros(200)}, ["2.norm.weight"]),
        ({"a.weight": torch.zeros(1, 1), "b.weight": torch.zeros(0, 4)}, []),
    ],
)
def test_weights_of_one_value_are_named(tensors: dict[str, torch.Tensor], named: list[str], tmp_path: Path) -> None:
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    assert constant_tensors(tmp_path) == named
