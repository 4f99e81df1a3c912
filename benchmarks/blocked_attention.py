"""Compare the attention in blocks with torch's kernel: the time of a prompt in bfloat16, and the error of its logits.

    python -m benchmarks.blocked_attention path/to/ckpt [--lengths 1k,4k] [--prompts 4] [--json FILE]

Each prompt, a part of this project's pages, is read by both, one after the other, in the engine's chunks. Times are
medians of CPU seconds. The error is the root mean square of the difference from float32 logits, at the last 64 places
of every prompt, divided by their standard deviation. Exit code 1 if blocks are slower at a length, or their error is
more than 1.2 times that of torch's kernel.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import torch
from torch import Tensor
from transformers import AutoTokenizer, DynamicCache

from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.engines.hf import blocked_attention
from longctx.fixtures.engines.hf.engine import HfEngine, load_hf_engine
from longctx.fixtures.installation import SUITE
from longctx.fixtures.lengths import format_length, parse_length

DOCS = SUITE / "docs"
PLACES = 64
MOST_ERROR = 1.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Both kinds of attention at one length."""

    length: str
    torch_seconds: float
    blocked_seconds: float
    torch_error: float
    blocked_error: float


def last_logits(engine: HfEngine, ids: Tensor) -> Tensor:
    """Return the logits of the last places of a prompt (places x vocabulary)."""
    chunk, cache = engine.prefill_mode.chunk_tokens(ids.shape[1]), DynamicCache(config=engine.forward.model.config)
    for start in range(0, ids.shape[1], chunk):
        logits = engine.forward.last_logits(cache, ids[:, start : start + chunk], PLACES)
    return logits[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for every length; return 1 if blocks are slower or less exact, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkpoint")
    parser.add_argument("--lengths", default="1k,4k")
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    checkpoint, tokenizer = read_checkpoint(args.checkpoint), AutoTokenizer.from_pretrained(args.checkpoint)
    torch.set_num_threads(1)
    engines = {
        name: load_hf_engine(checkpoint, tokenizer=tokenizer, device="cpu", dtype=dtype, attention="sdpa")
        for name, dtype in (("torch", "bfloat16"), ("blocked", "bfloat16"), ("exact", "float32"))
    }
    blocked_attention.use_blocks(engines["blocked"].forward.model)
    text = tokenizer.encode("\n".join(page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("*.md"))))
    rows = []
    print(f"{'length':>6} {'torch, s':>9} {'blocks, s':>9} {'ratio':>6} {'torch, error':>12} {'blocks, error':>13}")
    for length in map(parse_length, args.lengths.split(",")):
        seconds: dict[str, list[float]] = {name: [] for name in engines}
        logits: dict[str, list[Tensor]] = {name: [] for name in engines}
        for number in range(args.prompts + 1):
            start = number * len(text) // (args.prompts + 2)
            ids = torch.tensor([text[start : start + length]])
            for name, engine in engines.items():
                started = time.process_time()
                found = last_logits(engine, ids)
                # The first prompt of a shape also pays for the memory.
                if number:
                    seconds[name].append(time.process_time() - started)
                    logits[name].append(found)
        exact = torch.stack(logits["exact"])
        errors = {
            name: float((torch.stack(logits[name]) - exact).pow(2).mean().sqrt() / exact.std())
            for name in ("torch", "blocked")
        }
        row = Row(
            length=format_length(length), torch_seconds=median(seconds["torch"]),
            blocked_seconds=median(seconds["blocked"]), torch_error=errors["torch"], blocked_error=errors["blocked"],
        )  # fmt: skip
        rows.append(row)
        print(
            f"{row.length:>6} {row.torch_seconds:>9.3f} {row.blocked_seconds:>9.3f} "
            f"{row.torch_seconds / row.blocked_seconds:>6.2f} {row.torch_error:>12.5f} {row.blocked_error:>13.5f}",
            flush=True,
        )
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows]), encoding="utf-8")
    is_better = all(
        row.blocked_seconds <= row.torch_seconds and row.blocked_error <= MOST_ERROR * row.torch_error for row in rows
    )
    return 0 if is_better else 1


if __name__ == "__main__":
    sys.exit(main())
