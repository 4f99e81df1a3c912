"""The hf engine answers like a model's own greedy `generate`, in batches and in chunks, and counts its tokens."""

import copy
import inspect
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models
from torch import Tensor
from transformers import DbrxConfig, MixtralConfig, PretrainedConfig

from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.engines import execution_settings
from longctx.fixtures.engines.answers import StopTracker
from longctx.fixtures.engines.hf import prefill
from longctx.fixtures.engines.hf.settings import HfSettings
from tests.helpers.tiny_engines import PROMPTS, TEXT, Saved, counted, engine_of, own_greedy, questions, texts
from tests.helpers.tiny_models import (
    CONFIGS,
    LONGROPE_TURN,
    RECURRENT,
    SIZES,
    VOCABULARY,
    byte_tokenizer,
    prompt,
    random_prompt,
    save_model,
    wrapped,
)

WINDOWED = {"mistral", "gemma2", "gemma3"}
ONE_BY_ONE = {*WINDOWED, "longrope", "jamba"}


@pytest.mark.parametrize("family", CONFIGS)
def test_answers_equal_those_of_generate(family: str, saved: Saved) -> None:
    engine, batched = (engine_of(saved(family), batch_size=size) for size in (1, 3))
    expected = [own_greedy(engine, prompt) for prompt in PROMPTS]
    assert texts(engine, PROMPTS) == expected
    assert batched.facts.batch_size == (1 if family in ONE_BY_ONE else 3)
    assert texts(batched, PROMPTS) == expected


@pytest.mark.parametrize("family", RECURRENT)
def test_models_without_a_key_value_cache_answer_like_plain_forward_passes(family: str, tmp_path: Path) -> None:
    engine = engine_of(save_model(RECURRENT[family], tmp_path / "c"))
    assert engine.facts.prefill == "whole"
    single = PROMPTS[0]
    answer = [int(token) for token in texts(engine, [PROMPTS[2], single])[1].split()]
    assert len(answer) == single.generation_tokens
    with torch.no_grad():
        logits = engine.forward.model(torch.tensor([[*single.token_ids, *answer]]), use_cache=False).logits[0]
    following = logits[len(single.token_ids) - 1 : -1].float()
    assert following.argmax(-1).tolist() == answer
    (score,) = engine.score([single], [answer])
    expected = following.log_softmax(-1)[range(len(answer)), answer].tolist()
    assert score.log_probabilities == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("family", ["llama", "yarn", "qwen2", "qwen3", *sorted(WINDOWED)])
@pytest.mark.parametrize("attention", ["auto", "eager"])
def test_answers_after_chunks_equal_those_after_whole_prompts(family: str, attention: str, saved: Saved) -> None:
    engine = engine_of(saved(family), attention=attention)
    whole = copy.copy(engine)
    whole.prefill_mode = replace(engine.prefill_mode, least_chunk_tokens=None, largest_chunk_tokens=None)
    engine.prefill_mode = replace(engine.prefill_mode, least_chunk_tokens=16)
    assert texts(engine, PROMPTS) == texts(whole, PROMPTS)


@pytest.mark.parametrize(
    ("family", "attention", "prefill_description"),
    [
        ("llama", "sdpa", "chunks of 128 to 1024"),
        ("llama", "eager", "chunks of 128 to 512"),
        ("gemma2", "auto", "chunks of 128 to 512"),
        ("gemma3", "auto", "chunks of 128 to 1024"),
        ("longrope", "eager", "whole"),
        ("jamba", "eager", "whole"),
    ],
)
def test_facts_describe_prefill_and_attention(
    family: str, attention: str, prefill_description: str, saved: Saved
) -> None:
    facts = engine_of(saved(family), attention=attention).facts
    assert facts.prefill == prefill_description
    assert facts.attention == {"auto": "eager" if family == "gemma2" else "sdpa"}.get(attention, attention)
    assert (facts.engine, facts.device, facts.dtype) == ("hf", "cpu", "float32")
    assert facts.hardware


@pytest.mark.parametrize(
    ("option", "description", "largest"),
    [("auto", "chunks of 128 to 1024", 128), ("whole", "whole", len(TEXT) + 3), ("32", "chunks of 32", 32)],
)
def test_the_option_sets_the_prefill_chunk(option: str, description: str, largest: int, saved: Saved) -> None:
    engine = engine_of(saved("llama"), prefill_chunk=option)
    assert engine.facts.prefill == description
    with counted(engine) as pass_sizes:
        list(engine.generate(questions(1)))
    assert max(pass_sizes) == largest


def test_execution_settings_differ_by_prefill_chunk(saved: Saved) -> None:
    checkpoint = read_checkpoint(str(saved("llama")))
    settings = [HfSettings(device="cpu", prefill_chunk=chunk) for chunk in ("auto", "whole", "512")]
    assert len({str(execution_settings(checkpoint, each)) for each in settings}) == 3


def test_a_model_that_continues_a_cache_inexactly_reads_whole_prompts(saved: Saved) -> None:
    engine = engine_of(saved("mistral"))
    model = engine.forward.model
    assert prefill.exact_prefill_mode(engine.forward, "sdpa").shares_prefixes

    def corrupt_continuation(_: Any, args: Any, inputs: dict[str, Any]) -> Any:
        if inputs["past_key_values"].get_seq_length():
            inputs["input_ids"] = (inputs["input_ids"] + 1) % VOCABULARY
        return args, inputs

    model.register_forward_pre_hook(corrupt_continuation, with_kwargs=True)
    mode = prefill.exact_prefill_mode(engine.forward, "sdpa")
    assert (mode.description, mode.allows_chunks, mode.chunk_tokens(5000)) == ("whole", False, 5000)


