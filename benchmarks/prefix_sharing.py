"""Count the prompt tokens that are computed when the engine reads shared prefixes once.

    python -m benchmarks.prefix_sharing [--length 4k] [--samples 32] [--json FILE]

The prompts are those of the project's own tasks: six queries about one object of keys and values, and the needle tasks
on essays. The counts follow from the visiting order of the prompts' token ids; one run of a small model confirms that
its engine computes exactly as many tokens. Limits: exit code 1 if the six queries take more than 0.2 of the tokens of
reading them one by one, if the samples of a needle case in one call take more than 0.65, or if the engine computes
another number of tokens.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from fixtures.calibration import build, parse_spec
from fixtures.checkpoints.checkpoint import read_checkpoint
from fixtures.corpora import Corpora
from fixtures.engines.hf.engine import load
from fixtures.engines.prefix_order import PrefillTokens, prefill_token_counts, visiting_order
from fixtures.lengths import parse_length
from fixtures.records import Prompt
from fixtures.tasks import TASKS
from fixtures.tasks.ruler import niah
from fixtures.tokenization.load import load_tokenizer
from fixtures.tokenization.prompts import PromptFormatter

QUERIES = 6
MAX_QUERIES_RATIO = 0.2
MAX_NEEDLES_RATIO = 0.65
OBJECT_TASK = "niah_multikey_3"
QUESTIONS = ("qa_1", "qa_2")
REAL_LENGTH = 1024


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
    corpora = Corpora()
    return [
        TASKS[name].sample(length, index, seed=0, tokenizer=formatter, corpora=corpora).prompt
        for index in range(samples)
    ]


def calls(prompts: Sequence[Prompt], prompts_per_call: int) -> list[PrefillTokens]:
    """Return the tokens of all prompts in calls of `prompts_per_call`; the last cache stays for the next call."""
    counts: list[PrefillTokens] = []
    cached_ids: tuple[int, ...] = ()
    for start in range(0, len(prompts), prompts_per_call):
        ids = [prompt.token_ids for prompt in prompts[start : start + prompts_per_call]]
        counts += prefill_token_counts(ids, cached_ids)
        cached_ids = ids[visiting_order(ids, cached_ids)[-1]]
    return counts


def is_confirmed_by_engine(checkpoint: Path, tokenizer: Any, formatter: PromptFormatter) -> bool:
    """Return True if a model's engine computes and reuses exactly as many tokens as the visiting order predicts."""
    torch.set_num_threads(1)
    prompts = queries(formatter, REAL_LENGTH, QUERIES)
    engine = load(read_checkpoint(str(checkpoint)), tokenizer=tokenizer, device="cpu")
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
    return tuple(prompt_tokens) == prefill_token_counts([prompt.token_ids for prompt in prompts])


def measure(formatter: PromptFormatter, length: int, samples: int) -> list[Row]:
    object_prompts = queries(formatter, length, QUERIES)
    rows = [row_of(f"{OBJECT_TASK}, one object", QUERIES, calls(object_prompts, QUERIES), MAX_QUERIES_RATIO)]
    needle_prompts: list[Prompt] = []
    for name, needles in niah.NIAH.items():
        if needles.haystack == "essays":
            prompts = prompts_of(formatter, name, length, samples)
            rows.append(row_of(name, samples, calls(prompts, samples), MAX_NEEDLES_RATIO))
            rows.append(row_of(f"{name}, 8 a call", samples, calls(prompts, 8), None))
            needle_prompts += prompts
    rows.append(
        row_of("all of these in one call", len(needle_prompts), calls(needle_prompts, len(needle_prompts)), None)
    )
    for name in QUESTIONS:
        rows.append(row_of(name, samples, calls(prompts_of(formatter, name, length, samples), samples), None))
    return rows


def main() -> int:
    """Print one line for every kind of prompts; return 1 if a limit is exceeded, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--length", default="4k", type=parse_length)
    parser.add_argument("--samples", default=32, type=int)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = build(parse_spec("full"), Path(folder) / "full")
        tokenizer: Any = load_tokenizer(str(checkpoint))
        formatter = PromptFormatter(tokenizer)
        rows = measure(formatter, args.length, args.samples)
        is_confirmed = is_confirmed_by_engine(checkpoint, tokenizer, formatter)
    print(f"{'prompts':34} {'number':>6} {'alone':>9} {'computed':>9} {'ratio':>6} {'at most':>7}")
    for row in rows:
        required = "" if row.required is None else f"{row.required:.2f}"
        mark = "" if row.is_within_limit else "  NOT MET"
        print(
            f"{row.name:34} {row.prompts:>6} {row.alone:>9,} {row.computed:>9,} {row.ratio:>6.3f} {required:>7}{mark}"
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
