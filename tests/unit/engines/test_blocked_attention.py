"""Attention in blocks sees what torch's kernel sees, and is as near to float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import DbrxConfig, FalconConfig, LlamaConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.engines.hf import blocked_attention
from longctx.fixtures.engines.hf.blocked_attention import BLOCK_QUERIES
from longctx.fixtures.engines.hf.engine import HfEngine, load_hf_engine
from longctx.fixtures.engines.hf.prefill import STEP_TOKENS, PrefillMode, PrefixCache
from longctx.fixtures.engines.hf.rows import DecodingRows
from tests.helpers.tiny_models import CONFIGS, SIZES, Ids, save_model

Inputs = tuple[Tensor, Tensor, Tensor]
MODULE: Any = torch.nn.Module()
MODULE.num_key_value_groups = 1


def inputs(seed: int, *, queries: int, keys: int, heads: int = 2, sharing: int = 1, size: int = 32) -> Inputs:
    """Return queries, keys and values whose scores differ by some ten nats."""
    random = torch.Generator().manual_seed(seed)
    query = torch.randn(1, heads * sharing, queries, size, generator=random) * 3
    key, value = torch.randn(2, 1, heads, keys, size, generator=random)
    return query.bfloat16(), key.bfloat16(), value.bfloat16()


def widened(given: Inputs) -> Inputs:
    """Return the inputs in float32."""
    query, key, value = given
    return query.float(), key.float(), value.float()


def causal(queries: int, keys: int, window: int | None = None) -> Tensor:
    """Return the mask of the last queries of a text; a window hides all keys before it."""
    seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    return (seen if window is None else seen.triu(keys - queries - window + 1))[None, None]


def torchs(given: Inputs, mask: Tensor | None, **settings: Any) -> Tensor:
    """Return the attention of torch's kernel."""
    query, key, value = given
    sharing = query.shape[1] // key.shape[1]
    key, value = (each.repeat_interleave(sharing, 1) for each in (key, value))
    return sdpa_attention_forward(MODULE, query, key, value, mask, **settings)[0]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    queries=st.integers(BLOCK_QUERIES, 3 * BLOCK_QUERIES),
    past=st.sampled_from([0, 1, 127, 128, 500]),
    window=st.sampled_from([None, None, 1, 40, 300]),
    shape=st.sampled_from([(2, 1, 32), (1, 3, 64), (2, 4, 128)]),
    scaling=st.sampled_from([None, 0.3]),
)
def test_the_result_is_that_of_float32_up_to_rounding(
    seed: int, queries: int, past: int, window: int | None, shape: tuple[int, int, int], scaling: float | None
) -> None:
    heads, sharing, size = shape
    given = inputs(seed, queries=queries, keys=past + queries, heads=heads, sharing=sharing, size=size)
    mask = causal(queries, past + queries, window)
    exact = torchs(widened(given), mask, scaling=scaling)
    got, _ = blocked_attention.blocked_attention(MODULE, *given, mask, scaling=scaling)
    assert got.shape == exact.shape == (1, queries, heads * sharing, size)
    limit = 2.5 * (torchs(given, mask, scaling=scaling).float() - exact).pow(2).mean().sqrt() + 0.001
    assert (got.float() - exact).pow(2).mean().sqrt() <= limit


def test_scores_that_are_rounded_once_would_have_a_larger_error() -> None:
    given, mask = inputs(1, queries=256, keys=768), causal(256, 768)
    exact = torchs(widened(given), mask)
    got = blocked_attention.blocked_attention(MODULE, *given, mask)[0]
    query, key, value = given
    scores = (query * 32**-0.5 @ key.transpose(2, 3)).masked_fill(~mask, -torch.inf)
    once = (scores.softmax(-1) @ value).transpose(1, 2)
    errors = [(each.float() - exact).pow(2).mean().sqrt() for each in (got, once)]
    assert errors[0] < 0.6 * errors[1]


@pytest.mark.parametrize("excess", [5.0, 60.0])
def test_two_keys_far_from_a_query_that_share_its_attention_keep_their_digits(excess: float) -> None:
    """Their scores exceed all near ones by `excess` nats and differ by a fifth of a nat, so neither is negligible."""
    query, key, value = inputs(10, queries=256, keys=1024, size=32)
    query, key = query * 0, key * 0
    query[..., 0] = 32**0.5
    key[..., 300, 0], key[..., 301, 0] = excess, excess
    key[..., 301, 1], query[..., 1] = 0.2, 32**0.5
    mask = causal(256, 1024)
    exact = torchs(widened((query, key, value)), mask)
    got, _ = blocked_attention.blocked_attention(MODULE, query, key, value, mask)
    assert (got.float() - exact).abs().max() <= 0.02


