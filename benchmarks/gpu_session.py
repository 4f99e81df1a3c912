"""Measure in ten minutes on one GPU what the documents say about speed, memory and exactness.

    python -m benchmarks.gpu_session --out DIR [--minutes 10] [--checkpoint CKPT]

DIR gets `gpu_session.json` and the page `gpu_session.md`. The parts are, in this order: exactness of the GPU against
float32 on the CPU, prefill of 32K and 128K with every attention implementation (`benchmarks.gpu_prefill`), decoding,
batches of short prompts, two processes on one card, and with a checkpoint its most expensive faults. A part that fails
leaves its reason, and one that cannot start in time is not measured. `--tiny` runs all parts with a tiny model on the
CPU; its figures say nothing. Limit: exit code 1 if a part fails, logits differ, or a peak differs from its estimate by
more than 10 %.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig

from benchmarks.gpu_prefill import (
    ATTENTIONS,
    CEILING_SIZE,
    LLAMA_8B,
    TOY,
    build_model,
    measure,
    measure_ceiling,
    seconds_of,
)
from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.engines.hf.prefill import CachedForward

Row = dict[str, Any]
REPOSITORY = Path(__file__).parents[1]
PARTS = ("exactness", "prefill", "decode", "batches", "workers", "faults")
# Faults whose effect shows only at a length that a CPU does not reach in reasonable time.
HEAVY_FAULTS = ("clamped_positions", "dropped_keys", "fp8_cache")
# The logits of the exactness check have a standard deviation of about 1.
EXACT_LIMIT = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The sizes of one session."""

    shape: dict[str, int]
    layers: int
    lengths: tuple[int, ...]
    decode_tokens: int
    batch_length: int
    batches: tuple[int, ...]
    ceiling_size: int


