"""Common prefixes are computed once, and every answer still equals that of `generate` on the single prompt."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longctx.fixtures.corpora import Corpora
from longctx.fixtures.engines import EngineError
from longctx.fixtures.engines.answers import StopTracker
from longctx.fixtures.engines.hf import prefill
from longctx.fixtures.engines.hf.engine import HfEngine
from longctx.fixtures.records import Generation, Prompt
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tokenization.load import load_tokenizer
from longctx.fixtures.tokenization.prompts import PromptFormatter
from tests.helpers.counts import count, prefill_token_counts
from tests.helpers.runs import calibration_checkpoint
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
@pytest.mark.parametrize("family", [*SHARING, *PLAIN])
def test_answers_after_shared_prefixes_equal_single_ones(family: str, seed: int, calls: int, ready: Ready) -> None:
    engine, rng = ready(family), Random(seed)
    for _ in range(calls):
        prompts = branches(rng)
        with counted(engine) as pass_sizes:
            generations = list(engine.generate(prompts))
        assert sum(count(generation.computed_tokens) for generation in generations) == sum(pass_sizes)
        for generation, single in zip(generations, prompts, strict=True):
            text, is_near_tie = own_greedy_answer(engine, single)
            assert generation.text == text or is_near_tie
        for generation in generations:
            positions = (
                generation.prompt_tokens - count(generation.reused_tokens) + count(generation.generated_tokens) - 1
            )
            assert generation.computed_tokens == positions or family == "longrope"


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), calls=st.integers(1, 2))
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_answers_of_batches_with_a_shared_prefix_equal_single_ones(
    family: str, seed: int, calls: int, ready: Ready
) -> None:
    engine, rng = ready(family, 3), Random(seed)
    for _ in range(calls):
        prompts = branches(rng)
        generations = list(engine.generate(prompts))
        assert [generation.text for generation in generations] == [own_greedy(engine, prompt) for prompt in prompts]


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


def test_six_queries_on_one_object_cost_little_more_than_one() -> None:
    """The answers equal those of single prompts, although the window of 512 does not reach all values."""
    path = calibration_checkpoint("512")
    tokenizer: Any = load_tokenizer(str(path))
    engine = engine_of(path, tokenizer=tokenizer)
    formatter, task = PromptFormatter(tokenizer), TASKS["niah_multikey_2"]
    sample = task.sample(1024, 0, seed=0, tokenizer=formatter, corpora=Corpora())
    lines = sample.context.splitlines()
    keys = [re.findall(r"for (\S+) is", lines[rank * len(lines) // 6])[0] for rank in range(6)]
    prompts = []
    for key in keys:
        text, prefix = (
            task.prompts[part].format(context=sample.context, query=key) for part in ("template", "answer_prefix")
        )
        prompts.append(formatter.prompt(text, prefix, generation_tokens=8))
    alone: list[Generation] = []
    for single in prompts:
        engine.prefix_cache.clear()
        alone += engine.generate([single])
    engine.prefix_cache.clear()
    with counted(engine) as pass_sizes:
        together = list(engine.generate(prompts))
    assert texts(together) == texts(alone) == [own_text(engine, prompt) for prompt in prompts]
    assert sum(count(generation.computed_tokens) for generation in together) == sum(pass_sizes)
    assert sum(pass_sizes) < 2.8 * len(prompts[0].token_ids)
    assert sum(text.strip(" .").isdigit() for text in texts(together)) == 3


def texts(generations: list[Generation]) -> list[str]:
    return [generation.text for generation in generations]


def own_text(engine: HfEngine, prompt: Prompt) -> str:
    """Return the answer that `generate` gives to one prompt, decoded as the engine decodes its own."""
    ids = torch.tensor([prompt.token_ids])
    full = engine.forward.model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=prompt.generation_tokens
    )
    answer = StopTracker(prompt, engine.tokenizer, engine.end_ids)
    for token in full[0, ids.shape[1] :].tolist():
        answer.add_token(token)
    return answer.text


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
