"""Count the prompt tokens that are computed when the engine reads shared prefixes once.

    python -m benchmarks.prefix_sharing [--length 4k] [--samples 32] [--run-samples 100] [--json FILE]

The prompts are those of the project's own tasks: six queries about one object of keys and values, the needle tasks on
essays, and a full run of RULER at 1K in the order in which one worker claims its samples. The counts follow from the
visiting order of the prompts' token ids and the chunks that the engine reads on a CPU; one run of a small model
confirms that its engine computes exactly as many tokens.

Limits: exit code 1 if the six queries take more than 0.2 of the tokens of reading them one by one, if the samples of a
needle case in one call take more than 0.65, or if the engine computes another number of tokens.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from longctx.fixtures.calibration import build, parse_spec
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.corpora import Corpora
from longctx.fixtures.engines.hf.engine import load_hf_engine
from longctx.fixtures.engines.hf.prefill import PrefillMode
from longctx.fixtures.engines.prefix_order import visiting_order
from longctx.fixtures.lengths import parse_length
from longctx.fixtures.memory.estimate import largest_chunk_tokens, least_chunk_tokens
from longctx.fixtures.records import HAYSTACKS, Generation, Prompt
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tasks.ruler import niah
from longctx.fixtures.tokenization.load import load_tokenizer
from longctx.fixtures.tokenization.prompts import PromptFormatter
from tests.helpers.counts import PrefillTokens, prefill_token_counts
from tests.helpers.workers import EmptyAnswerEngine, worker_of

QUERIES = 6
# As in a case of 500 samples.
ON_A_HAYSTACK = 16
MAX_QUERIES_RATIO = 0.2
MAX_NEEDLES_RATIO = 0.65
OBJECT_TASK = "niah_multikey_3"
QUESTIONS = ("qa_1", "qa_2")
REAL_LENGTH = 1024
RULER_TASKS = 13


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The tokens of one kind of prompts; the field names are keys of the JSON file."""

    name: str
    prompts: int
    """Number of prompts."""
    alone: int
    """Tokens when all prompts are read one by one."""
    computed: int
    """Tokens when shared prefixes are read once."""
    ratio: float
    required: float | None
    """Limit of the ratio; None if there is none."""

    @property
    def is_within_limit(self) -> bool:
        return self.required is None or self.ratio <= self.required


def row_of(name: str, prompts: int, counts: Sequence[PrefillTokens], required: float | None) -> Row:
    computed, alone = sum(count.computed for count in counts), sum(count.computed + count.reused for count in counts)
    return Row(name=name, prompts=prompts, alone=alone, computed=computed, ratio=computed / alone, required=required)


