"""The hf engine answers as a model's own greedy `generate`, counts what it computes, and refuses the rest."""

from __future__ import annotations

import copy
import gc
import json
import subprocess
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import (
    CONFIGS,
    LONGROPE_TURN,
    SIZES,
    VOCABULARY,
    Ids,
    byte_tokenizer,
    prompt,
    random_prompt,
    save_model,
    wrapped,
)
from tokenizers import Tokenizer, decoders, models
from transformers import LlamaConfig, T5Config, T5ForConditionalGeneration

from fixtures.checkpoint import inspect
from fixtures.chunks import SLIDING_CHUNK
from fixtures.engines import ENGINES, EngineError, hf, loading, prefill
from fixtures.engines.answers import Answer
from fixtures.engines.hf import HfEngine, load
from fixtures.records import Generation, Prompt

REPOSITORY = Path(__file__).parents[1]
WINDOWED = {"mistral", "gemma2", "gemma3"}
ONE_BY_ONE = {*WINDOWED, "longrope", "jamba"}
# Lengths within, across and beyond the window of 32; the second answer passes the turn of longrope.
PROMPTS = [random_prompt(33, 5), random_prompt(90, 12), random_prompt(70, 20), random_prompt(17, 6)]

Saved = Callable[[str], Path]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """The directory of a family's checkpoint, made once."""
    made: dict[str, Path] = {}

    def directory(family: str) -> Path:
        if family not in made:
            made[family] = save_model(CONFIGS[family], tmp_path_factory.mktemp(family))
        return made[family]

    return directory


def engine_of(path: Path, **settings: Any) -> HfEngine:
    return load(inspect(str(path)), **{"tokenizer": Ids(), "device": "cpu", **settings})


def own_greedy(engine: HfEngine, asked: Prompt) -> str:
    """What `generate` answers to one prompt, without the end-of-text token."""
    ids = torch.tensor([asked.token_ids])
    full = engine.reader.model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=asked.generation_tokens
    )
    new = [i for i in full[0, ids.shape[1] :].tolist() if i not in engine.end_ids]
    return "".join(f"{i} " for i in new)


def texts(engine: HfEngine, prompts: list[Prompt]) -> list[str]:
    return [generation.text for generation in engine.generate(prompts)]


@pytest.mark.parametrize("family", CONFIGS)
def test_answers_are_those_of_generate(family: str, saved: Saved) -> None:
    engine = engine_of(saved(family), batch_size=1)
    assert texts(engine, PROMPTS) == [own_greedy(engine, each) for each in PROMPTS]


@pytest.mark.parametrize("family", CONFIGS)
def test_a_batch_answers_as_each_alone(family: str, saved: Saved) -> None:
    engine = engine_of(saved(family), batch_size=3)
    assert engine.facts.batch_size == (1 if family in ONE_BY_ONE else 3)
    assert texts(engine, PROMPTS) == texts(engine_of(saved(family), batch_size=1), PROMPTS)


@pytest.mark.parametrize("family", ["llama", "yarn", "qwen2", "qwen3", *sorted(WINDOWED)])
@pytest.mark.parametrize("attention", ["auto", "eager"])
def test_chunks_answer_as_a_whole_prompt(family: str, attention: str, saved: Saved) -> None:
    engine = engine_of(saved(family), attention=attention)
    whole = copy.copy(engine)
    whole.path = replace(engine.path, chunk=None)
    engine.path = replace(engine.path, chunk=16)
    assert texts(engine, PROMPTS) == texts(whole, PROMPTS)


def test_a_padded_batch_in_chunks_answers_as_each_alone(saved: Saved) -> None:
    engine = engine_of(saved("llama"), batch_size=4)
    engine.path = replace(engine.path, chunk=16)
    assert texts(engine, PROMPTS) == texts(engine_of(saved("llama")), PROMPTS)


@pytest.mark.parametrize(
    ("family", "attention", "said"),
    [
        ("llama", "sdpa", "whole"),
        ("llama", "eager", "chunks of 512"),
        ("mistral", "sdpa", "chunks of 1024"),
        ("gemma2", "auto", "chunks of 512"),
        ("gemma3", "auto", "chunks of 1024"),
        ("longrope", "eager", "whole"),
        ("jamba", "eager", "whole"),
    ],
)
def test_facts_say_how_prompts_are_read(family: str, attention: str, said: str, saved: Saved) -> None:
    facts = engine_of(saved(family), attention=attention).facts
    assert facts.prefill == said
    assert facts.attention == {"auto": "eager" if family == "gemma2" else "sdpa"}.get(attention, attention)
    assert (facts.engine, facts.device, facts.dtype) == ("hf", "cpu", "float32")
    assert facts.hardware