@pytest.mark.parametrize(("largest", "most_error"), [(3000.0, 0.01), (30000.0, 0.04)])
def test_scores_in_the_thousands_end_and_are_rounded_a_little_more(largest: float, most_error: float) -> None:
    """Bfloat16 numbers near them lie further apart than the excess that is computed again."""
    query, key, value = inputs(12, queries=256, keys=1024, size=32)
    query[..., 0] = key[..., 0] = largest**0.5 * 32**0.25
    mask = causal(256, 1024)
    exact = torchs(widened((query, key, value)), mask)
    got, _ = blocked_attention.blocked_attention(MODULE, query, key, value, mask)
    assert (got.float() - exact).pow(2).mean().sqrt() <= most_error


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    queries=st.integers(STEP_TOKENS, 3 * BLOCK_QUERIES),
    past=st.sampled_from([0, 128, 512, 896]),
    common=st.integers(0, 3 * BLOCK_QUERIES),
    shape=st.sampled_from([(2, 1, 32), (1, 3, 64), (2, 4, 128)]),
    excess=st.sampled_from([0.0, 40.0, 400.0]),
)
def test_a_query_has_the_same_result_whatever_queries_come_with_it(
    seed: int, queries: int, past: int, common: int, shape: tuple[int, int, int], excess: float
) -> None:
    heads, sharing, size = shape
    query, key, value = inputs(seed, queries=queries, keys=past + queries, heads=heads, sharing=sharing, size=size)
    # Some queries have a key with a much larger score than those near them.
    key[..., past // 2, 0], query[..., ::7, 0] = excess**0.5 * size**0.25, excess**0.5 * size**0.25
    mode = PrefillMode(
        least_chunk_tokens=512, largest_chunk_tokens=512, allows_chunks=True, continues_within_chunks=True,
        allows_batches=True,
    )  # fmt: skip
    start = max(0, mode.shared_tokens(past + min(common, queries - 1), past + queries) - past)
    mask = causal(queries, past + queries)
    whole, _ = blocked_attention.blocked_attention(MODULE, query, key, value, mask)
    rest, _ = blocked_attention.blocked_attention(MODULE, query[:, :, start:], key, value, mask[:, :, start:])
    assert torch.equal(whole[:, start:], rest)


@given(
    common=st.integers(0, 3000),
    rest=st.integers(1, 3000),
    chunk=st.sampled_from([128, 512, 1024]),
    is_exact=st.booleans(),
)
def test_a_prompt_continues_within_a_chunk_with_no_pass_or_block_of_few_tokens(
    common: int, rest: int, chunk: int, is_exact: bool
) -> None:
    mode = PrefillMode(
        least_chunk_tokens=chunk, largest_chunk_tokens=chunk, allows_chunks=True, continues_within_chunks=is_exact,
        allows_batches=True,
    )  # fmt: skip
    shared = mode.shared_tokens(common, common + rest)
    if not is_exact:
        assert shared == common // chunk * chunk
        return
    assert max(0, common - 2 * STEP_TOKENS) < shared <= common or not shared
    assert not shared or common + rest - shared >= STEP_TOKENS
    assert not shared % STEP_TOKENS


@given(start=st.integers(0, 200), rest=st.integers(1, 5000), chunk=st.sampled_from([32, 512, 1024]))
def test_passes_cover_the_rest_of_a_prompt_and_none_has_few_tokens(start: int, rest: int, chunk: int) -> None:
    mode = PrefillMode(
        least_chunk_tokens=chunk, largest_chunk_tokens=chunk, allows_chunks=True, continues_within_chunks=True,
        allows_batches=True,
    )  # fmt: skip
    length = STEP_TOKENS * start + rest
    start = mode.shared_tokens(STEP_TOKENS * start, length)
    passes = mode.passes(start, length)
    assert [at for first, end in passes for at in range(first, end)] == list(range(start, length))
    assert len(passes) == -(-(length - start) // chunk)
    assert all(min(STEP_TOKENS, length) <= end - first <= chunk for first, end in passes)


@pytest.mark.parametrize("chunk", ["24", "16", "whole"])
def test_chunks_of_other_sizes_are_not_continued(chunk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked_attention, "is_faster", lambda *_: True)
    path = save_model(CONFIGS["llama"], tmp_path)
    assert engine_of(path, prefill_chunk="32").prefill_mode.continues_within_chunks
    assert not engine_of(path, prefill_chunk=chunk).prefill_mode.continues_within_chunks


def test_scores_that_are_no_numbers_give_none() -> None:
    query, key, value = inputs(11, queries=256, keys=256)
    key[..., 3, :] = torch.nan
    key[..., 5, :] = torch.inf
    got, _ = blocked_attention.blocked_attention(MODULE, query, key, value, None)
    assert got.isnan().any()


def test_a_whole_prompt_has_no_mask() -> None:
    given = inputs(2, queries=300, keys=300)
    with_mask, _ = blocked_attention.blocked_attention(MODULE, *given, causal(300, 300))
    assert torch.equal(blocked_attention.blocked_attention(MODULE, *given, None)[0], with_mask)


def test_another_mask_of_the_same_shape_has_other_blocks() -> None:
    given = inputs(3, queries=256, keys=400)
    masks = [causal(256, 400), causal(256, 400, 50), causal(256, 400)]
    first, windowed, again = (blocked_attention.blocked_attention(MODULE, *given, mask)[0] for mask in masks)
    assert torch.equal(first, again)
    assert not torch.equal(first, windowed)


def test_the_number_of_threads_changes_no_bit() -> None:
    given, mask, threads = (
        inputs(4, queries=512, keys=4096, size=64, sharing=3),
        causal(512, 4096),
        torch.get_num_threads(),
    )
    try:
        results = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(blocked_attention.blocked_attention(MODULE, *given, mask)[0])
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize(
    ("queries", "dtype", "rows", "settings"),
    [
        (1, torch.bfloat16, 1, {}),
        (256, torch.float32, 1, {}),
        (256, torch.bfloat16, 2, {}),
        (256, torch.bfloat16, 1, {"is_causal": False}),
        (256, torch.bfloat16, 1, {"position_bias": torch.ones(1, 2, 256, 400)}),
    ],
)
def test_anything_else_is_left_to_torchs_kernel(
    queries: int, dtype: torch.dtype, rows: int, settings: dict[str, Any]
) -> None:
    query, key, value = (each.to(dtype).expand(rows, -1, -1, -1) for each in inputs(5, queries=queries, keys=400))
    mask = causal(queries, 400)
    if "position_bias" in settings:
        settings = {"position_bias": settings["position_bias"].to(dtype)}
    got, _ = blocked_attention.blocked_attention(MODULE, query, key, value, mask, **settings)
    assert torch.equal(got, torchs((query, key, value), mask, **settings))


def test_a_module_that_is_not_causal_sees_all_keys_without_a_mask() -> None:
    module: Any = torch.nn.Module()
    module.is_causal = False
    query, key, value = given = inputs(9, queries=256, keys=256)
    got, _ = blocked_attention.blocked_attention(module, query, key, value, None)
    assert torch.equal(got, torchs(given, None, is_causal=False))


def test_scores_that_only_torchs_kernel_refuses_are_refused() -> None:
    with pytest.raises(ValueError, match="softcap"):
        blocked_attention.blocked_attention(MODULE, *inputs(9, queries=256, keys=256), None, softcap=30.0)


def test_decoded_rows_are_computed_one_by_one_and_ended_ones_not_at_all() -> None:
    query, key, value = (each.repeat(4, 1, 1, 1) for each in inputs(8, queries=1, keys=200))
    query = query * torch.tensor([1.0, 2.0, 3.0, 4.0]).bfloat16().view(4, 1, 1, 1)
    mask = torch.arange(200) <= torch.tensor([199, 0, 5, 70])[:, None]
    got, _ = blocked_attention.blocked_attention(MODULE, query, key, value, mask[:, None, None])
    assert not got[1].any()
    for row in (0, 2, 3):
        of_row = query[row : row + 1], key[row : row + 1], value[row : row + 1]
        assert torch.equal(got[row : row + 1], torchs(of_row, mask[row : row + 1, None, None]))


def test_a_batch_computes_attention_for_its_open_rows_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked_attention, "is_faster", lambda *_: True)
    forward = engine_of(save_model(CONFIGS["llama"], tmp_path)).forward
    cache, _ = forward.prefill(torch.arange(2, 32)[None], chunk_tokens=None)
    batch, calls = DecodingRows(forward, rows=3, places=64), []
    for row in range(3):
        batch.fill(row, cache)

    def counted(*args: Any, **settings: Any) -> Any:
        calls.append(args)
        return sdpa_attention_forward(*args, **settings)

    monkeypatch.setattr(blocked_attention, "sdpa_attention_forward", counted)
    batch.extend(torch.tensor([5, 6, 7]), torch.tensor([1, 0, 1]))
    assert len(calls) == 2 * len(cache.layers)


def test_a_decoded_batch_with_a_bias_for_each_row_is_left_to_torchs_kernel() -> None:
    query, key, value = (each.repeat(3, 1, 1, 1) for each in inputs(8, queries=1, keys=20))
    mask = torch.arange(20).expand(3, 1, 1, 20) <= 15
    bias = torch.randn(3, 2, 1, 20, generator=torch.Generator().manual_seed(1)).bfloat16()
    got, _ = blocked_attention.blocked_attention(MODULE, query, key, value, mask, position_bias=bias)
    assert torch.equal(got, torchs((query, key, value), mask, position_bias=bias))


def test_a_model_that_is_trained_has_its_gradients() -> None:
    query, key, value = inputs(7, queries=256, keys=256)
    query.requires_grad_()
    attended, _ = blocked_attention.blocked_attention(MODULE, query, key, value, None)
    assert torch.autograd.grad(attended.sum(), query)[0].abs().max() > 0


def test_a_mask_that_is_added_and_a_query_that_sees_nothing_are_left_to_torchs_kernel() -> None:
    given, mask = inputs(6, queries=256, keys=400), causal(256, 400)
    added = torch.zeros(mask.shape, dtype=torch.bfloat16).masked_fill(~mask, -torch.inf)
    assert torch.equal(blocked_attention.blocked_attention(MODULE, *given, added)[0], torchs(given, added))
    mask[0, 0, 7] = False
    assert torch.equal(
        blocked_attention.blocked_attention(MODULE, *given, mask)[0].nan_to_num(), torchs(given, mask).nan_to_num()
    )


def engine_of(path: Path, **settings: Any) -> HfEngine:
    """Return an engine on the CPU in bfloat16."""
    return load_hf_engine(
        read_checkpoint(str(path)), tokenizer=Ids(), device="cpu", **{"dtype": "bfloat16", **settings}
    )


@pytest.mark.parametrize(
    ("settings", "is_faster", "attention"),
    [
        ({}, True, "blocked"),
        ({}, False, "sdpa"),
        ({"attention": "sdpa"}, True, "sdpa"),
        ({"attention": "eager"}, True, "eager"),
    ],
)
def test_only_a_free_choice_takes_blocks_and_only_where_they_are_faster(
    settings: dict[str, Any], is_faster: bool, attention: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocked_attention, "is_faster", lambda *_: is_faster)
    assert engine_of(save_model(CONFIGS["llama"], tmp_path), **settings).facts.attention == attention


def test_float32_and_a_model_without_torchs_kernel_take_none(tmp_path: Path) -> None:
    assert not blocked_attention.is_faster(torch.device("cpu"), torch.float32)
    assert not blocked_attention.is_faster(torch.device("cuda"), torch.bfloat16)
    assert engine_of(save_model(CONFIGS["gemma2"], tmp_path)).facts.attention == "eager"


@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral", "gemma3"])
def test_models_have_the_logits_of_torchs_kernel(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked_attention, "is_faster", lambda *_: True)
    path = save_model(CONFIGS[family], tmp_path)
    ids = torch.randint(2, 300, (1, 700), generator=torch.Generator().manual_seed(0))
    blocked, torchs_own = (engine_of(path, attention=name).forward for name in ("auto", "sdpa"))
    for chunk in (None, 256):
        got, expected = (forward.prefill(ids, chunk_tokens=chunk)[1] for forward in (blocked, torchs_own))
        assert not torch.equal(got, expected)
        assert (got - expected).abs().max() <= 0.1 * expected.std()


def states_of(cache: Any) -> list[Tensor]:
    """Return the keys and values of all layers."""
    return [state for layer in cache.layers for state in (layer.keys, layer.values)]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "yarn"])