def test_a_model_whose_cache_has_its_new_name_answers_the_same(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers 5.24 calls the argument `cache`, and before that it was `past_key_values`."""
    known, ids = engine_of(saved("llama")).forward, torch.arange(12)[None]
    _, expected = known.prefill(ids, chunk_tokens=5)
    forward, old = known.model.forward, "past_key_values"

    def renamed(*, input_ids: Any, cache: Any, use_cache: bool, logits_to_keep: int) -> Any:
        name = old if old in inspect.signature(forward).parameters else "cache"
        return forward(input_ids=input_ids, use_cache=use_cache, logits_to_keep=logits_to_keep, **{name: cache})

    monkeypatch.setattr(known.model, "forward", renamed)
    _, logits = prefill.CachedForward(known.model).prefill(ids, chunk_tokens=5)
    assert torch.equal(logits, expected)


def test_chunks_grow_with_the_prompt_and_follow_from_its_length_alone(saved: Saved) -> None:
    mode = engine_of(saved("llama")).prefill_mode
    lengths = (1, 512, 2048, 2049, 4096, 8192, 16384, 131072)
    assert [mode.chunk_tokens(length) for length in lengths] == [128, 128, 128, 256, 256, 512, 1024, 1024]


NESTED_EXPERTS = DbrxConfig(
    vocab_size=320, d_model=64, n_heads=4, n_layers=2,
    attn_config={"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0},
    ffn_config={"ffn_hidden_size": 64, "moe_num_experts": 2, "moe_top_k": 1},
)  # fmt: skip


@pytest.mark.parametrize("config", [MixtralConfig(**SIZES, num_local_experts=2, num_experts_per_tok=1), NESTED_EXPERTS])
def test_experts_that_rows_share_rule_batches_out(config: PretrainedConfig, tmp_path: Path) -> None:
    """The shapes in which experts compute depend on the tokens of all rows."""
    engine = engine_of(save_model(config, tmp_path / "c"), batch_size=4)
    assert (engine.prefill_mode.allows_batches, engine.facts.batch_size) == (False, 1)


@pytest.mark.parametrize("wrong", ["all places", "first key", "last place", "longest row"])
def test_rows_with_another_mask_or_other_positions_rule_batches_out(
    wrong: str, saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend = prefill.CachedForward.extend

    def extend_wrongly(
        self: prefill.CachedForward, cache: Any, ids: Tensor, *, mask: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        if mask is not None and positions is not None:
            if wrong == "all places":
                mask = torch.ones_like(mask)
            elif wrong == "first key":
                mask = mask * (torch.arange(mask.shape[1]) > 0)
            elif wrong == "last place":
                positions = torch.full_like(positions, mask.shape[1] - 1)
            else:
                positions = torch.full_like(positions, int(positions.max()))
        return extend(self, cache, ids, mask=mask, positions=positions)

    assert engine_of(saved("llama"), batch_size=4).facts.batch_size == 4
    monkeypatch.setattr(prefill.CachedForward, "extend", extend_wrongly)
    assert engine_of(saved("llama"), batch_size=4).facts.batch_size == 1


def test_longrope_prefills_again_where_its_frequencies_change(saved: Saved) -> None:
    """Keys computed with the short frequencies do not fit queries computed with the long ones."""
    (generation,) = engine_of(saved("longrope")).generate([random_prompt(90, 12)])
    assert generation.computed_tokens == 90 + (LONGROPE_TURN - 90) + (LONGROPE_TURN + 1) + (11 - 6)


def test_an_answer_ends_at_any_of_the_end_tokens(saved: Saved) -> None:
    plain = engine_of(saved("llama"))
    third_token = int(texts(plain, [random_prompt(40, 7)])[0].split()[2])
    plain.end_ids = frozenset({1, third_token})
    (generation,) = plain.generate([random_prompt(40, 7)])
    assert (generation.finish, generation.generated_tokens, len(generation.text.split())) == ("stop", 3, 2)


def test_end_tokens_come_from_config_generation_config_and_tokenizer(saved: Saved, tmp_path: Path) -> None:
    path = save_model(CONFIGS["llama"], tmp_path / "c")
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 7]}))
    tokenizer = byte_tokenizer()
    tokenizer.eos_token = "a"
    assert engine_of(path, tokenizer=tokenizer).end_ids == {1, 7, tokenizer.eos_token_id}


def answer_text(tokenizer: Any, ids: list[int], generated: list[int], end_ids: frozenset[int] = frozenset()) -> str:
    answer = StopTracker(prompt(ids, len(generated)), tokenizer, end_ids)
    for token in generated:
        answer.add_token(token)
    return answer.text


def test_the_space_before_the_first_word_is_part_of_the_answer() -> None:
    """A SentencePiece tokenizer drops that space if it decodes the answer alone."""
    pieces = ["<unk>", "\u2581is", "\u2581red", "\u2581blue", "s"]
    tokenizer = Tokenizer(models.WordLevel({piece: index for index, piece in enumerate(pieces)}, unk_token="<unk>"))
    tokenizer.decoder = decoders.Metaspace()
    sentencepiece = wrapped(tokenizer, unk_token="<unk>")
    assert sentencepiece.decode([2, 3]) == "red blue"
    assert answer_text(sentencepiece, [1], [2, 4]) == " reds"


def test_text_is_decoded_without_special_tokens_and_with_a_character_that_the_prompt_begins() -> None:
    tokenizer = byte_tokenizer()
    words, euro = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (" fox .", "\u20ac"))
    assert answer_text(tokenizer, words, [*words, 0]) == " fox ."
    assert answer_text(tokenizer, words, [*words, 1], frozenset({1})) == " fox ."
    assert answer_text(tokenizer, euro[:1], euro[1:]) == "\u20ac"
