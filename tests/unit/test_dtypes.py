"""The table of number formats agrees with torch and with safetensors."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from longctx.fixtures.checkpoints.safetensors import read_header
from longctx.fixtures.dtypes import BITS_PER_BYTE, BY_SAFETENSORS, DTYPES, SELECTABLE, DType, element_bytes, full_name

COMPUTED = [dtype for dtype in DTYPES if dtype.is_computed]


@pytest.mark.parametrize("dtype", COMPUTED, ids=lambda dtype: dtype.name)
def test_a_computed_format_has_the_name_and_size_that_torch_gives_it(dtype: DType) -> None:
    assert getattr(torch, dtype.name).itemsize * BITS_PER_BYTE == dtype.bits
    assert element_bytes(dtype.name) == dtype.bits // BITS_PER_BYTE


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.float8_e4m3fn])
def test_a_saved_tensor_is_read_under_torchs_name(dtype: torch.dtype, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(save({"weight": torch.zeros(3, dtype=dtype)}))
    (tensor,) = read_header(path).values()
    named = BY_SAFETENSORS[tensor.dtype]
    assert f"torch.{named.name}" == str(dtype)
    assert tensor.end - tensor.start == 3 * named.bits // BITS_PER_BYTE


def test_short_names_stand_for_the_full_ones() -> None:
    assert set(SELECTABLE) == {"bfloat16", "float16", "float32", "bf16", "fp16", "fp32"}
    assert (full_name("bf16"), full_name("float32"), full_name("auto")) == ("bfloat16", "float32", "auto")
    assert element_bytes("bf16") == 2


@pytest.mark.parametrize("name", ["auto", "float8_e4m3fn", "i8", "unknown"])
def test_a_format_that_no_model_computes_in_has_no_size_in_memory(name: str) -> None:
    assert element_bytes(name) is None
