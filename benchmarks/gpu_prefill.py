"""Measure how fast an 8B-shaped model reads prompts on this GPU, and check the estimate of its peak memory.

    python -m benchmarks.gpu_prefill [--layers N] [--lengths 32768,131072] [--json FILE]

The weights are random bfloat16 numbers made on the GPU; only the JSON is written to disk. The ceiling is the best rate
of a large bfloat16 matrix product on the same card. Limit: exit code 1 if a peak differs from its estimate by more than
10 %. Without a GPU nothing is measured; `--toy` runs a tiny model on the CPU and measures no memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.utils import import_utils

from longctx.fixtures.checkpoints.checkpoint import Checkpoint
from longctx.fixtures.engines.hf.prefill import CachedForward
from longctx.fixtures.memory.estimate import (
    chunk_tokens_for,
    estimate_peak_memory,
    largest_chunk_tokens,
    least_chunk_tokens,
)

LLAMA_8B = {
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}
TOY = {**LLAMA_8B, "vocab_size": 320, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
TOY["num_key_value_heads"] = 2
TOLERANCE = 0.1
CEILING_SIZE = 8192
ATTENTIONS = {
    "eager": lambda: True,
    "sdpa": lambda: True,
    "flash_attention_2": import_utils.is_flash_attn_2_available,
    "flash_attention_3": import_utils.is_flash_attn_3_available,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One attention implementation at one length; the field names are keys of the JSON file."""

    attention: str
    length_tokens: int
    chunk_tokens: int
    """Tokens of a prefill chunk."""
    tokens_per_second: float
    ceiling_share: float
    """Achieved FLOP/s divided by the ceiling, 0 to 1."""
    peak_bytes: int | None
    """Peak memory; None if the device does not count it."""
    estimated_bytes: int

    @property
    def is_as_estimated(self) -> bool:
        """True if the peak is within 10 % of its estimate, or was not measured."""
        return self.peak_bytes is None or abs(self.estimated_bytes / self.peak_bytes - 1) <= TOLERANCE


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table of all attention implementations and lengths; return 1 if a peak was misestimated, else 0."""
    options = _parse(arguments)
    if not (options.toy or torch.cuda.is_available()):
        print("not measured: no GPU")
        return 0
    device = torch.device("cpu" if options.toy else "cuda")
    shape = TOY if options.toy else LLAMA_8B
    config = LlamaConfig(**shape, num_hidden_layers=options.layers or (2 if options.toy else 32))  # type: ignore[arg-type]  # all are int
    lengths = [int(n) for n in (options.lengths or ("128,256" if options.toy else "32768,131072")).split(",")]
    available = [name for name, is_available in ATTENTIONS.items() if is_available()]
    attentions = options.attention.split(",") if options.attention else available
    ceiling = measure_ceiling(device, 256 if options.toy else CEILING_SIZE)
    model = build_model(config, device)
    rows = [measure(model, name, length, options.repeats, ceiling) for name in attentions for length in lengths]
    hardware = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    print(f"{hardware}, ceiling {ceiling / 1e12:.2f} TFLOP/s in bfloat16, {config.num_hidden_layers} layers")
    print(
        f"{'attention':<18} {'tokens':>7} {'chunk':>6} {'tokens/s':>9} {'ceiling':>8} {'peak GiB':>9} {'estimate':>9}"
    )
    for row in rows:
        print(line(row))
    if options.json:
        table = [asdict(row) | {"is_as_estimated": row.is_as_estimated} for row in rows]
        results = {"hardware": hardware, "ceiling_flops": ceiling, "layers": config.num_hidden_layers, "rows": table}
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0 if all(row.is_as_estimated for row in rows) else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--layers", type=int, help="layers of the model (default: 32, or 2 with --toy)")
    parser.add_argument("--lengths", help="prompt tokens (default: 32768,131072, or 128,256 with --toy)")
    parser.add_argument("--repeats", type=int, default=3, help="prefills of which the median counts (default: 3)")
    parser.add_argument(
        "--attention", help="attention implementations (default: all available of " + ", ".join(ATTENTIONS) + ")"
    )
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--toy", action="store_true", help="run a tiny model on the CPU")
    return parser.parse_args(arguments)


def line(row: Row) -> str:
    """Return one row of the table."""
    peak = "-" if row.peak_bytes is None else f"{row.peak_bytes / 2**30:.2f}"
    return (
        f"{row.attention:<18} {row.length_tokens:>7} {row.chunk_tokens:>6} {row.tokens_per_second:>9,.0f} "
        f"{row.ceiling_share:>8.1%} {peak:>9} {row.estimated_bytes / 2**30:>9.2f}"
        + ("" if row.is_as_estimated else "  not within 10 %")
    )


def build_model(config: LlamaConfig, device: torch.device) -> Any:
    """Return a model with random weights, made on the device itself."""
    torch.manual_seed(0)
    with device:
        model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    return model.eval()


def measure_ceiling(device: torch.device, size: int) -> float:
    """Return the FLOP/s of a square bfloat16 matrix product, the best of ten."""
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    left @ right
    return float(2 * size**3 / min(seconds_of(lambda: left @ right, device) for _ in range(10)))


def measure(model: Any, attention: str, length: int, repeats: int, ceiling: float) -> Row:
    """Measure the median of `repeats` prefills after a warm-up, with the code that the engine uses."""
    model.set_attn_implementation(attention)
    forward, device, largest = CachedForward(model), model.device, largest_chunk_tokens(attention)
    chunk = chunk_tokens_for(
        length, least=min(least_chunk_tokens(device.type, is_small=False), largest), largest=largest
    )
    ids = torch.randint(0, model.config.vocab_size, (1, length), device=device)
    forward.prefill(ids, chunk_tokens=chunk)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    seconds = statistics.median(
        seconds_of(lambda: forward.prefill(ids, chunk_tokens=chunk), device) for _ in range(repeats)
    )
    estimate = estimate_peak_memory(checkpoint_of(model), length, attention=attention, prefill=str(chunk))
    return Row(
        attention=attention,
        length_tokens=length,
        chunk_tokens=chunk,
        tokens_per_second=length / seconds,
        ceiling_share=prefill_flops(model, length) / seconds / ceiling,
        peak_bytes=torch.cuda.max_memory_allocated() if device.type == "cuda" else None,
        estimated_bytes=estimate.total_bytes,
    )


def prefill_flops(model: Any, length: int) -> int:
    """Return the operations of reading one prompt: all weights but the embeddings, and causal attention.

    Only the last position has logits, so the output layer hardly counts.
    """
    config = model.config
    embeddings = {id(layer.weight): layer.weight.numel() for layer in (model.get_input_embeddings(), model.lm_head)}
    weights = sum(weight.numel() for weight in model.parameters()) - sum(embeddings.values())
    return int(2 * weights * length + 2 * 2 * length**2 * config.hidden_size * config.num_hidden_layers // 2)


def checkpoint_of(model: Any) -> Checkpoint:
    """Return the facts that the memory estimate needs, for a model that is not on disk."""
    return Checkpoint(
        name="8b",
        path="",
        architecture=type(model).__name__,
        model_type=model.config.model_type,
        claimed_length=None,
        dtype="bfloat16",
        parameters=sum(weight.numel() for weight in model.parameters()),
        weight_bytes=sum(weight.nbytes for weight in model.parameters()),
        fingerprint="",
        config=model.config.to_dict(),
        calibration=None,
    )


def seconds_of(work: Any, device: torch.device) -> float:
    """Return the wall time of a call, up to the end of its work on the device."""
    started = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


if __name__ == "__main__":
    raise SystemExit(main())
