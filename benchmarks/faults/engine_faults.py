"""Faults of a running engine: its attention, its positions, its prefix cache, and the tokens that an answer may take.

`_change_attention` changes the queries, keys, values and mask of every attention.
"""

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.masking_utils import AttentionMaskInterface, eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from benchmarks.faults.checkpoint_faults import CHECKPOINT_FAULTS, Fault, FaultError
from longctx.fixtures.engines.hf.engine import HfEngine
from longctx.fixtures.engines.hf.prefill import PrefixCache
from longctx.fixtures.engines.prefix_order import Ids
from longctx.fixtures.records import Generation, Prompt

KEY_STRIDE = 4
# The last keys are not compressed yet.
UNCOMPRESSED_TOKENS = 32
BFLOAT16_BITS = 8
STALE_BLOCK = 64
_NUMBERS = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFault(Fault):
    """A fault of a running engine, which leaves all files as they are."""

    inject: Callable[[HfEngine, float], None]
    """Break a loaded engine; raises FaultError for a model that has nothing to break."""


_Injection = Callable[[HfEngine, float], None]
ENGINE_FAULTS: dict[str, EngineFault] = {}


def find_fault(name: str) -> Fault:
    """Return a fault by name; raises FaultError."""
    faults: dict[str, Fault] = {**CHECKPOINT_FAULTS, **ENGINE_FAULTS}
    if name not in faults:
        raise FaultError(f"unknown {name!r}; known are {', '.join(faults)}")
    return faults[name]


def _fault(name: str, summary: str, *, threads: str, scale: str, usual: float) -> Callable[[_Injection], _Injection]:
    """Enter the decorated function in ENGINE_FAULTS."""

    def enter(inject: _Injection) -> _Injection:
        sources = tuple(threads.split())
        ENGINE_FAULTS[name] = EngineFault(
            name=name, summary=summary, threads=sources, scale=scale, usual=usual, inject=inject
        )
        return inject

    return enter


