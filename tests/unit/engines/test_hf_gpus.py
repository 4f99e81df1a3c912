"""Placement of one model on several simulated GPUs: refusals, and the memory limit for every GPU."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers.utils import import_utils

from longctx.fixtures.engines import EngineError, check_gpus
from longctx.fixtures.engines.hf import loading, settings

GIB = 2**30
SEVENTY: Any = SimpleNamespace(parameters=70 * 10**9, weight_bytes=140 * 10**9)
CUDA = torch.device("cuda:2")


@pytest.fixture
def gpus_of_80(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (79 * GIB, 80 * GIB))
    monkeypatch.setattr(import_utils, "is_accelerate_available", lambda: True)


@pytest.mark.usefixtures("gpus_of_80")
def test_weights_that_do_not_fit_are_refused_with_the_numbers() -> None:
    with pytest.raises(EngineError) as raised:
        loading._placement(SEVENTY, CUDA, "auto", 1)
    assert str(raised.value) == (
        "--gpus-per-worker: the weights take 130.4 GiB, and 1 GPU(s) have 79.0 GiB free; "
        "use --gpus-per-worker 2 or more, or a server on several nodes"
    )
    assert loading._placement(SEVENTY, CUDA, "auto", 2)


@pytest.mark.usefixtures("gpus_of_80")
def test_layers_go_to_the_workers_own_gpus_and_leave_memory_for_the_cache() -> None:
    placed = loading._placement(SEVENTY, CUDA, torch.bfloat16, 2)
    assert placed["device_map"] == "auto"
    assert list(placed["max_memory"]) == [2, 3]
    assert all(0.5 * 79 * GIB < size < 79 * GIB for size in placed["max_memory"].values())
    with pytest.raises(EngineError, match=r"take 260\.8 GiB"):
        loading._placement(SEVENTY, CUDA, torch.float32, 2)


@pytest.mark.usefixtures("gpus_of_80")
def test_several_gpus_need_accelerate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_utils, "is_accelerate_available", lambda: False)
    with pytest.raises(EngineError, match="need the accelerate package"):
        loading._placement(SEVENTY, CUDA, torch.bfloat16, 2)


@pytest.mark.parametrize(("device", "present"), [("auto", 4), ("cuda", 4), ("cuda:3", 1), ("cpu", 0)])
def test_missing_gpus_are_reported_before_a_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch, device: str, present: int
) -> None:
    monkeypatch.setattr(settings, "may_have_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    for gpu_count in range(1, present + 1):
        check_gpus(device, gpu_count)
    with pytest.raises(EngineError, match=rf"shows {present} GPU\(s\) for --device {device}; "):
        check_gpus(device, present + 1)


def test_a_cpu_is_one_device_for_any_number_of_gpus() -> None:
    placed = loading._placement(SEVENTY, torch.device("cpu"), torch.bfloat16, 2)
    assert placed in ({}, {"device_map": {"": torch.device("cpu")}})
