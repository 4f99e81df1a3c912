"""Common prefixes are computed once, and every answer still equals that of `generate` on the single prompt."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longctx.fixtures.engines import EngineError
from longctx.fixtures.engines.hf import prefill
from longctx.fixtures.records import Prompt
from tests.helpers.counts import count, prefill_token_counts
from tests.helpers.tiny_engines import (
    ANSWER,
    CHUNK,
    TEXT,
    Ready,
    counted,
    engine_of,
    own_greedy,
    own_greedy_answer,
    questions,
)
from tests.helpers.tiny_models import HYBRIDS, prompt, random_prompt, save_model

SHARING = ("llama", "yarn", "qwen2", "qwen3", "mistral", "gemma2", "gemma3", "granite_hybrid", "lfm2", "bamba")
PLAIN = ("longrope", "jamba")


def branches(rng: Random) -> list[Prompt]:
    """Return a random tree of prompts: prefixes of one text or of other prompts, followed by random tokens."""
    prompts: list[tuple[int, ...]] = []
    for _ in range(rng.randrange(1, 6)):
        source = rng.choice([TEXT, *prompts])
        suffix = tuple(rng.randrange(2, 300) for _ in range(rng.choice([0, 0, 1, 1, 2, 9, 40])))
        prompts.append((*source[: rng.randrange(len(source) + 1)], *suffix) or TEXT[:1])
    return [prompt(ids, ANSWER) for ids in prompts]


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), calls=st.integers(1, 3))
@pytest.mark.parametrize(
    ("family", "batch_size"), [*((family, 1) for family in (*SHARING, *PLAIN)), ("llama", 3), ("qwen3", 3)]
)
def test_answers_after_shared_prefixes_equal_single_ones(
    family: str, batch_size: int, seed: int, calls: int, ready: Ready
) -> None:
    engine, rng = ready(family, batch_size), Random(seed)
    for _ in range(calls):
        prompts = branches(rng)
        with counted(engine) as pass_sizes:
            generations = list(engine.generate(prompts))
        if batch_size == 1:
            assert sum(count(generation.computed_tokens) for generation in generations) == sum(pass_sizes)
        for generation, single in zip(generations, prompts, strict=True):
            text, is_near_tie = own_greedy_answer(engine, single)
            assert generation.text == text or is_near_tie
        for generation in generations:
            positions = (
                generation.prompt_tokens - count(generation.reused_tokens) + count(generation.generated_tokens) - 1
            )
            assert generation.computed_tokens == positions or family == "longrope"


@pytest.mark.parametrize("family", SHARING)
def test_six_questions_on_one_context_read_it_once(family: str, ready: Ready) -> None:
    prompts = questions(6)
    generations = list(ready(family).generate(prompts))
    counts = prefill_token_counts([prompt.token_ids for prompt in prompts], chunk_tokens=CHUNK)
    assert sum(count.computed for count in counts) < len(TEXT) + 20
    assert [generation.reused_tokens for generation in generations] == [count.reused for count in counts]


@pytest.mark.parametrize("family", PLAIN)
def test_a_model_that_continues_a_cache_inexactly_shares_no_prefixes(family: str, ready: Ready) -> None:
    engine = ready(family)
    assert engine.facts.reuse == "none"
    assert {generation.reused_tokens for generation in engine.generate(questions(3))} == {0}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_recurrent_states_are_shared_only_in_a_dtype_that_the_probe_can_verify(dtype: str, tmp_path: Path) -> None:
    engine = engine_of(save_model(HYBRIDS["lfm2"], tmp_path / "c"), dtype=dtype)
    assert engine.facts.reuse == {"float32": "prefixes", "bfloat16": "none"}[dtype]


def test_the_next_call_continues_the_last_prompts_cache(ready: Ready) -> None:
    engine = ready("llama")
    first, second = questions(2)
    list(engine.generate([first]))
    (generation,) = engine.generate([second])
    assert (count(generation.reused_tokens), count(generation.computed_tokens)) == (
        len(TEXT),
        3 + count(generation.generated_tokens) - 1,
    )


@pytest.mark.parametrize("family", ["gemma3", "lfm2"])
def test_a_snapshot_of_windows_and_states_serves_the_next_call(
    family: str, ready: Ready, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer that cannot be cropped needs a snapshot before the next prompt is known."""
    monkeypatch.setattr(prefill, "QUESTION_TOKENS", 20)
    engine = ready(family)
    first, second = questions(2)
    list(engine.generate([first]))
    (generation,) = engine.generate([second])
    assert generation.reused_tokens == (len(TEXT) + 3 - 20) // CHUNK * CHUNK
    assert generation.text == own_greedy(engine, second)


def test_a_prompt_that_cannot_be_read_leaves_earlier_answers(ready: Ready) -> None:
    stream = ready("llama").generate([random_prompt(20), prompt([]), random_prompt(20)])
    assert next(stream).prompt_tokens == 20
    with pytest.raises(EngineError, match="no tokens"):
        next(stream)
