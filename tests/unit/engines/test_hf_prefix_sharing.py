"""What prompts share is computed once, and every answer is still that of `generate` on its prompt alone."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fixtures.checkpoints.checkpoint import read_checkpoint
from fixtures.corpora import Corpora
from fixtures.engines import EngineError
from fixtures.engines.hf import prefix_cache
from fixtures.engines.hf.engine import HfEngine, load
from fixtures.engines.hf.stopping import StopTracker
from fixtures.engines.prefix_order import prefill_token_counts
from fixtures.records import Generation, Prompt
from fixtures.tasks import TASKS
from fixtures.tokenization.load import load_tokenizer
from fixtures.tokenization.prompts import PromptFormatter
from tests.helpers.runs import calibrated
from tests.helpers.tiny_engines import ANSWER, TEXT, Ready, counted, own_greedy, questions, ready_in
from tests.helpers.tiny_models import HYBRIDS, Ids, prompt, random_prompt, save_model

SHARING = ("llama", "yarn", "qwen2", "qwen3", "mistral", "gemma2", "gemma3", "granite_hybrid", "lfm2", "bamba")
PLAIN = ("longrope", "jamba")


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Ready:
    return ready_in(tmp_path_factory)


def branches(rng: Random) -> list[Prompt]:
    """A random tree of prompts: beginnings of one text and of each other, each with some tokens of its own."""
    prompts: list[tuple[int, ...]] = []
    for _ in range(rng.randrange(1, 6)):
        source = rng.choice([TEXT, *prompts])
        own = tuple(rng.randrange(2, 300) for _ in range(rng.choice([0, 0, 1, 1, 2, 9, 40])))
        prompts.append((*source[: rng.randrange(len(source) + 1)], *own) or TEXT[:1])
    return [prompt(each, ANSWER) for each in prompts]


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), calls=st.integers(1, 3))
@pytest.mark.parametrize("family", [*SHARING, *PLAIN])
def test_any_prompts_in_any_order_are_answered_as_each_alone(family: str, seed: int, calls: int, ready: Ready) -> None:
    engine, rng = ready(family), Random(seed)
    for _ in range(calls):
        asked = branches(rng)
        with counted(engine) as seen:
            done = list(engine.generate(asked))
        assert sum(generation.computed_tokens for generation in done) == sum(seen)
        assert [generation.text for generation in done] == [own_greedy(engine, each) for each in asked]
        for generation in done:
            through = generation.prompt_tokens - generation.reused_tokens + generation.generated_tokens - 1
            assert generation.computed_tokens == through or family == "longrope"


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), calls=st.integers(1, 2))
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_batches_over_what_they_share_are_answered_as_each_alone(
    family: str, seed: int, calls: int, ready: Ready
) -> None:
    engine, rng = ready(family, 3), Random(seed)
    for _ in range(calls):
        asked = branches(rng)
        with counted(engine) as seen:
            done = list(engine.generate(asked))
        assert sum(generation.computed_tokens for generation in done) == sum(seen)
        assert [generation.text for generation in done] == [own_greedy(engine, each) for each in asked]


@pytest.mark.parametrize("family", SHARING)
def test_six_questions_on_one_context_read_it_once(family: str, ready: Ready) -> None:
    asked = questions(6)
    done = list(ready(family).generate(asked))
    counts = prefill_token_counts([each.token_ids for each in asked])
    assert sum(count.computed for count in counts) < len(TEXT) + 20
    assert [generation.reused_tokens for generation in done] == [count.reused for count in counts]


@pytest.mark.parametrize("family", PLAIN)
def test_a_model_that_does_not_continue_exactly_reads_every_prompt_whole(family: str, ready: Ready) -> None:
    engine = ready(family)
    assert engine.facts.reuse == "none"
    assert {generation.reused_tokens for generation in engine.generate(questions(3))} == {0}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_recurrent_states_are_shared_only_where_a_probe_can_tell(dtype: str, tmp_path: Path) -> None:
    engine = load(
        read_checkpoint(str(save_model(HYBRIDS["lfm2"], tmp_path / "c"))), tokenizer=Ids(), device="cpu", dtype=dtype
    )
    assert engine.facts.reuse == {"float32": "prefixes", "bfloat16": "none"}[dtype]


@pytest.mark.parametrize("spec", ["full", "512"])
def test_six_queries_on_one_object_cost_little_more_than_one(spec: str) -> None:
    """The same answers as alone, also where the window of 512 ends before the values do."""
    torch.set_num_threads(1)
    path = calibrated(spec)
    tokenizer: Any = load_tokenizer(str(path))
    engine = load(read_checkpoint(str(path)), tokenizer=tokenizer, device="cpu")
    formatter, task = PromptFormatter(tokenizer), TASKS["niah_multikey_2"]
    sample = task.sample(1024, 0, seed=0, tokenizer=formatter, corpora=Corpora())
    lines = sample.context.splitlines()
    keys = [re.findall(r"for (\S+) is", lines[at * len(lines) // 6])[0] for at in range(6)]
    asked = []
    for key in keys:
        text, prefix = (
            task.prompts[part].format(context=sample.context, query=key) for part in ("template", "answer_prefix")
        )
        asked.append(formatter.prompt(text, prefix, generation_tokens=8))
    alone: list[Generation] = []
    for each in asked:
        engine.prefix_cache.clear()
        alone += engine.generate([each])
    engine.prefix_cache.clear()
    with counted(engine) as seen:
        together = list(engine.generate(asked))
    assert (
        [each.text for each in together] == [each.text for each in alone] == [own_text(engine, each) for each in asked]
    )
    assert sum(each.computed_tokens for each in together) == sum(seen)
    assert sum(seen) < 1.6 * len(asked[0].token_ids)
    assert sum(each.text.strip(" .").isdigit() for each in together) == (6 if spec == "full" else 3)


def own_text(engine: HfEngine, asked: Prompt) -> str:
    """As `own_greedy`, decoded as an answer is."""
    ids = torch.tensor([asked.token_ids])
    full = engine.forward.model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=asked.generation_tokens
    )
    answer = StopTracker(asked, engine.tokenizer, engine.end_ids)
    for token in full[0, ids.shape[1] :].tolist():
        answer.add_token(token)
    return answer.text


def test_the_next_call_goes_on_from_the_last_prompt(ready: Ready) -> None:
    engine = ready("llama")
    first, second = questions(2)
    list(engine.generate([first]))
    (generation,) = engine.generate([second])
    assert (generation.reused_tokens, generation.computed_tokens) == (len(TEXT), 3 + generation.generated_tokens - 1)


@pytest.mark.parametrize("family", ["gemma3", "lfm2"])
def test_windows_and_states_keep_a_bookmark_for_the_next_call(
    family: str, ready: Ready, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be cut has to be kept before anybody knows that it will be asked for."""
    monkeypatch.setattr(prefix_cache, "QUESTION_TOKENS", 20)
    engine = ready(family)
    first, second = questions(2)
    list(engine.generate([first]))
    (generation,) = engine.generate([second])
    assert generation.reused_tokens == len(TEXT) + 3 - 20
    assert generation.text == own_greedy(engine, second)