def test_a_model_that_continues_wrongly_behind_a_cache_is_read_whole(saved: Saved) -> None:
    engine = engine_of(saved("mistral"))
    model = engine.reader.model
    assert prefill.exact_path(engine.reader, "sdpa").chunk == SLIDING_CHUNK

    def forget(_: Any, args: Any, inputs: dict[str, Any]) -> Any:
        if inputs["past_key_values"].get_seq_length():
            inputs["input_ids"] = (inputs["input_ids"] + 1) % VOCABULARY
        return args, inputs

    model.register_forward_pre_hook(forget, with_kwargs=True)
    assert prefill.exact_path(engine.reader, "sdpa").chunk is None


@pytest.mark.parametrize(("family", "batch_size"), [("llama", 1), ("llama", 3), ("mistral", 1), ("longrope", 1)])
def test_every_position_that_went_through_the_model_is_counted(family: str, batch_size: int, saved: Saved) -> None:
    engine = engine_of(saved(family), batch_size=batch_size)
    seen = 0

    def count(_: Any, __: Any, inputs: dict[str, Any]) -> None:
        nonlocal seen
        seen += inputs["input_ids"].numel()

    engine.reader.model.register_forward_pre_hook(count, with_kwargs=True)
    done = list(engine.generate(PROMPTS))
    assert sum(generation.computed_tokens for generation in done) == seen
    assert [generation.prompt_tokens for generation in done] == [len(each.token_ids) for each in PROMPTS]


def test_longrope_reads_again_where_its_frequencies_turn(saved: Saved) -> None:
    """Keys of the short frequencies beside queries of the long ones would be noise."""
    (generation,) = engine_of(saved("longrope")).generate([random_prompt(90, 12)])
    assert generation.computed_tokens == 90 + (LONGROPE_TURN - 90) + (LONGROPE_TURN + 1) + (11 - 6)


def test_an_answer_ends_with_its_budget(saved: Saved) -> None:
    (generation,) = engine_of(saved("llama")).generate([random_prompt(40, 7)])
    assert (generation.finish, generation.generated_tokens, generation.computed_tokens) == ("length", 7, 46)


def test_an_answer_ends_at_any_of_the_end_tokens(saved: Saved) -> None:
    plain = engine_of(saved("llama"))
    third = int(texts(plain, [random_prompt(40, 7)])[0].split()[2])
    plain.end_ids = frozenset({1, third})
    (generation,) = plain.generate([random_prompt(40, 7)])
    assert (generation.finish, generation.generated_tokens, len(generation.text.split())) == ("stop", 3, 2)


def test_end_tokens_are_gathered_from_every_place(saved: Saved, tmp_path: Path) -> None:
    path = save_model(CONFIGS["llama"], tmp_path / "c")
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 7]}))
    tokenizer = byte_tokenizer()
    tokenizer.eos_token = "a"
    assert engine_of(path, tokenizer=tokenizer).end_ids == {1, 7, tokenizer.eos_token_id}


def test_an_answer_is_cut_at_the_first_stop_string(saved: Saved) -> None:
    engine = engine_of(saved("llama"))
    words = texts(engine, [random_prompt(40, 7)])[0].split()
    asked = replace(random_prompt(40, 7), stop=(f" {words[4]} ", f" {words[3]} ", "nowhere"))
    (generation,) = engine.generate([asked])
    assert generation.text == " ".join(words[:3])
    assert (generation.finish, generation.generated_tokens) == ("stop", 4)


def test_rows_of_a_batch_end_on_their_own(saved: Saved) -> None:
    engine = engine_of(saved("llama"), batch_size=2)
    engine.end_ids = frozenset()
    done = list(engine.generate([random_prompt(40, 3), random_prompt(20, 9)]))
    assert [generation.generated_tokens for generation in done] == [3, 9]
    assert [generation.computed_tokens for generation in done] == [42, 48]


def answer_text(tokenizer: Any, text: str, generated: list[int], *, end_ids: frozenset[int] = frozenset()) -> str:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    answer = Answer(prompt(ids, len(generated)), tokenizer, end_ids)
    for token in generated:
        answer.take(token)
    return answer.text


def test_the_space_before_the_first_word_is_kept() -> None:
    """A sentencepiece tokenizer drops it when the answer is decoded alone."""
    pieces = ["<unk>", "\u2581is", "\u2581red", "\u2581blue", "s"]
    tokenizer = Tokenizer(models.WordLevel({piece: at for at, piece in enumerate(pieces)}, unk_token="<unk>"))
    tokenizer.decoder = decoders.Metaspace()
    sentencepiece = wrapped(tokenizer, unk_token="<unk>")
    assert sentencepiece.decode([2, 3]) == "red blue"
    answer = Answer(prompt([1], 2), sentencepiece, frozenset())
    answer.take(2)
    answer.take(4)
    assert answer.text == " reds"


