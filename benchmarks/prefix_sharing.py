"""How many prompt tokens are computed when what prompts share is read once.

    python -m benchmarks.prefix_sharing [--length 4k] [--samples 32] [--json FILE]

Prompts built by the project's own tasks: six queries on one object of keys and values (required: at
most 0.2 of the tokens that reading each alone takes), and the needle tasks on essays (at most 0.65 over a case's
samples in one call). Counts are those of the reading order on token ids; one run of a small model confirms that
its engine computes exactly so many. Exits with 1 when a requirement is not met.
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
from fixtures.tokenization.prompts import PromptFormatter, load_tokenizer

QUERIES = 6
MOST_FOR_QUERIES = 0.2
MOST_FOR_NEEDLES = 0.65
OBJECT_TASK = "niah_multikey_3"
QUESTIONS = ("qa_1", "qa_2")
REAL_LENGTH = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kind of prompts: tokens when each is read alone, tokens computed, their ratio and what it may be."""

    name: str
    prompts: int
    alone: int
    computed: int
    ratio: float
    required: float | None

    @property
    def holds(self) -> bool:
        return self.required is None or self.ratio <= self.required


def row(name: str, prompts: int, counts: Sequence[PrefillTokens], required: float | None) -> Row:
    computed, alone = sum(each.computed for each in counts), sum(each.computed + each.reused for each in counts)
    return Row(name=name, prompts=prompts, alone=alone, computed=computed, ratio=computed / alone, required=required)


def queries(formatter: PromptFormatter, length: int, many: int) -> list[Prompt]:
    """Questions for keys spread over one object."""
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


def calls(prompts: Sequence[Prompt], at_once: int) -> list[PrefillTokens]:
    """What reading takes where so many prompts come in one call; the last one's cache is there for the next."""
    counts: list[PrefillTokens] = []
    read: tuple[int, ...] = ()
    for start in range(0, len(prompts), at_once):
        ids = [prompt.token_ids for prompt in prompts[start : start + at_once]]
        counts += prefill_token_counts(ids, read)
        read = ids[visiting_order(ids, read)[-1]]
    return counts


def confirmed(checkpoint: Path, tokenizer: Any, formatter: PromptFormatter) -> bool:
    """Whether a model's engine computes and reuses exactly what the reading order says."""
    torch.set_num_threads(1)
    asked = queries(formatter, REAL_LENGTH, QUERIES)
    engine = load(read_checkpoint(str(checkpoint)), tokenizer=tokenizer, device="cpu")
    done = list(engine.generate(asked))
    prompt_tokens = [
        PrefillTokens(each.computed_tokens - (each.generated_tokens - 1), each.reused_tokens) for each in done
    ]
    return tuple(prompt_tokens) == prefill_token_counts([each.token_ids for each in asked])


def measured(formatter: PromptFormatter, length: int, samples: int) -> list[Row]:
    asked = queries(formatter, length, QUERIES)
    rows = [row(f"{OBJECT_TASK}, one object", QUERIES, calls(asked, QUERIES), MOST_FOR_QUERIES)]
    everything: list[Prompt] = []
    for name, needles in niah.NIAH.items():
        if needles.haystack == "essays":
            prompts = prompts_of(formatter, name, length, samples)
            rows.append(row(name, samples, calls(prompts, samples), MOST_FOR_NEEDLES))
            rows.append(row(f"{name}, 8 a call", samples, calls(prompts, 8), None))
            everything += prompts
    rows.append(row("all of these in one call", len(everything), calls(everything, len(everything)), None))
    for name in QUESTIONS:
        rows.append(row(name, samples, calls(prompts_of(formatter, name, length, samples), samples), None))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--length", default="4k", type=parse_length)
    parser.add_argument("--samples", default=32, type=int)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = build(parse_spec("full"), Path(folder) / "full")
        tokenizer: Any = load_tokenizer(str(checkpoint))
        formatter = PromptFormatter(tokenizer)
        rows = measured(formatter, asked.length, asked.samples)
        is_confirmed = confirmed(checkpoint, tokenizer, formatter)
    print(f"{'prompts':34} {'number':>6} {'alone':>9} {'computed':>9} {'ratio':>6} {'at most':>7}")
    for each in rows:
        required = "" if each.required is None else f"{each.required:.2f}"
        mark = "" if each.holds else "  NOT MET"
        print(
            f"{each.name:34} {each.prompts:>6} {each.alone:>9,} {each.computed:>9,} {each.ratio:>6.3f} "
            f"{required:>7}{mark}"
        )
    print(f"a model's engine computes what the reading order says: {'yes' if is_confirmed else 'NO'}")
    report = {"length": asked.length, "confirmed": is_confirmed, "rows": [asdict(each) for each in rows]}
    if asked.json:
        asked.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    else:
        print(json.dumps(report))
    return 0 if is_confirmed and all(each.holds for each in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
