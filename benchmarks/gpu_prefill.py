"""How fast an 8B-shaped model reads on this GPU, and whether its peak memory is the estimated one.

    python -m benchmarks.gpu_prefill [--layers N] [--lengths 32768,131072] [--json FILE]

Weights are random bfloat16 and made on the GPU; nothing is written to disk but the JSON. The ceiling is
the best rate of a large bfloat16 product on the same card. Exit code 1 where a peak is not within 10 % of
its estimate. Without a GPU nothing is measured; `--toy` runs a tiny model on the CPU, memory aside.
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

from fixtures.checkpoints.checkpoint import Checkpoint
from fixtures.engines.hf.prefill import CachedForward
from fixtures.memory.estimate import default_chunk_tokens, estimate_peak_memory

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
    """One attention at one length; `ceiling_share` is of 1; bytes are None where the device does not count them."""

    attention: str
    length_tokens: int
    chunk_tokens: int | None
    tokens_per_second: float
    ceiling_share: float
    peak_bytes: int | None
    estimated_bytes: int

    @property
    def is_as_estimated(self) -> bool:
        return self.peak_bytes is None or abs(self.estimated_bytes / self.peak_bytes - 1) <= TOLERANCE


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--layers", type=int, help="32, or 2 with --toy")
    parser.add_argument("--lengths", help="in tokens; 32768,131072, or 128,256 with --toy")
    parser.add_argument("--repeats", type=int, default=3, help="the median of so many is told")
    parser.add_argument("--attention", help="only these, of " + ", ".join(ATTENTIONS))
    parser.add_argument("--json", type=Path, help="the file to write")
    parser.add_argument("--toy", action="store_true", help="a tiny model on the CPU")
    options = parser.parse_args(arguments)
    if not (options.toy or torch.cuda.is_available()):
        print("not measured: no GPU")
        return 0
    device = torch.device("cpu" if options.toy else "cuda")
    shape = TOY if options.toy else LLAMA_8B
    config = LlamaConfig(**shape, num_hidden_layers=options.layers or (2 if options.toy else 32))  # type: ignore[arg-type]  # all are int
    lengths = [int(n) for n in (options.lengths or ("128,256" if options.toy else "32768,131072")).split(",")]
    wanted = (
        options.attention.split(",") if options.attention else [n for n, is_there in ATTENTIONS.items() if is_there()]
    )
    ceiling = measured_ceiling(device, 256 if options.toy else CEILING_SIZE)
    model = built(config, device)
    rows = [measured(model, name, length, options.repeats, ceiling) for name in wanted for length in lengths]
    hardware = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    print(f"{hardware}, ceiling {ceiling / 1e12:.2f} TFLOP/s in bfloat16, {config.num_hidden_layers} layers")
    print(
        f"{'attention':<18} {'tokens':>7} {'chunk':>6} {'tokens/s':>9} {'ceiling':>8} {'peak GiB':>9} {'estimate':>9}"
    )
    for row in rows:
        print(line(row))
    if options.json:
        table = [asdict(row) | {"is_as_estimated": row.is_as_estimated} for row in rows]
        found = {"hardware": hardware, "ceiling_flops": ceiling, "layers": config.num_hidden_layers, "rows": table}
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0 if all(row.is_as_estimated for row in rows) else 1


def line(row: Row) -> str:
    peak = "-" if row.peak_bytes is None else f"{row.peak_bytes / 2**30:.2f}"
    return (
        f"{row.attention:<18} {row.length_tokens:>7} {row.chunk_tokens or 'whole':>6} {row.tokens_per_second:>9,.0f} "
        f"{row.ceiling_share:>8.1%} {peak:>9} {row.estimated_bytes / 2**30:>9.2f}"
        + ("" if row.is_as_estimated else "  not within 10 %")
    )


def built(config: LlamaConfig, device: torch.device) -> Any:
    """Random weights, made where they stay."""
    torch.manual_seed(0)
    with device:
        model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    return model.eval()


def measured_ceiling(device: torch.device, size: int) -> float:
    """FLOP/s of a square bfloat16 product, the best of ten."""
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    left @ right
    return float(2 * size**3 / min(seconds_of(lambda: left @ right, device) for _ in range(10)))


def measured(model: Any, attention: str, length: int, repeats: int, ceiling: float) -> Row:
    """The median of `repeats` prefills after one that warms up, along the path the engine takes."""
    model.set_attn_implementation(attention)
    forward, chunk, device = CachedForward(model), default_chunk_tokens(attention, sliding=False), model.device
    ids = torch.randint(0, model.config.vocab_size, (1, length), device=device)
    forward.prefill(ids, chunk=chunk)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    seconds = statistics.median(seconds_of(lambda: forward.prefill(ids, chunk=chunk), device) for _ in range(repeats))
    estimate = estimate_peak_memory(
        checkpoint_of(model), length, attention=attention, prefill="whole" if chunk is None else str(chunk)
    )
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
    """Of all weights but the embeddings (the last position alone has logits), and of causal attention."""
    config = model.config
    embeddings = {id(each.weight): each.weight.numel() for each in (model.get_input_embeddings(), model.lm_head)}
    weights = sum(each.numel() for each in model.parameters()) - sum(embeddings.values())
    return int(2 * weights * length + 2 * 2 * length**2 * config.hidden_size * config.num_hidden_layers // 2)


def checkpoint_of(model: Any) -> Checkpoint:
    """What the estimate needs of a model that is on no disk."""
    return Checkpoint(
        name="8b",
        path="",
        architecture=type(model).__name__,
        model_type=model.config.model_type,
        claimed_length=None,
        dtype="bfloat16",
        parameters=sum(each.numel() for each in model.parameters()),
        weight_bytes=sum(each.nbytes for each in model.parameters()),
        fingerprint="",
        config=model.config.to_dict(),
        calibration=None,
    )


def seconds_of(work: Any, device: torch.device) -> float:
    begun = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begun


if __name__ == "__main__":
    raise SystemExit(main())
