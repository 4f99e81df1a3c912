"""Compare the batch that the engine chooses on a CPU with other numbers of rows, and chunks of prompts with whole ones.

    python -m benchmarks.batch_sizes path/to/ckpt [--lengths 512,2k] [--steps 12] [--json FILE]

Prompts are read one at a time, so an answer costs its prompt, its place in the batch, and its share of each decoding
step. The script measures the three for 1, 2, 4, 8, 16 and 32 rows, in CPU seconds, the least of four measurements, and
adds them up for answers of `--steps` tokens. Exit code 1 if the chosen number of rows costs over 10 % more than the
best.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.engines.hf.engine import HfEngine, load_hf_engine
from longctx.fixtures.engines.hf.rows import DecodingRows, places_for
from longctx.fixtures.lengths import parse_length
from longctx.fixtures.tokenization.load import load_tokenizer

ROWS = (1, 2, 4, 8, 16, 32)
CHUNKS = (128, 256, 512, 1024)
REPEATS = 4
MOST_EXCESS = 1.1
# RULER's needle tasks reserve as many tokens for an answer.
ANSWER_TOKENS = 128


def least_seconds(run: Callable[[], object]) -> float:
    """Return the least CPU seconds of several calls."""
    times = []
    for _ in range(REPEATS):
        started = time.process_time()
        run()
        times.append(time.process_time() - started)
    return min(times)


def prefill_seconds(engine: HfEngine, ids: torch.Tensor) -> dict[str, float]:
    """Return the seconds in which a prompt is read, by the tokens of a chunk."""
    length = ids.shape[1]
    chosen = engine.prefill_mode.chunk_tokens(length)
    sizes = {str(size): size for size in CHUNKS if size < length} | {"whole": length, "chosen": chosen}
    return {
        name: least_seconds(partial(engine.forward.prefill, ids, chunk_tokens=size)) for name, size in sizes.items()
    }


def row_seconds(engine: HfEngine, ids: torch.Tensor, rows: int) -> tuple[float, float]:
    """Return the seconds of a prompt's copy into a batch of so many rows, and of its share of a decoding step."""
    cache, _ = engine.forward.prefill(ids, chunk_tokens=None)
    tokens = torch.ones(rows, dtype=torch.long)
    if rows == 1:
        return 0.0, least_seconds(lambda: engine.forward.extend(cache, tokens[:, None]))
    batch = DecodingRows(engine.forward, rows=rows, places=places_for(ids.shape[1] + ANSWER_TOKENS))
    started = time.process_time()
    for row in range(rows):
        batch.fill(row, cache)
    copied = time.process_time() - started
    return copied / rows, least_seconds(lambda: batch.extend(tokens, tokens)) / rows


def measure(engine: HfEngine, length: int, steps: int) -> dict[str, object]:
    """Return the seconds of one answer by rows, and the excess of the chosen number over the best."""
    ids = torch.arange(length - ANSWER_TOKENS)[None] % 1000
    prefill = prefill_seconds(engine, ids)
    chosen = engine.rows(length)
    answers = {}
    for rows in sorted({*ROWS, chosen}):
        copied, step = row_seconds(engine, ids, rows)
        answers[rows] = prefill["chosen"] + copied + steps * step
    return {
        "length": length, "prefill_seconds": prefill, "answer_seconds": answers, "chosen_rows": chosen,
        "excess": answers[chosen] / min(answers[rows] for rows in ROWS),
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table for every length; return 1 if a chosen batch costs too much, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkpoint")
    parser.add_argument("--lengths", default="512,2k")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    checkpoint = read_checkpoint(given.checkpoint)
    engine = load_hf_engine(checkpoint, tokenizer=load_tokenizer(checkpoint.path), device="cpu")  # type: ignore[arg-type]  # it decodes too
    results = []
    for text in given.lengths.split(","):
        found = measure(engine, parse_length(text), given.steps)
        results.append(found)
        print(json.dumps(found), flush=True)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")
    return int(any(float(str(found["excess"])) > MOST_EXCESS for found in results))


if __name__ == "__main__":
    sys.exit(main())
