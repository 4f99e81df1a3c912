"""Check the samples of the frontier tasks on counts, at lengths that the tests are too short for.

    python -m benchmarks.frontier_samples [--lengths 4k,32k,128k] [--samples 100] [--tasks mrcr_2,...] [--json FILE]

For every task and length: the least fill; the most times that a whole prompt is tokenized; evenness of the depths; the
answer recounted from the text; and the mean scores of a perfect answer, of nothing, of the beginning and end of the
context, of random words, and of a reader that knows only the answers in the last quarter of the text. Where one place
decides, that reader scores about a quarter. Exit code 1 if a number breaks its limit.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

os.environ |= {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}

from fixtures.corpora import Corpora
from fixtures.corpora.words import vocabulary
from fixtures.lengths import format_length, parse_length
from fixtures.preflight import depth_problems, fill_ratio
from fixtures.records import Prompt, Sample
from fixtures.tasks import TASKS
from fixtures.tokenization.prompts import PromptFormatter
from tests.helpers.frontier_recounts import recounted
from tests.helpers.tiny_tokenizers import byte_level

FRONTIER = [name for name, task in TASKS.items() if task.suite == "frontier"]
ANSWER_WORDS = 40
# At this length and above, where tokenizing the whole text takes long.
LONG, MOST_TOKENIZATIONS = 131072, 2
# An echo of 40 words may hold an answer by chance.
MOST_BY_CHANCE = 0.1
# Standard deviations that a share of samples may lie off.
DEVIATIONS = 4.0
# The facts that decide these two tasks cannot come first.
LATE = ("world_two_facts", "world_three_facts")
READERS: Mapping[str, Callable[[Sample], str]] = {
    "perfect": lambda sample: TASKS[sample.task].perfect_answer(sample),
    "nothing": lambda sample: "",
    "beginning": lambda sample: " ".join(sample.context.split()[:ANSWER_WORDS]),
    "end": lambda sample: " ".join(sample.context.split()[-ANSWER_WORDS:]),
    "random": lambda sample: " ".join(Random(sample.index).choices(vocabulary(), k=ANSWER_WORDS)),
    "quarter": lambda sample: _from_last_quarter(sample),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The numbers of one task at one length."""

    task: str
    length: int
    samples: int
    least_fill: float
    tokenizations: int
    """The most times that the whole text of a sample was tokenized."""
    recounted: bool
    """True if the text gives the answer of every sample, and once; also for tasks without a recount."""
    depths: str
    """Empty if the depths are uniform."""
    scores: Mapping[str, float]
    """The mean score of every reader."""
    last_quarter: float | None
    """The share of samples with all evidence in the last quarter; None for tasks whose answers have no depth."""

    @property
    def problems(self) -> list[str]:
        """One line for every number beyond its limit."""
        found = [self.depths] if self.depths else []
        if self.least_fill < TASKS[self.task].least_fill:
            found.append(f"fill {self.least_fill:.3f}")
        if self.length >= LONG and self.tokenizations > MOST_TOKENIZATIONS:
            found.append(f"{self.tokenizations} tokenizations")
        if not self.recounted:
            found.append("the text gives another answer")
        if self.scores["perfect"] != 1:
            found.append(f"perfect answers score {self.scores['perfect']}")
        found += [
            f"{name} scores {self.scores[name]:.3f}"
            for name in ("nothing", "beginning", "end", "random")
            if self.scores[name] > MOST_BY_CHANCE
        ]
        if self.last_quarter is not None and self.task not in LATE:
            tolerance = DEVIATIONS * sqrt(0.25 * 0.75 / self.samples)
            if abs(self.last_quarter - 0.25) > tolerance:
                found.append(f"{self.last_quarter:.2f} of the samples in the last quarter")
        return found