@dataclass(frozen=True, slots=True, kw_only=True)
class _AttentionInputs:
    """The inputs of one layer's attention."""

    query: Tensor
    """Batch x heads x queries x head size."""
    key: Tensor
    """Batch x key heads x keys x head size; the last keys belong to the queries."""
    value: Tensor
    mask: Tensor
    """Added to the scores; batch x 1 (or heads) x queries x keys."""
    scaling: float
    layer: int
    is_sliding: bool
    """True for a layer with a sliding window."""

    @property
    def is_decoding(self) -> bool:
        return self.query.shape[2] == 1

    @property
    def cached(self) -> int:
        """The number of keys from earlier passes."""
        return self.key.shape[2] - self.query.shape[2]

    @property
    def places(self) -> Tensor:
        """The numbers of all keys."""
        return torch.arange(self.key.shape[2], device=self.mask.device)

    @property
    def continues(self) -> bool:
        """True for a part of a prompt that follows cached tokens."""
        return self.cached > 0 and not self.is_decoding

    def with_bias(self, is_biased: Tensor, bias: float | Tensor) -> "_AttentionInputs":
        """Return the inputs with a bias on some scores; negative infinity removes keys."""
        added = self.mask + torch.where(is_biased, bias, 0.0).to(self.mask.dtype)
        return replace(self, mask=added.clamp(min=torch.finfo(self.mask.dtype).min))

    def with_cached_bias(self, bias: float | Tensor) -> "_AttentionInputs":
        """Return the inputs with a bias on the cached keys; a tensor is batch x heads x queries x 1."""
        return self.with_bias(self.places < self.cached, bias)

    def cached_log_sums(self) -> Tensor:
        """Return the logarithm of the summed exponentials of the cached keys' scores: batch x heads x queries x 1."""
        key = self.key.repeat_interleave(self.query.shape[1] // self.key.shape[1], dim=1)
        scores = (self.query.float() @ key.float().transpose(2, 3)) * self.scaling + self.mask.float()
        return scores[..., : self.cached].logsumexp(dim=-1, keepdim=True)


_Change = Callable[[_AttentionInputs], _AttentionInputs]


def _change_attention(engine: HfEngine, change: _Change) -> None:
    """Call `change` on the inputs of every attention of the model; raises FaultError if that is impossible."""
    model = engine.loaded.model
    original = model.config.get_text_config(decoder=True)._attn_implementation
    name = f"fault_{next(_NUMBERS)}"

    def changed(
        module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **settings: Any
    ) -> Any:
        if attention_mask is None:
            raise FaultError(f"{type(module).__name__}: has no mask to change; choose another checkpoint")
        inputs = _AttentionInputs(
            query=query,
            key=key,
            value=value,
            mask=attention_mask[..., : key.shape[2]],
            scaling=settings.get("scaling") or query.shape[-1] ** -0.5,
            layer=module.layer_idx,
            is_sliding=getattr(module, "sliding_window", None) is not None,
        )
        inputs = change(inputs)
        eager: Any = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
        compute: Any = ALL_ATTENTION_FUNCTIONS.get_interface(original, eager)
        return compute(module, inputs.query, inputs.key, inputs.value, inputs.mask, **settings)

    AttentionInterface.register(name, changed)
    AttentionMaskInterface.register(name, eager_mask)
    try:
        model.set_attn_implementation(name)
    except (ValueError, AttributeError) as error:
        raise FaultError(f"{type(model).__name__}: its attention cannot be replaced ({error})") from error


def _fading(strength: float) -> float:
    """Return the bias that reduces the weight of keys by this share."""
    return math.log1p(-strength) if strength < 1 else -math.inf


def _require_window(engine: HfEngine) -> None:
    if not getattr(engine.loaded.model.config.get_text_config(decoder=True), "sliding_window", None):
        raise FaultError("the model has no sliding window; choose a checkpoint with one, such as Gemma 3")


@_fault("window_off_by_one", "sliding window longer than the model's", scale="tokens, from 1 to 16", usual=1 / 16,
    threads="transformers#39408 transformers#29623 vllm#3385 sglang#26147")  # fmt: skip
def _widen_window(engine: HfEngine, strength: float) -> None:
    _require_window(engine)
    config = engine.loaded.model.config.get_text_config(decoder=True)
    config.sliding_window += max(1, round(16 * strength))
    engine.prefix_cache.clear()


@_fault("isolated_chunks", "chunked prefill that sees only its own chunk", usual=1.0,
    scale="share of the earlier chunks' weight that is lost", threads="imp#114 imp#117")  # fmt: skip
def _isolate_chunks(engine: HfEngine, strength: float) -> None:
    def change(inputs: _AttentionInputs) -> _AttentionInputs:
        return inputs.with_cached_bias(_fading(strength)) if inputs.continues else inputs

    _change_attention(engine, change)


@_fault("merge_stride", "merge of partial attention reads the wrong stride from the second chunk on",
    scale="share of the error", usual=1.0, threads="vllm#26042")  # fmt: skip
def _merge_with_wrong_stride(engine: HfEngine, strength: float) -> None:
    def change(inputs: _AttentionInputs) -> _AttentionInputs:
        if not inputs.continues:
            return inputs
        right = inputs.cached_log_sums()
        # Those of other tokens and heads.
        wrong = right.transpose(1, 2).reshape(right.shape)
        return inputs.with_cached_bias(strength * (wrong - right))

    _change_attention(engine, change)


@_fault("merge_base_two", "base-2 log-sum-exp merged as a natural one on hits of the prefix cache",
    scale="share of the error", usual=1.0, threads="vllm#52796 sglang#40903 sglang#35045")  # fmt: skip
def _merge_in_base_two(engine: HfEngine, strength: float) -> None:
    cache, factor = engine.prefix_cache, strength * (1 / math.log(2) - 1)

    def change(inputs: _AttentionInputs) -> _AttentionInputs:
        # `ids` holds the reused prefix until the rest of the prompt is computed.
        if not (inputs.continues and cache.ids):
            return inputs
        return inputs.with_cached_bias(factor * inputs.cached_log_sums())

    _change_attention(engine, change)


@_fault("stale_state", "state of another text reused on hits of the prefix cache", scale="tokens, up to 64", usual=0.25,
    threads="vllm#43559 vllm#53912 vllm#48375 LMCache#2863")  # fmt: skip
def _reuse_stale_state(engine: HfEngine, strength: float) -> None:
    cache = _StalePrefixCache(engine.forward)
    cache.stale_tokens = max(1, round(strength * STALE_BLOCK))
    engine.prefix_cache = cache


@_fault("fp8_cache", "keys and values rounded to FP8 without a scale", scale="share of the rounding error", usual=1.0,
    threads="vllm#23813 flash-attention#104 flash-attention#122")  # fmt: skip
def _store_cache_in_fp8(engine: HfEngine, strength: float) -> None:
    def rounded(tensor: Tensor) -> Tensor:
        coarse = tensor.clamp(-448, 448).to(torch.float8_e4m3fn).to(tensor.dtype)
        return tensor + strength * (coarse - tensor)

    _change_attention(engine, lambda inputs: replace(inputs, key=rounded(inputs.key), value=rounded(inputs.value)))


@_fault("bfloat16_positions", "rotary positions computed in bfloat16", scale="precision; each halving adds a bit",
    usual=1.0, threads="transformers#29285 sglang-jax#1473 candle#3520")  # fmt: skip
def _round_positions_to_bfloat16(engine: HfEngine, strength: float) -> None:
    bits = BFLOAT16_BITS + round(math.log2(1 / strength))

    def rounded(positions: Tensor) -> Tensor:
        exact = positions.double()
        unit = torch.exp2(torch.floor(torch.log2(exact.clamp(min=1))) - (bits - 1))
        return ((exact / unit).round() * unit).float()

    _change_positions(engine, rounded)


@_fault("decode_roll", "sliding cache rolled wrongly while decoding", usual=1.0,
    scale="share of the answer's weight that is lost",
    threads="transformers#37574 transformers#38046 litgpt#2153")  # fmt: skip
def _roll_window_wrongly(engine: HfEngine, strength: float) -> None:
    _require_window(engine)
    decoded: defaultdict[int, int] = defaultdict(int)

    def change(inputs: _AttentionInputs) -> _AttentionInputs:
        if not inputs.is_sliding:
            return inputs
        decoded[inputs.layer] = decoded[inputs.layer] + 1 if inputs.is_decoding else 0
        # The newest slot is overwritten, so the earlier tokens of the answer are lost.
        age = inputs.key.shape[2] - 1 - inputs.places
        return inputs.with_bias((age > 0) & (age < decoded[inputs.layer]), _fading(strength))

    _change_attention(engine, change)


@_fault("clamped_positions", "one position for all tokens beyond a length", threads="vllm#2064",
    scale="share of the claimed length that is lost", usual=0.5)  # fmt: skip
def _clamp_positions(engine: HfEngine, strength: float) -> None:
    claimed = engine.checkpoint.claimed_length
    if claimed is None:
        raise FaultError("config.json claims no length; choose a checkpoint with max_position_embeddings")
    last = max(1, round(claimed * (1 - strength)))
    _change_positions(engine, lambda positions: positions.clamp(max=last))


@_fault("short_answers", "too few tokens for thoughts and answers", threads="sieval#11",
    scale="share of the tokens that is lost", usual=0.5)  # fmt: skip
def _shorten_answers(engine: HfEngine, strength: float) -> None:
    generate = engine.generate

    def shortened(prompts: Sequence[Prompt]) -> Iterator[Generation]:
        lengths = [max(1, round(prompt.generation_tokens * (1 - strength))) for prompt in prompts]
        shorter = [replace(prompt, generation_tokens=length) for prompt, length in zip(prompts, lengths, strict=True)]
        return generate(shorter)

    engine.thinking_tokens = round(engine.thinking_tokens * (1 - strength))
    engine.generate = shortened  # type: ignore[method-assign]  # one engine is broken, not its class


@_fault("dropped_keys", "every fourth key lost by compression of the cache", threads="arXiv:2609.36322",
    scale="share of these keys' weight that is lost", usual=1.0)  # fmt: skip
def _drop_every_fourth_key(engine: HfEngine, strength: float) -> None:
    def change(inputs: _AttentionInputs) -> _AttentionInputs:
        if inputs.is_sliding:
            return inputs
        queries = inputs.places[inputs.cached :, None]
        is_dropped = (inputs.places % KEY_STRIDE == 0) & (inputs.places < queries - UNCOMPRESSED_TOKENS)
        return inputs.with_bias(is_dropped, _fading(strength))

    _change_attention(engine, change)


def _change_positions(engine: HfEngine, change: Callable[[Tensor], Tensor]) -> None:
    """Change the positions that go into every rotary embedding of the model."""

    def before(module: Any, args: tuple[Any, ...], inputs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if "position_ids" in inputs:
            return args, inputs | {"position_ids": change(inputs["position_ids"])}
        return (args[0], change(args[1]), *args[2:]), inputs

    rotary = [module for name, module in engine.loaded.model.named_modules() if name.endswith("rotary_emb")]
    if not rotary:
        raise FaultError("the model has no rotary positions; choose another checkpoint")
    for module in rotary:
        module.register_forward_pre_hook(before, with_kwargs=True)


class _StalePrefixCache(PrefixCache):
    """A prefix cache that reuses, on a hit, the state of another text."""

    stale_tokens = STALE_BLOCK

    def _restore_common_prefix(self, ids: Ids) -> int:
        before = [] if self._cache is None else list(self._cache.layers)
        tensors = [(layer.keys, layer.values) if type(layer) is DynamicLayer else None for layer in before]
        length = super()._restore_common_prefix(ids)
        if not length or self._cache is None:
            return length
        for index, old in enumerate(tensors):
            if old is not None:
                layer: Any = self._cache.layers[index]
                layer.keys, layer.values = (_with_stale_end(tensor, length, self.stale_tokens) for tensor in old)
            elif type(before[index]) is not DynamicSlidingWindowLayer:
                # A recurrent state as the previous text left it.
                self._cache.layers[index] = before[index]
        return length


def _with_stale_end(old: Any, length: int, block: int) -> Tensor:
    """Return the first `length` keys (batch x heads x keys x size); the last ones are those of the text behind them."""
    stale = old[:, :, length : length + min(block, length)]
    return torch.cat([old[:, :, : length - stale.shape[2]], stale], dim=2)