def queries(formatter: PromptFormatter, length: int, many: int) -> list[Prompt]:
    """Return prompts that ask for keys spread over one object."""
    task = TASKS[OBJECT_TASK]
    sample = task.sample(length, 0, seed=0, tokenizer=formatter, corpora=Corpora())
    lines = sample.context.splitlines()
    keys = [re.findall(r" for (\S+) is", lines[at * len(lines) // many])[0] for at in range(many)]
    texts = [
        [task.prompts[part].format(context=sample.context, query=key) for part in ("template", "answer_prefix")]
        for key in keys
    ]
    return [formatter.prompt(text, prefix, generation_tokens=8) for text, prefix in texts]


def prompts_of(formatter: PromptFormatter, name: str, length: int, samples: int) -> list[Prompt]:
    """Return the prompts of the first samples on one haystack, then of those on the next, `ON_A_HAYSTACK` of each."""
    corpora = Corpora()
    places = [divmod(number, ON_A_HAYSTACK) for number in range(samples)]
    return [
        TASKS[name].sample(length, haystack + HAYSTACKS * turn, seed=0, tokenizer=formatter, corpora=corpora).prompt
        for haystack, turn in places
    ]


def prefill_mode() -> PrefillMode:
    """Return the way in which the engine reads a small model's prompts on a CPU."""
    return PrefillMode(
        least_chunk_tokens=least_chunk_tokens("cpu", is_small=True),
        largest_chunk_tokens=largest_chunk_tokens("sdpa"),
        allows_chunks=True,
        allows_batches=True,
    )


def calls(prompts: Sequence[Prompt], prompts_per_call: int, mode: PrefillMode) -> list[PrefillTokens]:
    """Return the tokens of all prompts in calls of `prompts_per_call`; the last cache stays for the next call."""
    counts: list[PrefillTokens] = []
    cached_ids: tuple[int, ...] = ()
    for start in range(0, len(prompts), prompts_per_call):
        ids = [prompt.token_ids for prompt in prompts[start : start + prompts_per_call]]
        counts += prefill_token_counts(ids, cached_ids, mode=mode)
        cached_ids = ids[visiting_order(ids, cached_ids)[-1]]
    return counts


def is_confirmed_by_engine(checkpoint: Path, tokenizer: Any, formatter: PromptFormatter, mode: PrefillMode) -> bool:
    """Return True if a model's engine computes and reuses exactly as many tokens as the visiting order predicts."""
    torch.set_num_threads(1)
    prompts = queries(formatter, REAL_LENGTH, QUERIES)
    engine = load_hf_engine(read_checkpoint(str(checkpoint)), tokenizer=tokenizer, device="cpu")
    engine.prefill_mode = mode
    generations = list(engine.generate(prompts))
    prompt_tokens = []
    for generation in generations:
        computed, generated, reused = (
            generation.computed_tokens, generation.generated_tokens, generation.reused_tokens
        )  # fmt: skip
        assert computed is not None
        assert generated is not None
        assert reused is not None
        prompt_tokens.append(PrefillTokens(computed - (generated - 1), reused))
    ids = [prompt.token_ids for prompt in prompts]
    return tuple(prompt_tokens) == prefill_token_counts(ids, mode=mode)


class CountingEngine(EmptyAnswerEngine):
    """An engine without a model that counts the tokens of its prompts as a prefix cache does."""

    def __init__(self, batch_size: int, mode: PrefillMode) -> None:
        super().__init__()
        self._mode = mode
        self.facts = replace(EmptyAnswerEngine.facts, batch_size=batch_size)
        self.counts: list[PrefillTokens] = []
        self._cached_ids: tuple[int, ...] = ()

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Generation]:
        ids = [prompt.token_ids for prompt in prompts]
        self.counts += prefill_token_counts(ids, self._cached_ids, mode=self._mode)
        self._cached_ids = ids[visiting_order(ids, self._cached_ids)[-1]]
        yield from super().generate(prompts)


def full_run(checkpoint: Path, samples: int, batch_size: int, mode: PrefillMode) -> Row:
    """Return the tokens of one worker that answers all samples of RULER's tasks."""
    engine = CountingEngine(batch_size, mode)
    with (
        tempfile.TemporaryDirectory() as journal,
        worker_of(checkpoint, engine, Path(journal), cases=RULER_TASKS, lengths=(REAL_LENGTH,), samples=samples) as run,
    ):
        worker, case = run
        worker.measure(case)
    name = f"a full run, {samples} samples a task, {batch_size} a batch"
    return row_of(name, len(engine.counts), engine.counts, None)


def measure(formatter: PromptFormatter, length: int, samples: int, mode: PrefillMode) -> list[Row]:
    object_prompts = queries(formatter, length, QUERIES)
    rows = [row_of(f"{OBJECT_TASK}, one object", QUERIES, calls(object_prompts, QUERIES, mode), MAX_QUERIES_RATIO)]
    needle_prompts: list[Prompt] = []
    for name, needles in niah.NIAH.items():
        if needles.haystack == "essays":
            prompts = prompts_of(formatter, name, length, samples)
            rows.append(row_of(name, samples, calls(prompts, samples, mode), MAX_NEEDLES_RATIO))
            rows.append(row_of(f"{name}, 8 a call", samples, calls(prompts, 8, mode), None))
            needle_prompts += prompts
    rows.append(
        row_of("all of these in one call", len(needle_prompts), calls(needle_prompts, len(needle_prompts), mode), None)
    )
    for name in QUESTIONS:
        rows.append(row_of(name, samples, calls(prompts_of(formatter, name, length, samples), samples, mode), None))
    return rows


def main() -> int:
    """Print one line for every kind of prompts; return 1 if a limit is exceeded, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--length", default="4k", type=parse_length)
    parser.add_argument("--samples", default=32, type=int)
    parser.add_argument("--run-samples", default=100, type=int)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    mode = prefill_mode()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = build(parse_spec("full"), Path(folder) / "full")
        tokenizer: Any = load_tokenizer(str(checkpoint))
        formatter = PromptFormatter(tokenizer)
        rows = measure(formatter, args.length, args.samples, mode)
        rows += [full_run(checkpoint, args.run_samples, batch_size, mode) for batch_size in (1, 8)]
        is_confirmed = is_confirmed_by_engine(checkpoint, tokenizer, formatter, mode)
    print(f"{'prompts':48} {'number':>6} {'alone':>9} {'computed':>9} {'ratio':>6} {'at most':>7}")
    for row in rows:
        required = "" if row.required is None else f"{row.required:.2f}"
        mark = "" if row.is_within_limit else "  NOT MET"
        print(
            f"{row.name:48} {row.prompts:>6} {row.alone:>9,} {row.computed:>9,} {row.ratio:>6.3f} {required:>7}{mark}"
        )
    print(f"a model's engine computes the predicted number of tokens: {'yes' if is_confirmed else 'NO'}")
    report = {"length": args.length, "confirmed": is_confirmed, "rows": [asdict(row) for row in rows]}
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    else:
        print(json.dumps(report))
    return 0 if is_confirmed and all(row.is_within_limit for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