GPU = Scale(
    shape=LLAMA_8B, layers=32, lengths=(32768, 131072), decode_tokens=64, batch_length=4096, batches=(1, 4, 8),
    ceiling_size=CEILING_SIZE,
)  # fmt: skip
TINY = Scale(
    shape=TOY, layers=2, lengths=(128, 256), decode_tokens=4, batch_length=32, batches=(1, 2), ceiling_size=256
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the session; the field names are keys of the JSON file."""

    name: str
    rows: tuple[Row, ...]
    seconds: float
    problem: str
    """The reason why it was not measured or what is wrong; empty for none."""


class Session:
    """One model on one device, and the parts that measure it."""

    def __init__(self, scale: Scale, device: torch.device, checkpoint: Path | None):
        self.scale = scale
        self.device = device
        self.checkpoint = checkpoint
        self.attentions = [name for name, is_available in ATTENTIONS.items() if is_available() and name != "eager"]
        self.ceiling = measure_ceiling(device, scale.ceiling_size)
        self._model: Any = None

    @property
    def model(self) -> Any:
        """The model that all parts but exactness measure, made when it is first needed."""
        if self._model is None:
            config = LlamaConfig(**self.scale.shape, num_hidden_layers=self.scale.layers)  # type: ignore[arg-type]  # all are int
            self._model = build_model(config, self.device)
        return self._model

    def exactness(self) -> list[Row]:
        """Compare the logits of a small model in float32 on the device with those on the CPU."""
        config = LlamaConfig(**TOY, num_hidden_layers=2)  # type: ignore[arg-type]  # all are int
        model = build_model(config, torch.device("cpu")).float()
        ids = torch.randint(0, config.vocab_size, (1, 200), generator=torch.Generator().manual_seed(0))
        _, expected = CachedForward(model).prefill(ids, chunk_tokens=None)
        model.to(self.device)
        rows = []
        for chunk in (None, 64):
            _, got = CachedForward(model).prefill(ids.to(self.device), chunk_tokens=chunk)
            difference = float((got.cpu() - expected).abs().max() / expected.std())
            rows.append({"chunk_tokens": chunk, "difference": difference, "ok": difference <= EXACT_LIMIT})
        return rows

    def prefill(self) -> list[Row]:
        """Measure every attention implementation at every length, and the peaks against the estimate of --plan."""
        rows = []
        for length in self.scale.lengths:
            for attention in self.attentions:
                row = measure(self.model, attention, length, 1, self.ceiling)
                rows.append(asdict(row) | {"ok": row.is_as_estimated})
        return rows

    def decode(self) -> list[Row]:
        """Measure the tokens of an answer that follow prompts of every length."""
        forward, rows = CachedForward(self.model), []
        for length in self.scale.lengths:
            cache, _ = forward.prefill(self._ids(1, length), chunk_tokens=8192)
            token = self._ids(1, 1)

            def answer(cache: Any = cache, token: Any = token) -> None:
                for _ in range(self.scale.decode_tokens):
                    forward.extend(cache, token)

            seconds = seconds_of(answer, self.device)
            rows.append({"length_tokens": length, "tokens_per_second": self.scale.decode_tokens / seconds})
        return rows

    def batches(self) -> list[Row]:
        """Measure prompts of one length that are read together."""
        forward, rows = CachedForward(self.model), []
        for size in self.scale.batches:
            ids = self._ids(size, self.scale.batch_length)
            forward.prefill(ids, chunk_tokens=None)
            seconds = seconds_of(lambda ids=ids: forward.prefill(ids, chunk_tokens=None), self.device)
            rows.append({"prompts": size, "tokens_per_second": ids.numel() / seconds})
        return rows

    def workers(self) -> list[Row]:
        """Measure one and two processes that read short prompts on the same card."""
        self._model = None
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        command = [sys.executable, "-m", "benchmarks.gpu_session", "--worker"]
        command += ["--tiny"] if self.scale is TINY else []
        rows = []
        for count in (1, 2):
            processes = [subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE) for _ in range(count)]
            rates = [float(process.communicate()[0]) for process in processes]
            rows.append({"processes": count, "tokens_per_second": sum(rates)})
        return rows

    def faults(self) -> list[Row]:
        """Compare a checkpoint with the same checkpoint under faults that show at a length."""
        if self.checkpoint is None:
            raise LookupError("needs --checkpoint")
        rows = []
        for fault in HEAVY_FAULTS:
            command = [sys.executable, "-m", "pytest", "--model", str(self.checkpoint), "--suite", "ruler", "-q"]
            command += ["--lengths", "1k" if self.scale is TINY else "8k", "-k", "niah_multikey_1", "--samples", "64"]
            ended = subprocess.run(
                [*command, "--full", "-p", "longctx.fixtures.faults.plugin", "--inject-fault", fault],
                cwd=REPOSITORY, capture_output=True, text=True, check=False,
            )  # fmt: skip
            lines = [line for line in ended.stdout.splitlines() if line.startswith("ruler")]
            rows.append({"fault": fault, "result": lines[0] if lines else f"exit code {ended.returncode}"})
        return rows

    def worker_rate(self) -> float:
        """Return the tokens per second of repeated prompts, after a warm-up."""
        forward, ids = CachedForward(self.model), self._ids(1, self.scale.batch_length)
        forward.prefill(ids, chunk_tokens=None)
        repeats = 8
        seconds = seconds_of(lambda: [forward.prefill(ids, chunk_tokens=None) for _ in range(repeats)], self.device)
        return repeats * ids.numel() / seconds

    def _ids(self, rows: int, length: int) -> torch.Tensor:
        return torch.randint(0, self.scale.shape["vocab_size"], (rows, length), device=self.device)


def run_part(name: str, work: Callable[[], list[Row]], deadline: float) -> Part:
    """Return the rows of a part, or the reason why there are none."""
    started = time.monotonic()
    if started > deadline:
        return Part(name=name, rows=(), seconds=0.0, problem="not measured: no time left")
    rows: list[Row] = []
    problem = ""
    try:
        rows = work()
    except LookupError as error:
        problem = f"not measured: {error}"
    except (RuntimeError, ValueError, OSError) as error:
        problem = f"failed: {str(error).partition(chr(10))[0]}"
    if any(not row.get("ok", True) for row in rows):
        problem = "a row is not ok"
    return Part(name=name, rows=tuple(rows), seconds=time.monotonic() - started, problem=problem)


def page(hardware: str, ceiling: float, parts: Sequence[Part]) -> str:
    """Return the results in Markdown."""
    lines = [f"# GPU session on {hardware}", "", f"Ceiling: {ceiling / 1e12:.1f} TFLOP/s in bfloat16."]
    for part in parts:
        lines += ["", f"## {part.name} ({part.seconds:.0f} s)", "", part.problem or "All rows are ok.", ""]
        if part.rows:
            names = list(part.rows[0])
            lines += [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
            lines += [f"| {' | '.join(_cell(row[name]) for name in names)} |" for row in part.rows]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all parts and write both files; return 1 if a part failed or has a row that is not ok, else 0."""
    options = _parse(arguments)
    if not (options.tiny or torch.cuda.is_available()):
        print("not measured: no GPU")
        return 0
    started = time.monotonic()
    device = torch.device("cpu" if options.tiny else "cuda")
    session = Session(TINY if options.tiny else GPU, device, options.checkpoint)
    if options.worker:
        print(session.worker_rate())
        return 0
    deadline = started + 60 * options.minutes
    parts = [run_part(name, getattr(session, name), deadline) for name in options.parts.split(",")]
    hardware = torch.cuda.get_device_name() if device.type == "cuda" else "a CPU, with a tiny model"
    document = {"hardware": hardware, "ceiling_flops": session.ceiling, "parts": [asdict(part) for part in parts]}
    options.out.mkdir(parents=True, exist_ok=True)
    write_file(options.out / "gpu_session.json", (json.dumps(document, indent=2) + "\n").encode())
    write_file(options.out / "gpu_session.md", page(hardware, session.ceiling, parts).encode())
    print(f"{options.out / 'gpu_session.md'}: {time.monotonic() - started:.0f} s")
    return int(any(part.problem and not part.problem.startswith("not measured") for part in parts))


def _cell(value: Any) -> str:
    return f"{value:,.3g}" if isinstance(value, float) else str(value)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/gpu_session"), metavar="DIR")
    parser.add_argument("--minutes", type=float, default=10.0, help="no part starts after this time (default: 10)")
    parser.add_argument("--parts", default=",".join(PARTS), help="the parts to measure (default: all)")
    parser.add_argument("--checkpoint", type=Path, metavar="CKPT", help="also measure faults on this checkpoint")
    parser.add_argument("--tiny", action="store_true", help="run all parts with a tiny model on the CPU")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
