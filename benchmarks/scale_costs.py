"""What a verdict costs on paper: `python -m benchmarks.scale_costs [--teraflops N]`.

Arithmetic on measured rates: a causal decoder computes 2 x parameters for each token and 2 x layers x width x L^2 for
the attention of a prompt of L tokens, and what others measured for whole prompts says how much of that one GPU does in
a second. Without --teraflops the slowest rate of an H100 counts; give what `python -m benchmarks.gpu_prefill` finds on
your GPU instead.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

LENGTHS = (4, 8, 16, 32, 64, 128, 1024)
# Samples after which the median panel of 6500 was certain: benchmarks/false_verdicts.py.
SAMPLES = 138
FULL_SAMPLES = 6500
GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A model's size; `width` is that of all query heads together, `cached` elements a token takes in the cache."""

    name: str
    parameters: float
    layers: int
    width: int
    cached: int

    def flops(self, length: int) -> float:
        """Of reading one prompt."""
        return 2 * self.parameters * length + 2 * self.layers * self.width * length**2

    def gibibytes(self, length: int) -> float:
        """Weights and cache of one prompt, at two bytes an element."""
        return 2 * (self.parameters + self.cached * length) / GIB


# Llama 3.1 as its configs have it: 8 key-value heads of 128 in each layer.
SIZES = (
    Size(name="8B", parameters=8.0e9, layers=32, width=4096, cached=2 * 32 * 8 * 128),
    Size(name="70B", parameters=70.6e9, layers=80, width=8192, cached=2 * 80 * 8 * 128),
    Size(name="405B", parameters=405.9e9, layers=126, width=16384, cached=2 * 126 * 8 * 128),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """A prompt of `tokens` that was read in `seconds` on so many GPUs, as `source` says."""

    gpu: str
    size: Size
    tokens: int
    seconds: float
    gpus: int
    source: str

    @property
    def teraflops(self) -> float:
        """What one GPU sustained, counted as this file counts."""
        return self.size.flops(self.tokens) / (self.seconds * self.gpus) / 1e12


# "1M" is counted as a million, the lower of its two readings.
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
SLOWEST_H100 = min(each.teraflops for each in MEASURED if each.gpu == "H100")


def rates() -> list[str]:
    """Rows of a Markdown table: what was measured, and what one GPU did."""
    rows = ["| GPU | measured | TFLOP/s of one GPU | source |", "|---|---|---|---|"]
    for each in MEASURED:
        on = f"{each.gpus} GPUs" if each.gpus > 1 else "one GPU"
        told = f"{each.size.name}, {each.tokens:,} tokens in {each.seconds:g} s on {on}"
        rows.append(f"| {each.gpu} | {told} | {each.teraflops:.0f} | {each.source} |")
    return rows


def table(teraflops: float) -> list[str]:
    """Rows of a Markdown table: GPU hours of a verdict and of a full panel, and memory, by length and size."""
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
    parser = argparse.ArgumentParser(description="GPU hours on paper")
    parser.add_argument("--teraflops", type=float, default=SLOWEST_H100, help="sustained by one GPU reading prompts")
    teraflops = parser.parse_args().teraflops
    print("\n".join([*rates(), "", f"at {teraflops:.0f} TFLOP/s:", "", *table(teraflops)]))


if __name__ == "__main__":
    main()
