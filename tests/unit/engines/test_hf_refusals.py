"""The hf engine refuses unusable checkpoints, settings and prompts with a one-line error, or falls back if it can."""

import gc
import math
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import T5Config, T5ForConditionalGeneration

from longctx.fixtures.engines import EngineError
from longctx.fixtures.engines.hf import loading
from longctx.fixtures.engines.hf.engine import HfEngine
from longctx.fixtures.records import Prompt
from tests.helpers.tiny_engines import PROMPTS, Ready, Saved, engine_of, questions, texts
from tests.helpers.tiny_models import (
    CONFIGS,
    VOCABULARY,
    byte_tokenizer,
    changed_copy,
    prompt,
    random_prompt,
    save_model,
)


@pytest.mark.parametrize(
    ("unreadable", "message"),
    [
        (prompt([]), "no tokens"),
        (prompt([5, VOCABULARY]), f"token id {VOCABULARY} is outside"),
        (prompt([-1, 5]), "token id -1 is outside"),
        (prompt([5], 0), "asks for 0 tokens"),
    ],
)
def test_a_prompt_that_cannot_be_read_is_an_error(unreadable: Prompt, message: str, saved: Saved) -> None:
    with pytest.raises(EngineError, match=message):
        list(engine_of(saved("llama")).generate([unreadable]))


def test_learned_positions_are_not_exceeded(saved: Saved) -> None:
    engine = engine_of(saved("gpt2"))
    assert len(list(engine.generate([random_prompt(120, 8)]))) == 1
    with pytest.raises(EngineError, match="take 129 tokens, but the model has learned positions for 128"):
        list(engine.generate([random_prompt(120, 9)]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("model.layers.1.mlp.up_proj.weight"), "lack model.layers.1.mlp.up_proj.weight"),
        (lambda t: t.update({"model.extra": torch.ones(2)}), "no place for model.extra"),
        (lambda t: t.update({"model.norm.weight": torch.ones(9)}), "another shape to model.norm.weight"),
        (lambda t: t["lm_head.weight"][9].fill_(math.nan), "logits are NaN or infinite after 20 tokens"),
        (lambda t: t["model.norm.weight"].fill_(math.inf), "logits are NaN or infinite after 20 tokens"),
        (lambda t: t["lm_head.weight"][9].fill_(3e38), "logits are NaN or infinite after 20 tokens"),
    ],
    ids=["missing", "unexpected", "mismatched", "nan", "infinite", "infinite logits"],
)
def test_weights_that_cannot_answer_are_refused(
    change: Callable[[dict[str, torch.Tensor]], object], message: str, saved: Saved, tmp_path: Path
) -> None:
    with pytest.raises(EngineError, match=message) as raised:
        list(engine_of(changed_copy(saved("llama"), tmp_path / "c", change)).generate([random_prompt(20)]))
    assert "\n" not in str(raised.value)


def test_an_encoder_decoder_is_refused(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"vocab_size": 320, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    T5ForConditionalGeneration(T5Config(**sizes)).save_pretrained(tmp_path / "c")
    byte_tokenizer().save_pretrained(tmp_path / "c")
    with pytest.raises(EngineError, match="encoder-decoder"):
        engine_of(tmp_path / "c")


def test_code_beside_the_weights_of_a_built_in_model_is_not_run(saved: Saved, tmp_path: Path) -> None:
    classes = {"AutoConfig": "mine.Config", "AutoModelForCausalLM": "mine.Model"}
    path = changed_copy(saved("llama"), tmp_path / "c", auto_map=classes)
    (path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    assert texts(engine_of(path), PROMPTS[:1]) == texts(engine_of(saved("llama")), PROMPTS[:1])
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("num_attention_heads", 0, "config.json: .*zero.*; correct it"),
        ("num_key_value_heads", 0, "cannot be loaded: "),
        ("rms_norm_eps", "small", "config.json: .*'rms_norm_eps'.*expected float"),
        ("hidden_act", "nope", "cannot be loaded: .*nope"),
        ("model_type", "llama99", "must know model_type 'llama99'"),
        (
            "rope_parameters",
            {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
            "rope type 'dynamic' makes an answer depend on what was read before",
        ),
    ],
)
def test_a_config_that_cannot_be_used_is_refused(key: str, value: Any, line: str, saved: Saved, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=line):
        engine_of(changed_copy(saved("llama"), tmp_path / "c", **{key: value}))


@pytest.mark.parametrize(
    "quantization",
    [
        {"quant_method": "compressed-tensors", "config_groups": {}, "format": "int-quantized"},
        {"quant_method": "gptq", "bits": 4},
        {"quant_method": "awq", "bits": 4},
        {"quant_method": "hqq", "quant_config": {}},
        {"quant_method": "aqlm"},
        {"quant_method": "eetq"},
        {"quant_method": "quanto", "weights": "int8"},
        {"quant_method": "vptq"},
        {"quant_method": "quark"},
    ],
    ids=lambda quantization: str(quantization["quant_method"]),
)
def test_a_package_for_quantized_weights_that_is_missing_is_named(
    quantization: dict[str, Any], saved: Saved, tmp_path: Path
) -> None:
    with pytest.raises(EngineError) as caught:
        engine_of(changed_copy(saved("llama"), tmp_path / "c", quantization_config=quantization))
    line = str(caught.value)
    assert f"is quantized with {quantization['quant_method']!r}, whose package is missing: " in line
    assert "architectures" not in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attention": "flash"}, "--attention: unknown 'flash'; use auto, eager, .*sdpa"),
        ({"attention": "org/kernel"}, "--attention: unknown 'org/kernel'"),
        ({"attention": "flash_attention_2"}, "--attention: 'flash_attention_2' is not installed"),
        ({"dtype": "half"}, "--dtype: unknown 'half'; use auto, bfloat16, float16 or float32"),
        ({"device": "gpu"}, "--device: unknown 'gpu'; use auto, cpu, cuda"),
        ({"device": "cpu:3"}, "--device: 'cpu:3' is not there"),
        ({"device": "cuda:64"}, "--device: 'cuda:64' is not there"),
        ({"batch_size": -1}, "--batch-size: -1 is negative"),
    ],
)
def test_an_unusable_setting_is_refused_by_its_option_name(
    settings: dict[str, Any], message: str, saved: Saved
) -> None:
    with pytest.raises(EngineError, match=message):
        engine_of(saved("llama"), **settings)


