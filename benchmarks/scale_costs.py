"""Estimate the GPU hours and the memory of a verdict from published rates.

    python -m benchmarks.scale_costs [--teraflops N]

Prints the tables of docs/scale-figures.md. A causal decoder computes 2 x parameters operations for a token, and 2 x
layers x width x L^2 for the attention of a prompt of L tokens. Published times for whole prompts then give the rate of
one GPU. Without --teraflops the slowest rate of an H100 is used; `python -m benchmarks.gpu_prefill` measures the rate
of yours.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

LENGTHS = (4, 8, 16, 32, 64, 128, 1024)
# Samples until the verdict on the median panel of 6500, from benchmarks/false_verdicts.py.
SAMPLES = 138
FULL_SAMPLES = 6500
GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a decoder."""

    name: str
    parameters: float
    layers: int
    width: int
    """Width of all query heads together."""
    cached: int
    """Numbers in the KV cache for one token."""

    def flops(self, length: int) -> float:
        """Return the operations of reading one prompt."""
        return 2 * self.parameters * length + 2 * self.layers * self.width * length**2

    def gibibytes(self, length: int) -> float:
        """Return the memory of the weights and the KV cache of one prompt, at two bytes for a number."""
        return 2 * (self.parameters + self.cached * length) / GIB


# Llama 3.1 according to its configs: 8 key-value heads of 128 in every layer.
SIZES = (
    Size(name="8B", parameters=8.0e9, layers=32, width=4096, cached=2 * 32 * 8 * 128),
    Size(name="70B", parameters=70.6e9, layers=80, width=8192, cached=2 * 80 * 8 * 128),
    Size(name="405B", parameters=405.9e9, layers=126, width=16384, cached=2 * 126 * 8 * 128),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """A published time for reading one prompt on some GPUs."""

    gpu: str
    size: Size
    tokens: int
    seconds: float
    gpus: int
    source: str

    @property
    def teraflops(self) -> float:
        """The rate of one GPU, with operations counted as in `Size.flops`."""
        return self.size.flops(self.tokens) / (self.seconds * self.gpus) / 1e12


# "1M" counts as one million, the lower of its two meanings.
CONTEXT_PARALLEL = "Yang et al. 2024, arXiv 2411.01783, abstract"
MEASURED = (
    Prefill(gpu="H100", size=SIZES[2], tokens=131072, seconds=3.8, gpus=128, source=CONTEXT_PARALLEL),
    Prefill(gpu="H100", size=SIZES[2], tokens=10**6, seconds=77, gpus=128, source=CONTEXT_PARALLEL),
    Prefill(
        gpu="A100",
        size=SIZES[0],
        tokens=10**6,
        seconds=1800,
        gpus=1,
        source="Jiang et al. 2024 (MInference), arXiv 2407.02490, abstract: dense attention",
    ),
)
SLOWEST_H100 = min(prefill.teraflops for prefill in MEASURED if prefill.gpu == "H100")


def rates() -> list[str]:
    """Return the rows of a Markdown table: published times, and the rate of one GPU."""
    rows = ["| GPU | measured | TFLOP/s of one GPU | source |", "|---|---|---|---|"]
    for prefill in MEASURED:
        gpus = f"{prefill.gpus} GPUs" if prefill.gpus > 1 else "one GPU"
        measured = f"{prefill.size.name}, {prefill.tokens:,} tokens in {prefill.seconds:g} s on {gpus}"
        rows.append(f"| {prefill.gpu} | {measured} | {prefill.teraflops:.0f} | {prefill.source} |")
    return rows


def table(teraflops: float) -> list[str]:
    """Return the rows of a Markdown table: GPU hours of a verdict and of a full panel, and memory."""
    rows = [
        "| length | tokens of a verdict | of a full run | "
        + " | ".join(f"{size.name}: hours, full, GiB" for size in SIZES)
        + " |",
        "|---|---|---|" + "---|" * len(SIZES),
    ]
    for thousands in LENGTHS:
        length = 1024 * thousands
        cells = []
        for size in SIZES:
            hours = size.flops(length) / (teraflops * 1e12) / 3600
            cells.append(f"{_short(SAMPLES * hours)}, {_short(FULL_SAMPLES * hours)}, {size.gibibytes(length):,.0f}")
        name = "1M" if thousands == 1024 else f"{thousands}K"
        rows.append(
            f"| {name} | {SAMPLES * length / 1e6:,.1f}M | {FULL_SAMPLES * length / 1e6:,.0f}M | {' | '.join(cells)} |"
        )
    return rows


def _short(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.1f}" if hours >= 1 else f"{hours:.2f}"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description="Estimate the GPU hours and the memory of a verdict.")
    parser.add_argument("--teraflops", type=float, default=SLOWEST_H100, help="rate of one GPU that reads prompts")
    teraflops = parser.parse_args().teraflops
    print("\n".join([*rates(), "", f"at {teraflops:.0f} TFLOP/s:", "", *table(teraflops)]))


if __name__ == "__main__":
    main()
