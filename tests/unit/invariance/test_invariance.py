"""Sound engines keep every property of invariance, and each fault of caches, chunks and windows breaks one."""

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest
import torch

from benchmarks.faults.engine_faults import ENGINE_FAULTS
from longctx.fixtures.engines.hf.engine import HfEngine
from longctx.fixtures.invariance.hf_check import (
    EngineQuestion,
    _float32_tolerance,
    _half_precision_tolerance,
    check_hf_engine,
    compare,
)
from longctx.fixtures.records import PropertyFinding
from longctx.fixtures.records.results import PropertyName
from tests.helpers.tiny_engines import engine_of
from tests.helpers.tiny_models import CONFIGS, HYBRIDS, random_prompt, save_model

QUESTION = EngineQuestion(name="question 0", ids=random_prompt(320).token_ids)
OTHER = EngineQuestion(name="question 1", ids=random_prompt(321).token_ids)
# A model with learned positions.
SHORT = EngineQuestion(name="question 2", ids=QUESTION.ids[:110])


def findings(engine: HfEngine, question: EngineQuestion = QUESTION) -> Mapping[str, PropertyFinding]:
    return {finding.name: finding for finding in check_hf_engine(engine, question, OTHER)}


def failed(engine: HfEngine) -> set[str]:
    return {name for name, finding in findings(engine).items() if finding.verdict == "fail"}


@pytest.mark.parametrize("family", [*CONFIGS, *HYBRIDS])
def test_sound_engines_of_every_architecture_keep_all_properties(family: str, tmp_path: Path) -> None:
    path = save_model((CONFIGS | HYBRIDS)[family], tmp_path / family)
    question = SHORT if family == "gpt2" else QUESTION
    exact = findings(engine_of(path, batch_size=3), question)
    assert set(exact) == set(get_args(PropertyName))
    assert {name: finding.line for name, finding in exact.items() if finding.verdict == "fail"} == {}
    assert {exact[name].verdict for name in ("prefill", "decode")} == {"pass"}


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_half_precision_is_no_alarm(family: str, tmp_path: Path) -> None:
    path = save_model((CONFIGS | HYBRIDS)[family], tmp_path / family)
    assert failed(engine_of(path, dtype="bfloat16")) == set()


@pytest.mark.parametrize(
    ("fault", "family", "properties"),
    [
        ("isolated_chunks", "llama", {"prefill", "decode", "chunks"}),
        ("merge_stride", "llama", {"prefill", "decode", "chunks"}),
        ("merge_base_two", "llama", {"order"}),
        ("stale_state", "llama", {"warm", "order"}),
        ("stale_state", "lfm2", {"warm", "order"}),
        ("window_off_by_one", "gemma3", {"prefill", "decode"}),
        ("decode_roll", "gemma3", {"decode"}),
        ("fp8_cache", "llama", {"prefill", "decode"}),
        ("bfloat16_positions", "llama", {"prefill", "decode"}),
    ],
)
def test_a_fault_breaks_the_properties_that_it_concerns(
    fault: str, family: str, properties: set[str], tmp_path: Path
) -> None:
    engine = engine_of(save_model((CONFIGS | HYBRIDS)[family], tmp_path / family))
    ENGINE_FAULTS[fault].inject(engine, ENGINE_FAULTS[fault].usual)
    assert failed(engine) == properties


def test_a_failure_names_property_sample_token_and_both_continuations(tmp_path: Path) -> None:
    engine = engine_of(save_model(CONFIGS["llama"], tmp_path / "llama"))
    ENGINE_FAULTS["isolated_chunks"].inject(engine, 1.0)
    chunks = findings(engine)["chunks"]
    assert chunks.token == 1
    assert chunks.expected != chunks.got
    assert chunks.line.startswith("chunks: question 0: token 1 of the answer: logits differ by ")
    assert chunks.line.endswith(f"{chunks.got!r} instead of {chunks.expected!r}")


def test_a_flip_at_a_near_tie_is_no_difference_in_half_precision_and_one_beyond_it_is() -> None:
    reference = torch.tensor([[1.0, 0.99, -3.0]])
    tolerance = _half_precision_tolerance(reference, reference + torch.tensor([[0.02, -0.02, 0.01]]))
    flipped = torch.tensor([[0.98, 1.0, -3.0]])
    assert compare(reference, flipped, tolerance).step is None
    clear = torch.tensor([[1.1, 0.99, -3.0]])
    assert compare(clear, flipped, tolerance).step == 0


def test_nan_is_a_difference() -> None:
    reference = torch.ones(2, 5)
    assert compare(reference, reference * float("nan"), _float32_tolerance(reference)).step == 0
