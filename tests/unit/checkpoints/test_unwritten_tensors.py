"""Weights that were most likely never written are named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from longctx.fixtures.checkpoints.consistency import unwritten_tensors

WRITTEN = torch.arange(1, 20_001, dtype=torch.float32).reshape(100, 200)
ONE_DIFFERENT = torch.zeros(100, 200)
ONE_DIFFERENT[73, 45] = 1.0
# The rows of embeddings that belong to a token.
TOKENS = 150


def cut(zeros: int, *, rows: int = 100, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return weights whose last values are zero."""
    weights = torch.arange(1, rows * 200 + 1, dtype=dtype)
    weights[len(weights) - zeros :] = 0
    return weights.reshape(rows, 200)


PRUNED = cut(400)
PRUNED[20:30] = PRUNED[90] = 0


@pytest.mark.parametrize(
    ("tensors", "named"),
    [
        ({"a.weight": WRITTEN}, {}),
        ({"a.weight": torch.zeros(200, 200), "b.weight": WRITTEN}, {"a.weight": 0}),
        ({"a.weight": torch.full((3, 70_000), -1.5, dtype=torch.bfloat16)}, {"a.weight": 0}),
        # The zero points of quantized weights are alike.
        ({"a.qzeros": torch.full((3, 70_000), 7, dtype=torch.int32)}, {}),
        # Biases start at 0, and norms at 1 or, where 1 is added, at 0.
        ({"a.bias": torch.zeros(200), "norm.weight": torch.ones(200)}, {}),
        ({f"{layer}.norm.weight": torch.zeros(200) for layer in range(3)}, {}),
        # Norms before a matrix may be folded into it, and others stay.
        ({f"{layer}.{place}_norm.weight": torch.full((200,), float(place != "in"))
            for layer in range(3) for place in ("in", "q", "k")}, {}),
        ({"1.norm.weight": torch.ones(200), "2.norm.weight": torch.zeros(200)}, {"2.norm.weight": 200}),
        ({"a.weight": torch.zeros(1, 1), "b.weight": torch.zeros(0, 4)}, {}),
        # The end of a file may fall within a row, within one of several matrices, and behind many zeros.
        ({"a.weight": cut(1077, dtype=torch.bfloat16), "b.weight": WRITTEN}, {"a.weight": 1077}),
        ({"a.weight": cut(400).reshape(2, 50, 200)}, {"a.weight": 400}),
        ({"a.weight": ONE_DIFFERENT}, {}),
        ({"a.weight": cut(20)}, {}),
        # Rows of no token are zero, and those of added tokens may be.
        ({"embed.weight": cut(50 * 200, rows=200), "head.weight": cut(400, rows=160)}, {}),
        ({"embed.weight": cut(50 * 200 + 3, rows=200)}, {}),
        ({"embed.weight": cut(51 * 200, rows=200)}, {"embed.weight": 51 * 200}),
        # Padded heads of all layers, and one layer of three.
        ({f"layers.{layer}.q.weight": cut(400) for layer in range(3)}, {}),
        ({f"layers.{layer}.q.weight": cut(400 * (layer == 2)) for layer in range(3)}, {"layers.2.q.weight": 400}),
        # Pruned rows, of which the last is one.
        ({"a.weight": PRUNED}, {}),
    ],
)  # fmt: skip
def test_weights_that_were_not_written_are_named(
    tensors: dict[str, torch.Tensor], named: dict[str, int], tmp_path: Path
) -> None:
    written = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(written, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    assert unwritten_tensors(tmp_path, TOKENS) == named
