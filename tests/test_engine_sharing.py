"""What prompts share is computed once, and every answer is still that of `generate` on its prompt alone."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runs import calibrated
from tiny_models import CONFIGS, HYBRIDS, Ids, prompt, random_prompt, save_model

from fixtures.checkpoint import inspect
from fixtures.corpora import Corpora
from fixtures.engines import EngineError, execution, prefill, shelf
from fixtures.engines.answers import Answer
from fixtures.engines.hf import HfEngine, load
from fixtures.engines.prefixes import token_counts
from fixtures.prompts import Framing, load_tokenizer
from fixtures.records import Generation, Prompt
from fixtures.tasks import TASKS

SHARING = ("llama", "yarn", "qwen2", "qwen3", "mistral", "gemma2", "gemma3", "granite_hybrid", "lfm2", "bamba")
PLAIN = ("longrope", "jamba")
ANSWER = 5
TEXT = tuple(Random(7).randrange(2, 300) for _ in range(160))

Ready = Callable[..., HfEngine]


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Ready:
    """A family's engine with an empty shelf, loaded once for each way of batching."""
    torch.set_num_threads(1)
    paths: dict[str, Path] = {}
    made: dict[tuple[str, int], HfEngine] = {}

    def engine(family: str, batch_size: int = 1) -> HfEngine:
        if family not in paths:
            paths[family] = save_model((CONFIGS | HYBRIDS)[family], tmp_path_factory.mktemp(family))
        if (family, batch_size) not in made:
            checkpoint = inspect(str(paths[family]))
            made[family, batch_size] = load(checkpoint, tokenizer=Ids(), device="cpu", batch_size=batch_size)
        found = made[family, batch_size]
        found.shelf.clear()
        return found

    return engine


@contextmanager
def counted(engine: HfEngine) -> Iterator[list[int]]:
    """Positions that go into the first layer, one number for each pass."""
    seen: list[int] = []
    layers = engine.reader.model.get_decoder().layers

    def count(_: Any, args: tuple[Any, ...], inputs: dict[str, Any]) -> None:
        hidden = args[0] if args else inputs["hidden_states"]
        seen.append(hidden.shape[0] * hidden.shape[1])

    hook = layers[0].register_forward_pre_hook(count, with_kwargs=True)
    try:
        yield seen
    finally:
        hook.remove()


def own_greedy(engine: HfEngine, asked: Prompt) -> str:
    ids = torch.tensor([asked.token_ids])
    full = engine.reader.model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=asked.generation_tokens
    )
    return "".join(f"{i} " for i in full[0, ids.shape[1] :].tolist() if i not in engine.end_ids)


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


def questions(many: int, length: int = 3, context: Sequence[int] = TEXT) -> list[Prompt]:
    return [prompt([*context, *random_prompt(30 + at).token_ids[:length]], ANSWER) for at in range(many)]


@pytest.mark.parametrize("family", SHARING)
def test_six_questions_on_one_context_read_it_once(family: str, ready: Ready) -> None:
    asked = questions(6)
    done = list(ready(family).generate(asked))
    counts = token_counts([each.token_ids for each in asked])
    assert sum(count.computed for count in counts) < len(TEXT) + 20
    assert [generation.reused_tokens for generation in done] == [count.reused for count in counts]


@pytest.mark.parametrize("family", PLAIN)
def test_a_model_that_does_not_continue_exactly_reads_every_prompt_whole(family: str, ready: Ready) -> None:
    engine = ready(family)
    assert engine.facts.reuse == "none"
    assert {generation.reused_tokens for generation in engine.generate(questions(3))} == {0}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_recurrent_states_are_shared_only_where_a_probe_can_tell(dtype: str, tmp_path: Path) -> None:
    engine = load(inspect(str(save_model(HYBRIDS["lfm2"], tmp_path / "c"))), tokenizer=Ids(), device="cpu", dtype=dtype)
    assert engine.facts.reuse == {"float32": "prefixes", "bfloat16": "none"}[dtype]