def test_text_is_decoded_without_special_tokens_and_left_as_it_is() -> None:
    tokenizer = byte_tokenizer()
    words = tokenizer(" fox .", add_special_tokens=False)["input_ids"]
    assert answer_text(tokenizer, "the quick", [*words, 0]) == " fox ."
    assert answer_text(tokenizer, "the quick", [*words, 1], end_ids=frozenset({1})) == " fox ."


def test_a_character_that_the_prompt_left_half_is_given_whole() -> None:
    tokenizer = byte_tokenizer()
    euro = tokenizer("\u20ac", add_special_tokens=False)["input_ids"]
    answer = Answer(prompt(euro[:1], 2), tokenizer, frozenset())
    for token in euro[1:]:
        answer.take(token)
    assert answer.text == "\u20ac"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (prompt([]), "no tokens"),
        (prompt([5, VOCABULARY]), f"token id {VOCABULARY} is outside"),
        (prompt([-1, 5]), "token id -1 is outside"),
        (prompt([5], 0), "asks for 0 tokens"),
    ],
)
def test_a_prompt_that_cannot_be_read_is_an_error(asked: Prompt, said: str, saved: Saved) -> None:
    with pytest.raises(EngineError, match=said):
        list(engine_of(saved("llama")).generate([asked]))


def test_learned_positions_are_not_exceeded(saved: Saved) -> None:
    engine = engine_of(saved("gpt2"))
    assert len(list(engine.generate([random_prompt(120, 8)]))) == 1
    with pytest.raises(EngineError, match="take 129 tokens, but the model has learned positions for 128"):
        list(engine.generate([random_prompt(120, 9)]))


def changed_weights(path: Path, target: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> Path:
    """A copy of a checkpoint with other tensors."""
    target.mkdir()
    for file in path.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    tensors = load_file(target / "model.safetensors")
    change(tensors)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    return target


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_an_error_and_no_answer(value: float, saved: Saved, tmp_path: Path) -> None:
    path = changed_weights(saved("llama"), tmp_path / "c", lambda tensors: tensors["lm_head.weight"][9].fill_(value))
    with pytest.raises(EngineError, match="NaN or infinite after 20 tokens"):
        list(engine_of(path).generate([random_prompt(20)]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.pop("model.layers.1.mlp.up_proj.weight"), "lack model.layers.1.mlp.up_proj.weight"),
        (lambda t: t.update({"model.extra": torch.ones(2)}), "no place for model.extra"),
        (lambda t: t.update({"model.norm.weight": torch.ones(9)}), "another shape to model.norm.weight"),
    ],
    ids=["missing", "unexpected", "mismatched"],
)
def test_weights_that_do_not_fit_the_config_are_refused(
    change: Callable[[dict[str, torch.Tensor]], object], said: str, saved: Saved, tmp_path: Path
) -> None:
    with pytest.raises(EngineError, match=said) as caught:
        engine_of(changed_weights(saved("llama"), tmp_path / "c", change))
    assert "\n" not in str(caught.value)


def test_tied_weights_are_no_missing_weights(saved: Saved) -> None:
    tensors = load_file(saved("gemma2") / "model.safetensors")
    assert "lm_head.weight" not in tensors
    engine_of(saved("gemma2"))


def test_dynamic_rope_is_refused(saved: Saved, tmp_path: Path) -> None:
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    path = save_model(LlamaConfig(**SIZES, rope_parameters=rope), tmp_path / "c")
    with pytest.raises(EngineError, match="rope type 'dynamic' makes an answer depend on what was read before"):
        engine_of(path)


def test_an_encoder_decoder_is_refused(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"vocab_size": 320, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    T5ForConditionalGeneration(T5Config(**sizes)).save_pretrained(tmp_path / "c")
    byte_tokenizer().save_pretrained(tmp_path / "c")
    with pytest.raises(EngineError, match="encoder-decoder"):
        engine_of(tmp_path / "c")


def test_code_beside_the_weights_of_a_built_in_model_is_not_run(saved: Saved, tmp_path: Path) -> None:
    path = changed_weights(saved("llama"), tmp_path / "c", lambda tensors: None)
    config = json.loads((path / "config.json").read_text())
    classes = {"AutoConfig": "mine.Config", "AutoModelForCausalLM": "mine.Model"}
    (path / "config.json").write_text(json.dumps({**config, "auto_map": classes}))
    (path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    assert texts(engine_of(path), PROMPTS[:1]) == texts(engine_of(saved("llama")), PROMPTS[:1])
    assert not (tmp_path / "ran").exists()


def test_a_model_type_that_transformers_does_not_know_is_refused(saved: Saved, tmp_path: Path) -> None:
    path = changed_weights(saved("llama"), tmp_path / "c", lambda tensors: None)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "model_type": "llama99"}))
    with pytest.raises(EngineError, match="must know model_type 'llama99'"):
        engine_of(path)


