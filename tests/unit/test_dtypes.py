"""The table of number formats agrees with torch and with safetensors."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from longctx.fixtures.checkpoints.safetensors import read_header
from longctx.fixtures.dtypes import BY_SAFETENSORS, ELEMENT_BYTES, SELECTABLE, element_bytes, full_name


@pytest.mark.parametrize("name", ELEMENT_BYTES)
def test_a_computed_format_has_the_name_and_size_that_torch_gives_it(name: str) -> None:
    assert getattr(torch, name).itemsize == element_bytes(name)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.float8_e4m3fn])
def test_a_saved_tensor_is_read_under_torchs_name(dtype: torch.dtype, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(save({"weight": torch.zeros(3, dtype=dtype)}))
    (tensor,) = read_header(path).values()
    assert f"torch.{BY_SAFETENSORS[tensor.dtype]}" == str(dtype)
    assert tensor.size == 3 * dtype.itemsize


def test_short_names_stand_for_the_full_ones() -> None:
    assert set(SELECTABLE) == {"bfloat16", "float16", "float32", "bf16", "fp16", "fp32"}
    assert (full_name("bf16"), full_name("float32"), full_name("auto")) == ("bfloat16", "float32", "auto")
    assert element_bytes("bf16") == 2


@pytest.mark.parametrize("name", ["auto", "float8_e4m3fn", "i8", "unknown"])
def test_a_format_that_no_model_computes_in_has_no_size_in_memory(name: str) -> None:
    assert element_bytes(name) is None
