"""Check the samples of the frontier tasks on counts, at lengths that the tests are too short for.

    python -m benchmarks.frontier_samples [--lengths 4k,32k,128k] [--samples 100] [--tasks mrcr_2,...]
                                          [--tokenizer DIR] [--json FILE]

For every task and length:

- all checks of the preflight
- fill: the least and the most share of the length that prompt and answer take
- passes: the most times that the whole prompt of a sample was tokenized, with `MOST_TOKENIZATIONS` at 128K and above
- answer: the most tokens of a perfect answer, as a share of its budget
- the answer recounted from the text by other code, and only one answer
- depths: the places of the evidence are uniform (but see `LATE`)
- scores of perfect answers, cut at the stop strings; of nothing, copied pieces, the question and random words; of a
  guess in the right form, compared with docs/frontier.md; and of a reader that knows only the answers in the last
  quarter of the text, which earns a quarter where one place decides

`--json` appends a row for each case, and a case with a row there is not measured again. `--tokenizer` takes the
tokenizer of a checkpoint instead of a small one trained on the archive. Exit code 1 if a number breaks its limit.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from pathlib import Path
from random import Random
from statistics import mean
from time import process_time
from typing import Any

os.environ |= {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}

from benchmarks.frontier_readers import BLIND, from_last_quarter, guess_for, perfect
from longctx.fixtures.corpora import Corpora
from longctx.fixtures.lengths import format_length, parse_length
from longctx.fixtures.preflight import depth_problems, fill_ratio, sample_problems
from longctx.fixtures.records import Prompt, Sample
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tokenization.load import load_tokenizer
from longctx.fixtures.tokenization.prompts import PromptFormatter
from tests.helpers.frontier_recounts import evidence_depths, gives_answer_once
from tests.helpers.tiny_tokenizers import byte_level

FRONTIER = [name for name, task in TASKS.items() if task.suite == "frontier"]
# At this length and above, where tokenizing the whole text takes long.
LONG, MOST_TOKENIZATIONS = 131072, 2
# An echo of 40 words may hold an answer by chance.
MOST_BY_CHANCE = 0.1
# Standard deviations that a mean may lie off.
DEVIATIONS = 4.0
# The share that a reader of the last quarter earns where it is not a quarter. The facts that decide two tasks come
# third or later of twelve; one of two documents suffices for another. None: all evidence counts, or parts of it do.
QUARTERS: Mapping[str, float | None] = {
    "world_two_facts": 0.3, "world_three_facts": 0.3, "ladder_qa_easy": 0.44, "graph": None, "count": None,
    "latent_list": None, "route": None, "path_traversal": None, "countdown": None, "belief_tracking": None,
    "table_extraction": None,
}  # fmt: skip
# Tasks whose depths are not uniform, because the decisive fact cannot come first.
LATE = ("world_two_facts", "world_three_facts")
# The places into which a depth from 0 to 1 is divided.
PLACES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The numbers of one task at one length."""

    task: str
    length: int
    samples: int
    least_fill: float
    most_fill: float
    tokenizations: int
    """The most times that the whole text of a sample was tokenized."""
    longest_answer: float
    """The most tokens of a perfect answer, as a share of the answer's budget."""
    recounted: int
    """The number of samples whose text gives their answer, and no other one."""
    depths: str
    """Empty if the depths are uniform."""
    scores: Mapping[str, float]
    """The mean score of every reader."""
    cpu_seconds: float
    """The CPU time of making one sample."""
    preflight: tuple[str, ...]
    """Problems that the preflight finds, which would fail the case."""

    @property
    def problems(self) -> list[str]:
        """One line for every number beyond its limit."""
        lines = [*self.preflight, *([self.depths] if self.depths and self.task not in LATE else [])]
        if self.least_fill < TASKS[self.task].least_fill or self.most_fill > 1:
            lines.append(f"fill {self.least_fill:.3f} to {self.most_fill:.3f}")
        if self.length >= LONG and self.tokenizations > MOST_TOKENIZATIONS:
            lines.append(f"{self.tokenizations} tokenizations")
        if self.longest_answer > 1:
            lines.append(f"a perfect answer takes {self.longest_answer:.2f} of its budget")
        if self.recounted != self.samples:
            lines.append(f"the text gives another answer in {self.samples - self.recounted} samples")
        return lines + self._score_problems()

    def _score_problems(self) -> list[str]:
        limits = {"perfect": (1.0, 1.0)} | dict.fromkeys(BLIND, (0.0, MOST_BY_CHANCE))
        if (guess := guess_for(self.task)) is not None:
            low, high = self._around(guess.stated)
            limits["guess"] = (0.0, guess.stated) if guess.most else (low, high)
        if (quarter := _quarter_of(self.task)) is not None:
            limits["quarter"] = self._around(quarter)
        return [
            f"{name} scores {self.scores[name]:.3f}"
            for name, (low, high) in limits.items()
            if not low <= self.scores[name] <= high
        ]

    def _around(self, expected: float) -> tuple[float, float]:
        """Return the least and the most that a mean of zeros and ones may be if the true mean is `expected`."""
        tolerance = DEVIATIONS * sqrt(expected * (1 - expected) / self.samples)
        return expected - tolerance - 0.01, expected + tolerance + 0.01