def test_an_attention_that_the_model_lacks_is_refused(saved: Saved) -> None:
    with pytest.raises(EngineError, match="--attention: 'sdpa' does not work for Gemma2ForCausalLM"):
        engine_of(saved("gemma2"), attention="sdpa")


def test_the_models_own_attention_replaces_a_faster_one_that_fails(
    saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "attention_names", lambda *_: ("flash_attention_2", None))
    assert engine_of(saved("llama")).facts.attention == "sdpa"


@pytest.mark.parametrize(
    ("weights", "option", "used"),
    [
        (torch.bfloat16, "auto", "float32"),
        (torch.bfloat16, "bf16", "bfloat16"),
        (torch.float16, "auto", "float32"),
        (torch.float16, "float16", "float16"),
        (torch.float32, "bf16", "bfloat16"),
    ],
)
def test_dtype_auto_is_float32_on_a_cpu(weights: torch.dtype, option: str, used: str, tmp_path: Path) -> None:
    path = save_model(CONFIGS["llama"], tmp_path / "c", dtype=weights)
    engine = engine_of(path, dtype=option)
    assert engine.facts.dtype == used
    assert len(list(engine.generate([random_prompt(20)]))) == 1


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
        MemoryError(),
    ],
)
def test_running_out_of_memory_reports_the_length_and_the_remedy(
    error: BaseException, saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(saved("llama"), batch_size=2)
    caches: list[weakref.ref[Any]] = []

    def fail(*_: Any, **inputs: Any) -> None:
        caches.append(weakref.ref(inputs["past_key_values"]))
        raise error

    monkeypatch.setattr(engine.forward.model, "forward", fail)
    message = "out of memory on cpu with a prompt of 90 tokens; use --batch-size 1, shorter --lengths, "
    with pytest.raises(EngineError, match=message) as raised:
        list(engine.generate([random_prompt(90), random_prompt(20)]))
    assert raised.value.__cause__ is error
    gc.collect()
    assert {cache() for cache in caches} == {None}, "the error holds the cache, so the next prompt lacks its memory"


def failing_above(engine: HfEngine, monkeypatch: pytest.MonkeyPatch, positions: int, *, rows: int = 99) -> None:
    """Make larger forward passes run out of memory."""
    forward = engine.forward.model.forward

    def limited(*_: Any, **inputs: Any) -> Any:
        if inputs["input_ids"].numel() > positions or inputs["input_ids"].shape[0] > rows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total ...")
        return forward(**inputs)

    monkeypatch.setattr(engine.forward.model, "forward", limited)


@pytest.mark.parametrize(
    ("settings", "rows", "lengths", "message"),
    [
        # A smaller batch may answer differently at near ties, so it must be chosen for the whole run.
        ({"batch_size": 4}, 2, (30, 31, 32), "3 prompts of up to 32 tokens; use --batch-size 2, "),
        ({"prefill_chunk": "whole"}, 99, (600,), "600 tokens; use --prefill-chunk 512, shorter --lengths"),
        ({"prefill_chunk": "521"}, 99, (521,), "a prompt of 521 tokens; use --prefill-chunk 512"),
        ({"prefill_chunk": "512"}, 0, (600,), "600 tokens; use shorter --lengths, "),
    ],
)
def test_memory_that_runs_out_is_an_error_with_the_size_to_use(
    settings: dict[str, Any], rows: int, lengths: tuple[int, ...], message: str, saved: Saved,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    engine = engine_of(saved("llama"), **settings)
    failing_above(engine, monkeypatch, 520, rows=rows)
    with pytest.raises(EngineError, match=f"out of memory on cpu with .*{message}"):
        list(engine.generate([random_prompt(length) for length in lengths]))


@pytest.mark.parametrize("batch_size", [1, 3])
def test_another_models_cache_is_freed_before_a_batch_fails(
    batch_size: int, ready: Ready, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, other = ready("llama", batch_size), ready("qwen2")
    list(other.generate(questions(1)))
    forward = engine.forward.model.forward

    def fail_while_the_other_cache_exists(*_: Any, **inputs: Any) -> Any:
        if other.prefix_cache.ids:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return forward(**inputs)

    monkeypatch.setattr(engine.forward.model, "forward", fail_while_the_other_cache_exists)
    assert len(list(engine.generate(questions(3)))) == 3


@pytest.mark.parametrize("family", ["longrope", "jamba"])
def test_a_prefill_chunk_that_changes_answers_is_refused(family: str, saved: Saved) -> None:
    with pytest.raises(EngineError, match=r"--prefill-chunk: 64, but .* answers differently when it reads in parts"):
        engine_of(saved(family), prefill_chunk="64")


def test_a_failing_model_raises_a_one_line_engine_error(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(saved("llama"))

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("shapes differ\n  at a place\n")

    monkeypatch.setattr(engine.forward.model, "forward", fail)
    with pytest.raises(EngineError, match=r"^the model fails on a prompt of 20 tokens: shapes differ$"):
        list(engine.generate([random_prompt(20)]))
