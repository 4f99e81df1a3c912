"""The session on a GPU, with a tiny model on the CPU."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from transformers import LlamaConfig

from benchmarks import gpu_session


def test_flops_count_weights_and_causal_attention() -> None:
    config = LlamaConfig(**gpu_session.TOY, num_hidden_layers=2)  # type: ignore[arg-type]  # all are int
    model = gpu_session.build_model(config, torch.device("meta"))
    layer = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128 + 2 * 64
    assert gpu_session.prefill_flops(model, 100) == 2 * (2 * layer + 64) * 100 + 2 * 100**2 * 64 * 2


def test_a_part_that_fails_or_comes_too_late_leaves_its_reason() -> None:
    def fail() -> list[gpu_session.Row]:
        raise RuntimeError("CUDA out of memory\nmore")

    (failed,) = gpu_session.run_part("decode", fail, float("inf"))
    assert failed.problem == "failed: CUDA out of memory"
    (late,) = gpu_session.run_part("decode", fail, 0.0)
    assert late.problem == "not measured: no time left"
    # Rows that are there stay, after each of them and where the time ends between two.
    parts = list(gpu_session.run_part("decode", lambda: iter([{"a": 1}, {"a": 2}]), time.monotonic() + 0.05))
    assert [len(part.rows) for part in parts] == [1, 2, 2]

    def slow() -> Iterator[gpu_session.Row]:
        yield {"a": 1}
        time.sleep(0.1)
        yield {"a": 2}
        yield {"a": 3}

    *_, last = gpu_session.run_part("decode", slow, time.monotonic() + 0.05)
    assert (len(last.rows), last.problem) == (2, "not measured: no time left")


def test_without_a_gpu_nothing_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_session.main([]) == 0
    assert capsys.readouterr().out == "not measured: no GPU\n"


def test_a_peak_far_from_its_estimate_is_marked() -> None:
    row = gpu_session.PrefillRow(
        attention="sdpa", length_tokens=8, chunk_tokens=8, tokens_per_second=1.0, ceiling_share=0.5,
        peak_bytes=100, estimated_bytes=111,
    )  # fmt: skip
    assert not row.is_as_estimated
    assert replace(row, estimated_bytes=99).is_as_estimated