def test_the_cache_of_another_text_is_given_back(ready: Ready) -> None:
    engine = ready("llama")
    list(engine.generate([random_prompt(50)]))
    held = engine.prefix_cache._cache
    list(engine.generate([prompt([1, *random_prompt(51).token_ids])]))
    assert engine.prefix_cache._cache is not held


def test_answers_stand_in_the_order_of_the_prompts(ready: Ready) -> None:
    asked = [*questions(2), random_prompt(20, 3), *questions(4)[2:], random_prompt(33, 2)]
    done = list(ready("llama").generate(asked))
    assert [each.prompt_tokens for each in done] == [len(each.token_ids) for each in asked]
    assert sum(each.reused_tokens > 0 for each in done) == 3


def test_a_prompt_that_cannot_be_read_does_not_take_earlier_answers_along(ready: Ready) -> None:
    stream = ready("llama").generate([random_prompt(20), prompt([]), random_prompt(20)])
    assert next(stream).prompt_tokens == 20
    with pytest.raises(EngineError, match="no tokens"):
        next(stream)


def test_relatives_are_batched_among_themselves(ready: Ready, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ready("llama", 3)
    strangers = [prompt([first, *random_prompt(40 + first).token_ids], ANSWER) for first in (2, 3)]
    asked = [strangers[0], *questions(4), strangers[1]]
    batches: list[list[int]] = []
    run = engine._run

    def watched(batch: list[Prompt], depths: tuple[int, ...]) -> list[Generation]:
        batches.append([asked.index(each) for each in batch])
        return run(batch, depths)

    monkeypatch.setattr(engine, "_run", watched)
    done = list(engine.generate(asked))
    assert batches == [[0], [1, 2, 3], [4], [5]]
    assert [generation.reused_tokens for generation in done] == [0, 0, len(TEXT), len(TEXT), len(TEXT), 0]