@pytest.mark.parametrize("spec", ["full", "512"])
def test_six_queries_on_one_object_cost_little_more_than_one(spec: str) -> None:
    """The same answers as alone, also where the window of 512 ends before the values do."""
    torch.set_num_threads(1)
    path = calibrated(spec)
    tokenizer: Any = load_tokenizer(str(path))
    engine = load(inspect(str(path)), tokenizer=tokenizer, device="cpu")
    framing, task = Framing(tokenizer), TASKS["niah_multikey_2"]
    sample = task.sample(1024, 0, seed=0, tokenizer=framing, corpora=Corpora())
    lines = sample.context.splitlines()
    keys = [re.findall(r"for (\S+) is", lines[at * len(lines) // 6])[0] for at in range(6)]
    asked = []
    for key in keys:
        text, prefix = (
            task.prompts[part].format(context=sample.context, query=key) for part in ("template", "answer_prefix")
        )
        asked.append(framing.prompt(text, prefix, generation_tokens=8))
    alone: list[Generation] = []
    for each in asked:
        engine.shelf.clear()
        alone += engine.generate([each])
    engine.shelf.clear()
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
    full = engine.reader.model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=asked.generation_tokens
    )
    answer = Answer(asked, engine.tokenizer, engine.end_ids)
    for token in full[0, ids.shape[1] :].tolist():
        answer.take(token)
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
    monkeypatch.setattr(shelf, "QUESTION_TOKENS", 20)
    engine = ready(family)
    first, second = questions(2)
    list(engine.generate([first]))
    (generation,) = engine.generate([second])
    assert generation.reused_tokens == len(TEXT) + 3 - 20
    assert generation.text == own_greedy(engine, second)


def test_the_cache_of_another_text_is_given_back(ready: Ready) -> None:
    engine = ready("llama")
    list(engine.generate([random_prompt(50)]))
    held = engine.shelf._cache
    list(engine.generate([prompt([1, *random_prompt(51).token_ids])]))
    assert engine.shelf._cache is not held


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


def failing_above(engine: HfEngine, monkeypatch: pytest.MonkeyPatch, positions: int, *, rows: int = 99) -> list[int]:
    """A model whose memory ends at so many positions a pass; the sizes of all passes."""
    forward = engine.reader.model.forward
    sizes: list[int] = []

    def limited(*_: Any, **inputs: Any) -> Any:
        sizes.append(inputs["input_ids"].numel())
        if sizes[-1] > positions or inputs["input_ids"].shape[0] > rows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total ...")
        return forward(**inputs)

    monkeypatch.setattr(engine.reader.model, "forward", limited)
    return sizes


def test_a_batch_that_takes_too_much_memory_is_halved(ready: Ready, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ready("llama", 4)
    asked = [random_prompt(30 + at) for at in range(8)]
    alone = [own_greedy(engine, each) for each in asked]
    monkeypatch.setattr(engine, "most_tokens", engine.most_tokens)
    sizes = failing_above(engine, monkeypatch, 999, rows=2)
    assert [generation.text for generation in engine.generate(asked)] == alone
    # The second batch of four was refused once the halves were known to fit; prompts are of up to 37 tokens.
    assert max(sizes) <= 4 * 37
    assert engine.most_tokens < 4 * 33


def test_a_prompt_that_takes_too_much_memory_is_read_in_smaller_parts(
    ready: Ready, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ready("llama")
    (asked,) = questions(1)
    alone = own_greedy(engine, asked)
    monkeypatch.setattr(engine, "path", engine.path)
    monkeypatch.setattr(prefill, "LEAST_CHUNK", 8)
    sizes = failing_above(engine, monkeypatch, 50)
    (generation,) = engine.generate([asked])
    assert generation.text == alone
    assert engine.facts.prefill == "chunks of 40"
    assert [size for size in sizes if size > 1] == [163, 81, 40, 40, 40, 40, 3]


def test_running_out_of_memory_in_the_smallest_part_says_what_was_missing(
    ready: Ready, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ready("llama")
    monkeypatch.setattr(engine, "path", engine.path)
    monkeypatch.setattr(prefill, "LEAST_CHUNK", 32)
    failing_above(engine, monkeypatch, 10)
    said = (
        r"out of memory on cpu with a prompt of 163 tokens, alone and chunks of 40: 20.00 MiB more were asked for, "
        r"about [0-9.]+ MiB are needed, [0-9.]+ MiB of them for the cache; use shorter --lengths"
    )
    with pytest.raises(EngineError, match=said):
        list(engine.generate(questions(1)))


def test_what_is_kept_is_given_back_before_a_prompt_is_given_up(ready: Ready, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ready("llama")
    monkeypatch.setattr(engine, "path", engine.path)
    list(engine.generate(questions(1)))
    failing_above(engine, monkeypatch, 0)
    with pytest.raises(EngineError, match="out of memory"):
        list(engine.generate(questions(2)))
    assert engine.shelf.ids == ()


@pytest.mark.parametrize("batch_size", [1, 3])
def test_what_another_model_keeps_is_given_back_before_anything_gets_smaller(
    batch_size: int, ready: Ready, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, other = ready("llama", batch_size), ready("qwen2")
    list(other.generate(questions(1)))
    forward = engine.reader.model.forward

    def crowded(*_: Any, **inputs: Any) -> Any:
        if other.shelf.ids:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return forward(**inputs)

    monkeypatch.setattr(engine.reader.model, "forward", crowded)
    path, most = engine.path, engine.most_tokens
    assert len(list(engine.generate(questions(3)))) == 3
    assert (engine.path, engine.most_tokens) == (path, most)


@pytest.mark.parametrize(("asked", "said"), [("auto", "whole"), ("whole", "whole"), ("32", "chunks of 32")])
def test_the_prefill_chunk_is_what_was_asked_for(asked: str, said: str, tmp_path: Path, ready: Ready) -> None:
    checkpoint = inspect(str(save_model(CONFIGS["llama"], tmp_path / "c")))
    engine = load(checkpoint, tokenizer=Ids(), device="cpu", prefill_chunk=asked)
    assert engine.facts.prefill == said
    with counted(engine) as seen:
        list(engine.generate(questions(1)))
    assert max(seen) == (32 if asked == "32" else len(TEXT) + 3)


@pytest.mark.parametrize("family", ["longrope", "jamba"])
def test_a_prefill_chunk_that_changes_answers_is_refused(family: str, tmp_path: Path) -> None:
    checkpoint = inspect(str(save_model(CONFIGS[family], tmp_path / "c")))
    with pytest.raises(EngineError, match=r"--prefill-chunk: 64, but .* answers differently when it reads in parts"):
        load(checkpoint, tokenizer=Ids(), device="cpu", prefill_chunk="64")


def test_results_along_different_paths_are_told_apart(tmp_path: Path) -> None:
    checkpoint = inspect(str(save_model(CONFIGS["llama"], tmp_path / "c")))
    paths = [
        execution(
            checkpoint,
            engine="auto",
            device="cpu",
            dtype="auto",
            attention="auto",
            batch_size=0,
            prefill_chunk=chunk,
        )
        for chunk in ("auto", "whole", "512")
    ]
    assert all(one != other for one, other in itertools.combinations(paths, 2))
