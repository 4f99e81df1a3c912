"""The hf engine's log-probabilities equal those of a plain forward pass, however the prompts are computed."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
import torch

from longctx.fixtures.engines import EngineError
from longctx.fixtures.engines.hf.engine import HfEngine
from longctx.fixtures.records import Prompt
from tests.helpers.tiny_engines import TEXT, Ready, Saved, counted, engine_of
from tests.helpers.tiny_models import CONFIGS, HYBRIDS, VOCABULARY, prompt

FAMILIES = tuple(CONFIGS | HYBRIDS)
CHUNKED = ("llama", "mistral", "gemma3")


def pairs(seed: int) -> tuple[list[Prompt], list[tuple[int, ...]]]:
    """Return prompts that share one text, some of them equal, in random order, with random continuations."""
    rng = Random(seed)
    ends = [tuple(rng.randrange(2, 300) for _ in range(size)) for size in (1, 3, 9)]
    drawn = [prompt([*TEXT[: rng.choice([3, 40, 97])], *rng.choice(ends)]) for _ in range(4)]
    prompts = [drawn[0], *drawn, drawn[2]]
    rng.shuffle(prompts)
    return prompts, [tuple(rng.randrange(2, 300) for _ in range(rng.choice([1, 2, 7]))) for _ in prompts]


def plain(engine: HfEngine, single: Prompt, continuation: Sequence[int]) -> torch.Tensor:
    """Return the logits at the continuation's tokens from one forward pass without a cache."""
    model: Any = engine.forward.model
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*single.token_ids, *continuation]]), use_cache=False).logits[0]
    return torch.as_tensor(logits[len(single.token_ids) - 1 : -1].float())


def assert_plain(engine: HfEngine, prompts: Sequence[Prompt], continuations: Sequence[Sequence[int]]) -> None:
    for single, tokens, score in zip(prompts, continuations, engine.score(prompts, continuations), strict=True):
        logits = plain(engine, single, tokens)
        expected = logits.log_softmax(-1)[range(len(tokens)), list(tokens)]
        assert torch.allclose(torch.tensor(score.log_probabilities), expected, atol=1e-4, rtol=0)
        assert score.is_greedy == tuple((logits.argmax(-1) == torch.tensor(tokens)).tolist())


@pytest.mark.parametrize("family", FAMILIES)
def test_log_probabilities_equal_those_of_a_plain_forward_pass(family: str, ready: Ready) -> None:
    for seed in (0, 1):
        engine = ready(family, 1 + 2 * seed)
        prompts, continuations = pairs(seed)
        assert_plain(engine, prompts, continuations)
        # The cache of the last call is continued, after an answer was decoded too.
        list(engine.generate(prompts[:1]))
        assert_plain(engine, prompts[::-1], continuations[::-1])


@pytest.mark.parametrize("family", CHUNKED)
def test_chunks_change_no_log_probability(family: str, saved: Saved) -> None:
    assert_plain(engine_of(saved(family), prefill_chunk="16", batch_size=2), *pairs(5))


def test_a_second_continuation_of_a_prompt_costs_its_own_tokens_only(ready: Ready) -> None:
    engine = ready("llama")
    with counted(engine) as pass_sizes:
        first, second = engine.score([prompt(TEXT)] * 2, [(5, 6, 7), (8, 9)])
    assert sum(pass_sizes) == first.computed_tokens + second.computed_tokens
    assert (first.computed_tokens, first.reused_tokens) == (len(TEXT) + 2, 0)
    assert (second.computed_tokens, second.reused_tokens) == (1, len(TEXT))


def test_ids_outside_the_vocabulary_are_refused(ready: Ready) -> None:
    with pytest.raises(EngineError, match=f"token id {VOCABULARY} is outside the model's vocabulary of {VOCABULARY}"):
        list(ready("llama").score([prompt(TEXT)], [(5, VOCABULARY)]))


def test_logits_that_are_no_numbers_are_an_error(ready: Ready) -> None:
    engine = ready("qwen2")
    hook = engine.forward.model.lm_head.register_forward_hook(lambda module, inputs, logits: logits * float("nan"))
    try:
        with pytest.raises(EngineError, match="logits are NaN or infinite"):
            list(engine.score([prompt(TEXT)], [(5, 6)]))
    finally:
        hook.remove()