class CountingFormatter(PromptFormatter):
    """A formatter that counts how often it tokenizes a text of more than half the length."""

    length = 0
    tokenizations = 0

    def prompt(self, *args: Any, **kwargs: Any) -> Prompt:
        """Return the formatted prompt."""
        prompt = super().prompt(*args, **kwargs)
        self.tokenizations += prompt.length_tokens > self.length / 2
        return prompt


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line for every task and length; return 1 if a limit is broken, else 0."""
    options = _options(arguments)
    tokenizer = load_tokenizer(options.tokenizer, option="--tokenizer") if options.tokenizer else byte_level()
    formatter, failed = CountingFormatter(tokenizer, chat="off"), 0
    done = _rows(options.json)
    sys.stdout.write(
        f"{'task':24}{'length':>7}{'fill':>14}  passes answer recount {'  '.join(READERS)}  seconds problems\n"
    )
    for length in options.lengths:
        for task in options.tasks:
            row = done.get((task, length, options.samples))
            if row is None:
                figures = measure(task, length, options.samples, formatter)
                row = asdict(figures) | {"problems": figures.problems}
                if options.json:
                    with options.json.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
            _print(row)
            failed += bool(row["problems"])
    return int(failed > 0)


def measure(task: str, length: int, samples: int, formatter: CountingFormatter) -> Figures:
    """Make the samples of one case, one at a time, and return their numbers."""
    corpora, formatter.length, fills, answers, ranks = Corpora(), length, [], [], []
    tokenizations = recounts = 0
    seconds = 0.0
    scores: dict[str, list[float]] = {name: [] for name in READERS}
    preflight: list[str] = []
    for index in range(samples):
        formatter.tokenizations, start = 0, process_time()
        sample = TASKS[task].sample(length, index, seed=0, tokenizer=formatter, corpora=corpora)
        seconds += process_time() - start
        tokenizations = max(tokenizations, formatter.tokenizations)
        preflight += (f"sample {index}: {line}" for line in sample_problems(sample, TASKS[task], formatter))
        fills.append(fill_ratio(sample))
        answers.append(formatter.count([perfect(sample)], separator=" ")[0] / sample.prompt.generation_tokens)
        recounts += gives_answer_once(task, sample)
        ranks += _one_rank(sample)
        for name, value in _scores(sample).items():
            scores[name].append(value)
    return Figures(
        task=task,
        length=length,
        samples=samples,
        least_fill=min(fills),
        most_fill=max(fills),
        tokenizations=tokenizations,
        longest_answer=max(answers),
        recounted=recounts,
        depths="; ".join(depth_problems(ranks)),
        scores={name: mean(values) for name, values in scores.items() if values},
        cpu_seconds=seconds / samples,
        preflight=tuple(preflight),
    )


READERS = ("perfect", *BLIND, "guess", "quarter")


def _scores(sample: Sample) -> dict[str, float]:
    texts = {name: reader(sample) for name, reader in BLIND.items()}
    texts |= {"perfect": _until_stop(perfect(sample), sample.prompt.stop), "quarter": from_last_quarter(sample)}
    if (guess := guess_for(sample.task)) is not None:
        texts["guess"] = guess.answer(sample)
    return {name: TASKS[sample.task].score(sample, text).value for name, text in texts.items()}


def _until_stop(text: str, stop: Sequence[str]) -> str:
    """Return the answer as an engine hands it over: up to the first stop string."""
    for mark in stop:
        text = text.partition(mark)[0]
    return text


def _one_rank(sample: Sample) -> list[tuple[int, int]]:
    """Return the place of one piece of evidence; one, because the places of several may hang together."""
    if sample.rank is not None:
        return [sample.rank]
    depths = sample.depths or evidence_depths(sample.task, sample.context, sample.question)
    depth = Random(sample.index).choice(sorted(depths))
    return [(min(int(depth * PLACES), PLACES - 1), PLACES)]


def _quarter_of(task: str) -> float | None:
    return next((share for prefix, share in QUARTERS.items() if task.startswith(prefix)), 0.25)


def _print(row: Mapping[str, Any]) -> None:
    scores = "  ".join(
        f"{row['scores'][name]:>{len(name)}.2f}" if name in row["scores"] else f"{'-':>{len(name)}}" for name in READERS
    )
    sys.stdout.write(
        f"{row['task']:24}{format_length(row['length']):>7} {row['least_fill']:.3f}-{row['most_fill']:.3f}"
        f"  {row['tokenizations']:>6} {row['longest_answer']:>6.2f} {row['recounted']:>7} {scores}"
        f"  {row['cpu_seconds']:>7.3f} {'; '.join(row['problems']) or '-'}\n"
    )
    sys.stdout.flush()


def _rows(file: Path | None) -> dict[tuple[str, int, int], dict[str, Any]]:
    """Return the rows of an earlier run by task, length and samples."""
    if file is None or not file.exists():
        return {}
    rows = (json.loads(line) for line in file.read_text("utf-8").splitlines())
    return {(row["task"], row["length"], row["samples"]): row for row in rows}


def _options(arguments: Sequence[str] | None) -> Any:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.frontier_samples", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--lengths", type=_lengths, default=_lengths("4k,32k,128k"))
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=FRONTIER)
    parser.add_argument("--tokenizer")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def _lengths(text: str) -> Sequence[int]:
    return [parse_length(part) for part in text.split(",")]


if __name__ == "__main__":
    raise SystemExit(main())
