"""The hf engine on tiny checkpoints, the answers of `generate` there, and prompts with a common text."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.engines.hf.engine import HfEngine, load_hf_engine
from longctx.fixtures.engines.hf.prefill import FLOAT32_PROBE_LIMIT
from longctx.fixtures.engines.hf.settings import HfSettings
from longctx.fixtures.records import Prompt
from tests.helpers.tiny_models import CONFIGS, HYBRIDS, Ids, prompt, random_prompt, save_model

# Lengths within, across and beyond the window of 32; the second answer passes the switch of longrope.
PROMPTS = [random_prompt(33, 5), random_prompt(90, 12), random_prompt(70, 20), random_prompt(17, 6)]
ANSWER = 5
# Short prompts take several chunks, and TEXT takes whole ones.
CHUNK = 16
TEXT = tuple(Random(7).randrange(2, 300) for _ in range(160))

Saved = Callable[[str], Path]
Ready = Callable[..., HfEngine]


def saved_in(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """Return a function that saves a family's checkpoint on first use and returns its directory."""
    made: dict[str, Path] = {}

    def directory(family: str) -> Path:
        if family not in made:
            made[family] = save_model(CONFIGS[family], tmp_path_factory.mktemp(family))
        return made[family]

    return directory


def ready_in(tmp_path_factory: pytest.TempPathFactory) -> Ready:
    """Return a function that loads an engine on first use, and returns it with an empty prefix cache.

    Engines read in chunks of CHUNK, except where a model must read whole prompts.
    """
    paths: dict[str, Path] = {}
    made: dict[tuple[str, int], HfEngine] = {}

    def engine(family: str, batch_size: int = 1) -> HfEngine:
        if family not in paths:
            paths[family] = save_model((CONFIGS | HYBRIDS)[family], tmp_path_factory.mktemp(family))
        if (family, batch_size) not in made:
            checkpoint = read_checkpoint(str(paths[family]))
            loaded = load_hf_engine(checkpoint, HfSettings(device="cpu", batch_size=batch_size), tokenizer=Ids())
            if loaded.prefill_mode.shares_prefixes:
                loaded.prefill_mode = replace(loaded.prefill_mode, least_chunk_tokens=CHUNK, largest_chunk_tokens=CHUNK)
            made[family, batch_size] = loaded
        made[family, batch_size].prefix_cache.clear()
        return made[family, batch_size]

    return engine


def engine_of(path: Path, *, tokenizer: Any = None, **settings: Any) -> HfEngine:
    """Return an engine on the CPU, unless the settings name another device."""
    chosen = HfSettings(**{"device": "cpu", **settings})
    return load_hf_engine(read_checkpoint(str(path)), chosen, tokenizer=tokenizer or Ids())


def own_greedy(engine: HfEngine, single: Prompt) -> str:
    """Return the answer of the model's own `generate` to one prompt, without the end-of-text token."""
    return own_greedy_answer(engine, single)[0]


def own_greedy_answer(engine: HfEngine, single: Prompt) -> tuple[str, bool]:
    """Return the same, and True if a token of it is as likely as another one, as far as the probe can tell."""
    ids = torch.tensor([single.token_ids])
    full = engine.forward.model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=single.generation_tokens,
        output_logits=True, return_dict_in_generate=True,
    )  # fmt: skip
    new = [i for i in full.sequences[0, ids.shape[1] :].tolist() if i not in engine.end_ids]
    best = torch.cat(full.logits).float()
    first, second = best.topk(2).values.T
    return "".join(f"{i} " for i in new), bool((first - second <= FLOAT32_PROBE_LIMIT * best.std(1)).any())


def texts(engine: HfEngine, prompts: list[Prompt]) -> list[str]:
    """Return the answers' texts."""
    return [generation.text for generation in engine.generate(prompts)]


def questions(count: int, length: int = 3, context: Sequence[int] = TEXT) -> list[Prompt]:
    """Return prompts of one context and different last tokens."""
    return [prompt([*context, *random_prompt(30 + number).token_ids[:length]], ANSWER) for number in range(count)]


@contextmanager
def counted(engine: HfEngine) -> Iterator[list[int]]:
    """Collect the positions that go into the first layer, one number per forward pass."""
    seen: list[int] = []
    layers = engine.forward.model.get_decoder().layers

    def count(_: Any, args: tuple[Any, ...], inputs: dict[str, Any]) -> None:
        hidden = args[0] if args else inputs["hidden_states"]
        seen.append(hidden.shape[0] * hidden.shape[1])

    hook = layers[0].register_forward_pre_hook(count, with_kwargs=True)
    try:
        yield seen
    finally:
        hook.remove()