class CountingFormatter(PromptFormatter):
    """A formatter that counts how often it tokenizes a text of more than half the length."""

    length = 0
    tokenizations = 0

    def prompt(self, *args: Any, **kwargs: Any) -> Prompt:
        """Return the formatted prompt."""
        prompt = super().prompt(*args, **kwargs)
        self.tokenizations += prompt.length_tokens > self.length / 2
        return prompt

    def verify(self, prompt: Prompt) -> bool:
        """Return True if the tokenizer gives the same ids for the whole text."""
        self.tokenizations += prompt.length_tokens > self.length / 2
        return super().verify(prompt)


def main() -> int:
    """Print one line for every task and length; return 1 if a limit is broken, else 0."""
    options = _options()
    formatter, rows, failed = CountingFormatter(byte_level()), [], 0
    sys.stdout.write(f"{'task':24}{'length':>7} fill  tokenized  {'  '.join(READERS)}  problems\n")
    for task in options.tasks:
        for length in options.lengths:
            figures = measure(task, length, options.samples, formatter)
            scores = "  ".join(f"{figures.scores[name]:>{len(name)}.2f}" for name in READERS)
            text = "; ".join(figures.problems) or "-"
            sys.stdout.write(
                f"{task:24}{format_length(length):>7} {figures.least_fill:.3f}  {figures.tokenizations:>7}  {scores}"
                f"  {text}\n"
            )
            sys.stdout.flush()
            failed += bool(figures.problems)
            rows.append(asdict(figures) | {"problems": figures.problems})
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return int(failed > 0)


def measure(task: str, length: int, samples: int, formatter: CountingFormatter) -> Figures:
    """Make the samples of one case, one at a time, and return their numbers."""
    corpora, formatter.length, fills, ranks = Corpora(), length, [], []
    tokenizations, is_recounted, lasts = 0, True, []
    scores: dict[str, list[float]] = {name: [] for name in READERS}
    for index in range(samples):
        formatter.tokenizations = 0
        sample = TASKS[task].sample(length, index, seed=0, tokenizer=formatter, corpora=corpora)
        tokenizations = max(tokenizations, formatter.tokenizations)
        fills.append(fill_ratio(sample))
        ranks += [sample.rank] if sample.rank is not None else []
        is_recounted &= _is_recounted(sample)
        if len(set(sample.depths)) == 1:
            lasts.append(sample.depths[0] >= 0.75)
        for name, reader in READERS.items():
            scores[name].append(TASKS[task].score(sample, reader(sample)).value)
    return Figures(
        task=task,
        length=length,
        samples=samples,
        least_fill=min(fills),
        tokenizations=tokenizations,
        recounted=is_recounted,
        depths="; ".join(depth_problems(ranks)),
        scores={name: mean(values) for name, values in scores.items()},
        last_quarter=mean(lasts) if len(lasts) == samples else None,
    )


def _is_recounted(sample: Sample) -> bool:
    if sample.task.startswith("ladder_qa"):
        return True
    answers = recounted(sample.task, sample.context, sample.question)
    expected = (sample.references[1][3:],) if sample.task == "not_in_text" else sample.references
    return sorted(answers) == sorted(expected)


def _from_last_quarter(sample: Sample) -> str:
    """Return those answers that stand in the last quarter of the text; a perfect answer if all of them do."""
    known = [answer for answer, depth in zip(sample.references, sample.depths, strict=False) if depth >= 0.75]
    if not known:
        return ""
    if len(known) == len(sample.references):
        return TASKS[sample.task].perfect_answer(sample)
    return f"[{', '.join(known)}]" if sample.task.startswith("graph_") else "\n".join(known)


def _options() -> Any:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frontier_samples", description=__doc__)
    parser.add_argument("--lengths", type=_lengths, default=_lengths("4k,32k,128k"))
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=FRONTIER)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _lengths(text: str) -> Sequence[int]:
    return [parse_length(part) for part in text.split(",")]


if __name__ == "__main__":
    raise SystemExit(main())
