"""What it costs to build samples, in CPU time, beside tokenizing their texts once.

    python -m benchmarks.build_samples [--lengths 4k,128k] [--samples 20] [--tokenizer DIR] [--json FILE]

Each sample is built, and its text given once to the same tokenizer, whole: `plain` is that call, as prompts would
have to make it. The two take turns, so that other work on the machine troubles both alike; `ratio` is that of their
sums. Each task has a process of its own, which knows no text yet: what is made and looked at for the first time counts,
but for that of one sample of another seed (`start`: what a run waits for). Without --tokenizer both are measured: that
of the calibration checkpoints, and a byte-level BPE of 32k tokens trained on generated prose. Exits with 1 when a
requirement is not met.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

# Before tokenizers is imported: one thread, so that CPU seconds are comparable.
os.environ |= {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from fixtures.calibration.tokenizer import train_tokenizer
from fixtures.corpora import Corpora
from fixtures.corpora.synthetic.prose import sentence
from fixtures.corpora.words import vocabulary
from fixtures.lengths import format_length, parse_length
from fixtures.tasks import TASKS
from fixtures.tokenization.prompts import PromptFormatter, load_tokenizer

RULER = [name for name, task in TASKS.items() if task.suite == "ruler"]
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TOKENS, TRAINING_SENTENCES = 32_000, 20_000
# Their pieces are new in every sample, so each has to be tokenized.
NEW_PIECES = ("niah_multikey_2", "niah_multikey_3", "fwe")
LONG = 131072
MOST_KNOWN, MOST_NEW, MOST_MEAN, MOST_SHORT = 0.3, 1.3, 0.5, 2.0
MOST_GIBIBYTES = 1.0
MOST_START = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One task at one length; seconds are CPU seconds per sample."""

    tokenizer: str
    task: str
    length: int
    build_seconds: float
    plain_seconds: float
    ratio: float
    most: float | None

    @property
    def ok(self) -> bool:
        return self.most is None or self.ratio <= self.most

    def __str__(self) -> str:
        required = "" if self.most is None else f"<= {self.most:.1f}  {'ok' if self.ok else 'NOT ok'}"
        times = f"{self.build_seconds:9.4f} {self.plain_seconds:9.4f} {self.ratio:7.2f}"
        return f"{self.tokenizer:12} {self.task:16} {format_length(self.length):>6} {times}  {required}"


def main() -> int:
    options = _options()
    say = sys.stdout.write
    figures: list[Figure] = []
    starts, peaks = [], []
    say(f"{'tokenizer':12} {'task':16} {'length':>6} {'build s':>9} {'plain s':>9} {'ratio':>7}  required\n")
    for name, tokenizer in _tokenizers(options.tokenizer):
        of_tokenizer: list[Figure] = []
        for task in options.tasks:
            with ProcessPoolExecutor(1, mp_context=get_context("fork")) as process:
                found, start, peak = process.submit(
                    of_task, name, tokenizer, task, options.lengths, options.samples
                ).result()
            say("".join(f"{figure}\n" for figure in found))
            of_tokenizer += found
            starts.append(start)
            peaks.append(peak)
        means = [_mean([each for each in of_tokenizer if each.length == length]) for length in options.lengths]
        say("".join(f"{figure}\n" for figure in means))
        figures += [*of_tokenizer, *means]
    start, peak = max(starts), max(peaks)
    say(f"start {start:.2f} s CPU at most, required <= {MOST_START}  {'ok' if start <= MOST_START else 'NOT ok'}\n")
    say(f"peak memory {peak:.2f} GiB, required <= {MOST_GIBIBYTES}  {'ok' if peak <= MOST_GIBIBYTES else 'NOT ok'}\n")
    if options.json:
        measured_figures = [asdict(figure) | {"ok": figure.ok} for figure in figures]
        told = {"figures": measured_figures, "peak_gibibytes": peak, "start_seconds": starts}
        options.json.write_text(json.dumps(told, indent=1), encoding="utf-8")
    is_met = peak <= MOST_GIBIBYTES and start <= MOST_START and all(figure.ok for figure in figures)
    return 0 if is_met else 1


def of_task(
    name: str, tokenizer: Any, task: str, lengths: Sequence[int], samples: int
) -> tuple[list[Figure], float, float]:
    """One task in a process of its own: its figures, CPU seconds to its first sample, the most GiB."""
    began = time.process_time()
    formatter, corpora = PromptFormatter(tokenizer), Corpora()
    # Not of the seed that is measured: each of its samples is to be a new one.
    TASKS[task].sample(min(lengths), 0, seed=1, tokenizer=formatter, corpora=corpora)
    start = time.process_time() - began
    found = [measured(name, tokenizer, formatter, corpora, task, length, samples) for length in lengths]
    return found, start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


def measured(
    name: str, tokenizer: Any, formatter: PromptFormatter, corpora: Corpora, task: str, length: int, samples: int
) -> Figure:
    """Building and plain tokenization in turns; index 0 is among the samples, which is checked against the whole."""
    builds, plains = [], []
    for index in range(samples):
        started = time.process_time()
        sample = TASKS[task].sample(length, index, seed=0, tokenizer=formatter, corpora=corpora)
        built = time.process_time()
        _ = tokenizer(sample.prompt.text, add_special_tokens=False, verbose=False)["input_ids"]
        plains.append(time.process_time() - built)
        builds.append(built - started)
    ratio = sum(builds) / sum(plains)
    most = None
    if length >= LONG:
        most = MOST_NEW if task in NEW_PIECES else MOST_KNOWN
    elif length == 4096:
        most = MOST_SHORT
    return Figure(
        tokenizer=name,
        task=task,
        length=length,
        build_seconds=statistics.fmean(builds),
        plain_seconds=statistics.fmean(plains),
        ratio=ratio,
        most=most,
    )


def _mean(figures: list[Figure]) -> Figure:
    first = figures[0]
    return Figure(
        tokenizer=first.tokenizer,
        task="mean",
        length=first.length,
        build_seconds=statistics.fmean(figure.build_seconds for figure in figures),
        plain_seconds=statistics.fmean(figure.plain_seconds for figure in figures),
        ratio=statistics.fmean(figure.ratio for figure in figures),
        most=MOST_MEAN if first.length >= LONG and len(figures) == len(RULER) else None,
    )


def _tokenizers(path: str | None) -> Iterator[tuple[str, Any]]:
    if path is not None:
        yield Path(path).name[:12], load_tokenizer(path, option="--tokenizer")
        return
    yield "calibration", PreTrainedTokenizerFast(tokenizer_object=train_tokenizer(), bos_token="<s>")  # type: ignore[no-untyped-call]  # untyped there
    yield "prose 32k", PreTrainedTokenizerFast(tokenizer_object=_trained(), bos_token="<s>")  # type: ignore[no-untyped-call]  # untyped there


def _trained() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENS,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    words = [f" {word} {word}" for word in vocabulary()]
    prose = [*map(sentence, range(TRAINING_SENTENCES)), *Corpora().squad.paragraphs]
    tokenizer.train_from_iterator([*prose, *words], trainer)
    return tokenizer


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=lambda text: tuple(map(parse_length, text.split(","))), default=(4096, LONG))
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=list(RULER))
    parser.add_argument("--tokenizer", help="directory of a tokenizer to measure instead")
    parser.add_argument("--json", type=Path, help="write the figures to FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
