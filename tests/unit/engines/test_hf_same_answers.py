"""An answer depends on the prompt and the settings alone: its logits are the same to the last bit in every company."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
import torch

from longctx.fixtures.engines.hf.batches import LEAST_PLACES, places_for
from longctx.fixtures.engines.hf.engine import HfEngine
from longctx.fixtures.records import Prompt
from tests.helpers.tiny_engines import engine_of
from tests.helpers.tiny_models import CONFIGS, HYBRIDS, prompt, random_prompt, save_model

FAMILIES = ("llama", "gemma3", "longrope", "jamba", "lfm2")
Logits = dict[Prompt, torch.Tensor]


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    yield
    torch.set_num_threads(1)


def some_prompts() -> list[Prompt]:
    """Return prompts of several lengths and answer lengths, most of which begin with parts of two texts."""
    rng = Random(3)
    texts = [tuple(rng.randrange(2, 300) for _ in range(420)) for _ in range(2)]
    prompts = [
        prompt([*text[:cut], *(rng.randrange(2, 300) for _ in range(rng.choice([3, 30])))], rng.choice([3, 9]))
        for text in texts
        for cut in (420, 415, 300, 140)
    ]
    return [*prompts, prompts[1], random_prompt(20, 4)]


def recorded(engine: HfEngine, calls: Sequence[Sequence[Prompt]]) -> Logits:
    """Return the logits (steps x vocabulary) of every answer."""
    steps: dict[Prompt, list[torch.Tensor]] = {}
    for call in calls:
        seen: dict[Prompt, list[torch.Tensor]] = {}
        engine.record_logits = lambda single, logits, seen=seen: seen.setdefault(single, []).append(logits.clone())
        assert len(list(engine.generate(list(dict.fromkeys(call))))) == len(set(call))
        for single, logits in seen.items():
            steps.setdefault(single, logits)
    return {single: torch.stack(logits) for single, logits in steps.items()}


def assert_same(expected: Logits, got: Logits) -> None:
    for single, logits in got.items():
        assert torch.equal(expected[single], logits), f"prompt of {len(single.token_ids)} tokens"


@pytest.mark.parametrize(("batch_size", "dtype"), [(4, "bfloat16"), (1, "float32")])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_do_not_depend_on_company_order_or_history(
    family: str, batch_size: int, dtype: str, tmp_path: Path
) -> None:
    path = save_model((CONFIGS | HYBRIDS)[family], tmp_path / "c", dtype=getattr(torch, dtype))
    prompts, rng = some_prompts(), Random(4)
    engine = engine_of(path, batch_size=batch_size, dtype=dtype)
    expected: Logits = {}
    for single in prompts:
        engine.prefix_cache.clear()
        expected |= recorded(engine, [[single]])
    shuffled = rng.sample(prompts, len(prompts))
    # A continued journal leaves out what was answered before, and another process has no cache.
    for calls in ([prompts[::-1]], [shuffled[:4], shuffled[4:]]):
        assert_same(expected, recorded(engine, calls))
    assert_same(expected, recorded(engine_of(path, batch_size=batch_size, dtype=dtype), [shuffled[3:]]))


def test_logits_do_not_depend_on_the_number_of_threads(tmp_path: Path) -> None:
    engine = engine_of(save_model(CONFIGS["llama"], tmp_path / "c"), batch_size=4)
    prompts = some_prompts()[:3]
    expected = recorded(engine, [prompts])
    engine.prefix_cache.clear()
    torch.set_num_threads(2)
    assert_same(expected, recorded(engine, [prompts]))


@pytest.mark.parametrize("family", ["llama", "gemma3", "lfm2"])
def test_likelihoods_do_not_depend_on_company_or_order(family: str, tmp_path: Path) -> None:
    path = save_model((CONFIGS | HYBRIDS)[family], tmp_path / "c", dtype=torch.bfloat16)
    engine, prompts = engine_of(path, dtype="bfloat16"), some_prompts()
    continuations = [random_prompt(50 + number).token_ids[: 1 + number % 5] for number in range(len(prompts))]
    pairs = list(zip(prompts, continuations, strict=True))
    expected = {}
    for single, tokens in pairs:
        engine.prefix_cache.clear()
        (expected[single, tokens],) = (score.log_probabilities for score in engine.score([single], [tokens]))
    for order in (pairs, pairs[::-1], [*pairs[5:], *pairs[:5]]):
        for (single, tokens), score in zip(order, engine.score(*zip(*order, strict=True)), strict=True):
            assert score.log_probabilities == expected[single, tokens]


def test_a_batch_shares_prefixes_and_reads_no_padding(tmp_path: Path) -> None:
    engine = engine_of(save_model(CONFIGS["llama"], tmp_path / "c"), batch_size=4)
    prompts = some_prompts()[:4]
    generations = list(engine.generate(prompts))
    assert sorted(generation.reused_tokens or 0 for generation in generations) == [0, 128, 256, 384]
    assert all(
        one.computed_tokens == one.prompt_tokens - (one.reused_tokens or 0) + (one.generated_tokens or 0) - 1
        for one in generations
    )


def test_the_places_of_a_row_follow_from_its_length_and_waste_little() -> None:
    for tokens in range(1, 20_000, 7):
        places = places_for(tokens)
        assert tokens <= places
        assert places <= max(LEAST_PLACES, 1.25 * tokens)
        assert places_for(places) == places