def test_a_prompt_continues_a_cached_text_at_any_token_with_the_same_states(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocked_attention, "is_faster", lambda *_: True)
    engine, random = engine_of(save_model(CONFIGS[family], tmp_path)), torch.Generator().manual_seed(0)
    mode, cache = engine.prefill_mode, PrefixCache(engine.forward)
    assert mode.continues_within_chunks
    lengths = ((1, 700), (17, 20), (130, 700), (300, 310), (511, 900), (640, 641), (690, 699), (699, 720), (129, 129))
    for common, length in lengths:
        ids, other = torch.randint(2, 300, (2, 700), generator=random).tolist()
        cache.clear()
        alone = cache.prefill(ids, mode)
        expected = [state.clone() for state in states_of(alone.cache)]
        cache.clear()
        cache.prefill([*ids[:common], *other[:length]][:length], mode)
        got = cache.prefill(ids, mode)
        assert got.reused == mode.shared_tokens(common, 700) >= common - 2 * STEP_TOKENS
        assert torch.equal(got.logits, alone.logits)
        assert all(torch.equal(*pair) for pair in zip(states_of(got.cache), expected, strict=True))


ROUNDED_GELU = LlamaConfig(**SIZES, hidden_act="gelu_pytorch_tanh")
DBRX = DbrxConfig(
    vocab_size=320, d_model=64, n_heads=4, n_layers=2,
    attn_config={"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0},
    ffn_config={"ffn_hidden_size": 64, "moe_num_experts": 2, "moe_top_k": 1},
)  # fmt: skip
FALCON = FalconConfig(vocab_size=320, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, alibi=False)


@pytest.mark.parametrize(
    ("config", "is_faster", "attention"),
    [
        (CONFIGS["gemma3"], True, "blocked"),
        (CONFIGS["mistral"], True, "blocked"),
        (CONFIGS["llama"], False, "sdpa"),
        (ROUNDED_GELU, True, "blocked"),
        (DBRX, True, "blocked"),
        # Its code calls torch's kernel itself.
        (FALCON, True, "sdpa"),
    ],
    ids=["gemma3", "mistral", "torch", "gelu", "dbrx", "falcon"],
)
def test_models_that_may_compute_a_token_otherwise_beside_others_continue_at_the_end_of_a_chunk(
    config: Any, is_faster: bool, attention: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocked_attention, "is_faster", lambda *_: is_faster)
    engine = engine_of(save_model(config, tmp_path))
    assert engine.facts.attention == attention
    assert not engine.prefill_mode.continues_within_chunks
    assert engine.prefill_mode.shares_prefixes


def test_experts_of_a_nested_config_rule_batches_out(tmp_path: Path) -> None:
    assert not engine_of(save_model(DBRX, tmp_path)).prefill_mode.allows_batches


def test_an_infinite_state_of_one_prompt_does_not_reach_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zero times infinity is no number, so it spoils the states of earlier tokens, which the next prompt shares."""
    monkeypatch.setattr(blocked_attention, "is_faster", lambda *_: True)
    engine, random = engine_of(save_model(CONFIGS["llama"], tmp_path)), torch.Generator().manual_seed(0)
    model, mode, cache = engine.forward.model, engine.prefill_mode, PrefixCache(engine.forward)
    assert mode.continues_within_chunks
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 5] = 0
        model.model.embed_tokens.weight[299] = 0
        model.model.embed_tokens.weight[299, 5] = 1
        model.model.layers[0].self_attn.v_proj.weight[:, 5] = 3e38
    text, other = torch.randint(2, 299, (2, 200), generator=random).tolist()
    ids = [*text[:50], *other[50:]]
    alone = cache.prefill(ids, mode).logits.clone()
    assert alone.isfinite().all()
    cache.clear()
    assert cache.prefill([*text[:60], 299, *text[61:]], mode).logits.isnan().any()
    assert torch.equal(cache.prefill(ids, mode).logits, alone)


def test_a_hidden_key_that_is_no_number_spoils_no_query() -> None:
    query, key, value = inputs(13, queries=256, keys=256)
    exact = torchs((query, key, value), causal(256, 256))
    key[..., 200, :] = torch.nan
    got, _ = blocked_attention.blocked_attention(MODULE, query, key, value, causal(256, 256))
    assert (got[:, :200] - exact[:, :200]).abs().max() <= 0.1
    assert got[:, 200:].isnan().all()
