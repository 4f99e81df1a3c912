"""Measure the CPU time of building samples, against tokenizing their finished texts once.

    python -m benchmarks.build_samples [--lengths 4k,128k] [--suite helmet] [--tokenizer DIR] [--json FILE]

Builds every sample, then gives its whole text to the same tokenizer: `plain` is that call, which any way of making
prompts needs. The two take turns, so that other work on the machine affects both alike; `ratio` divides their sums.
`tokenized` counts the characters that building gave to the tokenizer, divided by those of the finished prompts.
Every task runs in a process of its own with empty caches: whatever is made for the first time counts, except for one
sample of another seed, whose time is `start`, the wait before a run's first sample. Without --tokenizer two tokenizers
are measured: that of the calibration checkpoints, and a byte-level BPE of 32k tokens trained on generated prose.
Limits: exit code 1 if a ratio, the start or the peak memory exceeds its constant MAX_... .
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

from longctx.fixtures.calibration.tokenizer import train_tokenizer
from longctx.fixtures.corpora import Corpora
from longctx.fixtures.corpora.published.ruler import vocabulary
from longctx.fixtures.corpora.synthetic.prose import sentence
from longctx.fixtures.lengths import format_length, parse_length
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tokenization.load import load_tokenizer
from longctx.fixtures.tokenization.prompts import PromptFormatter

RULER = [name for name, task in TASKS.items() if task.suite == "ruler"]
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TOKENS, TRAINING_SENTENCES = 32_000, 20_000
# The units of their texts are new in every sample, so all of them have to be tokenized.
NEW_UNITS = ("niah_multikey_2", "niah_multikey_3", "fwe")
LONG = 131072
# Limits of the ratio: for repeated units, for new units, for the mean of all tasks, and at 4k.
MAX_KNOWN, MAX_NEW, MAX_MEAN, MAX_SHORT = 0.3, 1.3, 0.5, 2.0
# Limit of the mean of `tokenized` over all tasks.
MAX_TOKENIZED = 1.5
MAX_GIBIBYTES = 1.0
MAX_START_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """CPU seconds for a sample of one task at one length; the field names are keys of the JSON file."""

    tokenizer: str
    task: str
    length: int
    build_seconds: float
    plain_seconds: float
    ratio: float
    tokenized: float
    """Characters given to the tokenizer while building, divided by those of the finished prompts."""
    most: float | None
    """Limit of the ratio; None if there is none."""
    most_tokenized: float | None = None
    """Limit of `tokenized`; None if there is none."""

    @property
    def ok(self) -> bool:
        """True if both figures keep their limits."""
        limits = ((self.ratio, self.most), (self.tokenized, self.most_tokenized))
        return all(most is None or figure <= most for figure, most in limits)

    def __str__(self) -> str:
        limits = ", ".join(f"<= {most:.1f}" for most in (self.most, self.most_tokenized) if most is not None)
        required = f"{limits}  {'ok' if self.ok else 'NOT ok'}" if limits else ""
        figures = f"{self.build_seconds:9.4f} {self.plain_seconds:9.4f} {self.ratio:7.2f} {self.tokenized:9.2f}"
        return f"{self.tokenizer:12} {self.task:21} {format_length(self.length):>6} {figures}  {required}"


class CountingTokenizer:
    """A fast tokenizer that counts the characters of the texts it encodes."""

    def __init__(self, fast: Any) -> None:
        self._fast = fast
        self.characters = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fast, name)

    def encode(self, text: str, **settings: Any) -> Any:
        self.characters += len(text)
        return self._fast.encode(text, **settings)

    def encode_batch(self, texts: list[str], **settings: Any) -> Any:
        self.characters += sum(map(len, texts))
        return self._fast.encode_batch(texts, **settings)


def main() -> int:
    """Print one line for every task and length; return 1 if a limit is exceeded, else 0."""
    options = _options()
    say = sys.stdout.write
    figures: list[Figure] = []
    starts, peaks = [], []
    headings = f"{'build s':>9} {'plain s':>9} {'ratio':>7} {'tokenized':>9}  required"
    say(f"{'tokenizer':12} {'task':21} {'length':>6} {headings}\n")
    for name, tokenizer in _tokenizers(options.tokenizer):
        of_tokenizer: list[Figure] = []
        for task in options.tasks:
            with ProcessPoolExecutor(1, mp_context=get_context("fork")) as process:
                task_figures, start, peak = process.submit(
                    of_task, name, tokenizer, task, options.lengths, options.samples
                ).result()
            say("".join(f"{figure}\n" for figure in task_figures))
            of_tokenizer += task_figures
            starts.append(start)
            peaks.append(peak)
        means = [_mean([figure for figure in of_tokenizer if figure.length == length]) for length in options.lengths]
        say("".join(f"{figure}\n" for figure in means))
        figures += [*of_tokenizer, *means]
    start, peak = max(starts), max(peaks)
    is_start_ok, is_peak_ok = start <= MAX_START_SECONDS, peak <= MAX_GIBIBYTES
    say(f"start {start:.2f} s CPU at most, required <= {MAX_START_SECONDS}  {'ok' if is_start_ok else 'NOT ok'}\n")
    say(f"peak memory {peak:.2f} GiB, required <= {MAX_GIBIBYTES}  {'ok' if is_peak_ok else 'NOT ok'}\n")
    if options.json:
        rows = [asdict(figure) | {"ok": figure.ok} for figure in figures]
        report = {"figures": rows, "peak_gibibytes": peak, "start_seconds": starts}
        options.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    return 0 if is_start_ok and is_peak_ok and all(figure.ok for figure in figures) else 1


def of_task(
    name: str, tokenizer: Any, task: str, lengths: Sequence[int], samples: int
) -> tuple[list[Figure], float, float]:
    """Measure one task; return its figures, the CPU seconds to its first sample, and the peak memory in GiB."""
    tokenizer._tokenizer = CountingTokenizer(tokenizer.backend_tokenizer)
    started = time.process_time()
    formatter, corpora = PromptFormatter(tokenizer), Corpora()
    # With another seed, so that all measured samples are new.
    TASKS[task].sample(min(lengths), 0, seed=1, tokenizer=formatter, corpora=corpora)
    start = time.process_time() - started
    figures = [measure(name, tokenizer, formatter, corpora, task, length, samples) for length in lengths]
    return figures, start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


def measure(
    name: str, tokenizer: Any, formatter: PromptFormatter, corpora: Corpora, task: str, length: int, samples: int
) -> Figure:
    """Measure building and plain tokenization in turns.

    The samples begin at index 0: the task checks the tokens of that sample against those of its whole text.
    """
    builds, plains = [], []
    counter = tokenizer.backend_tokenizer
    encoded = finished = 0
    for index in range(samples):
        before, started = counter.characters, time.process_time()
        sample = TASKS[task].sample(length, index, seed=0, tokenizer=formatter, corpora=corpora)
        built = time.process_time()
        encoded += counter.characters - before
        finished += len(sample.prompt.text)
        _ = tokenizer(sample.prompt.text, add_special_tokens=False, verbose=False)["input_ids"]
        plains.append(time.process_time() - built)
        builds.append(built - started)
    ratio = sum(builds) / sum(plains)
    most = None
    if task in RULER and length >= LONG:
        most = MAX_NEW if task in NEW_UNITS else MAX_KNOWN
    elif task in RULER and length == 4096:
        most = MAX_SHORT
    return Figure(
        tokenizer=name,
        task=task,
        length=length,
        build_seconds=statistics.fmean(builds),
        plain_seconds=statistics.fmean(plains),
        ratio=ratio,
        tokenized=encoded / finished,
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
        tokenized=statistics.fmean(figure.tokenized for figure in figures),
        most=MAX_MEAN if first.length >= LONG and [figure.task for figure in figures] == RULER else None,
        most_tokenized=MAX_TOKENIZED if _is_suite([figure.task for figure in figures]) else None,
    )


def _is_suite(names: Sequence[str]) -> bool:
    """Return True for all tasks of one suite."""
    suites = {TASKS[name].suite for name in names}
    return len(suites) == 1 and len(names) == sum(task.suite in suites for task in TASKS.values())


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
    parser.add_argument("--suite", choices=("ruler", "helmet"), default="ruler")
    parser.add_argument("--tasks", type=lambda text: text.split(","), help="some tasks of any suite")
    parser.add_argument("--tokenizer", help="directory of a tokenizer to measure instead")
    parser.add_argument("--json", type=Path, help="write the figures to FILE")
    options = parser.parse_args()
    options.tasks = options.tasks or [name for name, task in TASKS.items() if task.suite == options.suite]
    return options


if __name__ == "__main__":
    sys.exit(main())