@pytest.mark.parametrize(
    ("settings", "said"),
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
def test_settings_that_do_not_work_are_named(settings: dict[str, Any], said: str, saved: Saved) -> None:
    with pytest.raises(EngineError, match=said):
        engine_of(saved("llama"), **settings)


def test_an_attention_that_the_model_does_not_have_is_refused(saved: Saved) -> None:
    with pytest.raises(EngineError, match="--attention: 'sdpa' does not work for Gemma2ForCausalLM"):
        engine_of(saved("gemma2"), attention="sdpa")


def test_a_faster_attention_that_fails_gives_way_to_the_models_own(
    saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "attention_names", lambda *_: ("flash_attention_2", None))
    assert engine_of(saved("llama")).facts.attention == "sdpa"


@pytest.mark.parametrize(
    ("weights", "asked", "used"),
    [
        (torch.bfloat16, "auto", "bfloat16"),
        (torch.float16, "auto", "float32"),
        (torch.float16, "float16", "float16"),
        (torch.float32, "bf16", "bfloat16"),
    ],
)
def test_dtype_auto_is_that_of_the_weights_but_no_float16_on_a_cpu(
    weights: torch.dtype, asked: str, used: str, tmp_path: Path
) -> None:
    path = save_model(CONFIGS["llama"], tmp_path / "c", dtype=weights)
    engine = engine_of(path, dtype=asked)
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
def test_running_out_of_memory_says_at_which_length_and_what_to_do(
    error: BaseException, saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(saved("llama"), batch_size=2)
    caches: list[weakref.ref[Any]] = []

    def fail(*_: Any, **inputs: Any) -> None:
        caches.append(weakref.ref(inputs["past_key_values"]))
        raise error

    monkeypatch.setattr(engine.reader.model, "forward", fail)
    said = (
        r"out of memory on cpu with a prompt of 90 tokens, alone and whole: "
        r"(9 bytes more were asked for, )?about 0.7 MiB are needed"
    )
    with pytest.raises(EngineError, match=said) as caught:
        list(engine.generate([random_prompt(90), random_prompt(20)]))
    assert caught.value.__cause__ is error
    gc.collect()
    assert {cache() for cache in caches} == {None}, "the kept error holds the cache, so the next prompt has no room"


def test_a_failing_model_is_an_engine_error_in_one_line(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(saved("llama"))

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("shapes differ\n  at a place\n")

    monkeypatch.setattr(engine.reader.model, "forward", fail)
    with pytest.raises(EngineError, match=r"^the model fails on a prompt of 20 tokens: shapes differ$"):
        list(engine.generate([random_prompt(20)]))


def test_neighbours_share_a_batch_up_to_the_token_limit(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(saved("llama"))
    assert engine.facts.batch_size == 1
    engine.batch_size = 0
    monkeypatch.setattr(hf, "BATCH_TOKENS", 100)
    sizes: list[int] = []
    run = engine._run

    def watched(batch: list[Prompt], depths: tuple[int, ...]) -> list[Generation]:
        sizes.append(len(batch))
        return run(batch, depths)

    monkeypatch.setattr(engine, "_run", watched)
    asked = [prompt([first, *random_prompt(n - 1).token_ids]) for first, n in enumerate((20, 30, 33, 40, 200, 10), 2)]
    done = list(engine.generate(asked))
    assert sizes == [3, 1, 1, 1]
    assert [generation.prompt_tokens for generation in done] == [20, 30, 33, 40, 200, 10]


def test_answers_come_while_later_prompts_wait(saved: Saved) -> None:
    stream = engine_of(saved("llama")).generate([random_prompt(20), prompt([])])
    assert next(stream).prompt_tokens == 20
    with pytest.raises(EngineError):
        next(stream)


def test_the_registry_loads_the_engine(saved: Saved) -> None:
    engine = ENGINES["hf"](inspect(str(saved("llama"))), tokenizer=Ids(), device="cpu", dtype="auto", attention="auto")
    assert engine.facts.engine == "hf"


def test_importing_the_registry_imports_no_model_library() -> None:
    code = "import sys, fixtures.engines, fixtures.checkpoint; print({'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
