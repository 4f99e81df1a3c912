"""Measure in nine minutes on one GPU what the documents say about speed, memory and exactness.

    python -m benchmarks.gpu_session --out DIR [--minutes 9] [--checkpoint CKPT]

DIR gets `gpu_session.json` and the page `gpu_session.md`, both written anew after every row, so a session that is cut
off loses nothing. The parts are, in this order: exactness of the GPU against float32 on the CPU, prefill of 4K to 64K
with every attention implementation, decoding of one prompt, decoding by the rows of a batch beside the number that the
engine chooses, a prompt that continues a cached prefix, and with a checkpoint all 13 tasks of RULER: by one worker, by
two on the card, and by vLLM where it is installed. A part that fails leaves its reason; after the time is up, no row
begins and no started run goes on. `--tiny` runs all parts with a tiny model on the CPU; its figures say nothing. The
ceiling is the best rate of a large bfloat16 matrix product. Limit: exit code 1 if a part fails, logits differ, or a
peak differs from its estimate by more than 10 %.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.utils import import_utils

from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.checkpoints.checkpoint import Checkpoint
from longctx.fixtures.engines.hf.batches import DecodingRows, places_for
from longctx.fixtures.engines.hf.engine import BATCH_TOKENS
from longctx.fixtures.engines.hf.prefill import CachedForward, PrefixCache, exact_prefill_mode
from longctx.fixtures.memory import (
    chunk_tokens_for,
    estimate_memory,
    largest_chunk_tokens,
    least_chunk_tokens,
)

Row = dict[str, Any]
REPOSITORY = Path(__file__).parents[1]
PARTS = ("exactness", "prefill", "decode", "rows", "sharing", "tasks")
# The logits of the exactness check have a standard deviation of about 1.
EXACT_LIMIT = 1e-3
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
CEILING_SIZE = 8192
ATTENTIONS = {
    "eager": lambda: True,
    "sdpa": lambda: True,
    "flash_attention_2": import_utils.is_flash_attn_2_available,
    "flash_attention_3": import_utils.is_flash_attn_3_available,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The sizes of one session."""

    shape: dict[str, int]
    layers: int
    lengths: tuple[int, ...]
    decode_tokens: int
    batch_length: int
    rows: tuple[int, ...]
    """Rows of a batch that is decoded, besides the number that the engine chooses."""
    suite_length: str
    """Length of the tasks that a checkpoint answers."""
    ceiling_size: int


GPU = Scale(
    shape=LLAMA_8B, layers=32, lengths=(4096, 16384, 65536), decode_tokens=64, batch_length=4096,
    rows=(1, 2, 4, 8, 16, 32), suite_length="32k", ceiling_size=CEILING_SIZE,
)  # fmt: skip
TINY = Scale(
    shape=TOY, layers=2, lengths=(128, 256), decode_tokens=4, batch_length=64, rows=(1, 2),
    suite_length="1k", ceiling_size=256,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillRow:
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
    """Memory of weights and cache."""

    @property
    def is_as_estimated(self) -> bool:
        """True if the peak is not below its estimate, or was not measured."""
        return self.peak_bytes is None or self.peak_bytes >= self.estimated_bytes


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

    def __init__(self, scale: Scale, device: torch.device, checkpoint: Path | None, *, deadline: float):
        self.scale = scale
        # The reading of the monotonic clock after which nothing is measured.
        self.deadline = deadline
        self.device = device
        self.checkpoint = checkpoint
        self.attentions = [name for name, is_available in ATTENTIONS.items() if is_available() and name != "eager"]
        self.ceiling = measure_ceiling(device, scale.ceiling_size)
        self._model: Any = None
        # The journals of this session's runs.
        self._folder = tempfile.TemporaryDirectory(prefix="gpu-session-")

    @property
    def model(self) -> Any:
        """The model that all parts but exactness measure, made when it is first needed."""
        if self._model is None:
            config = LlamaConfig(**self.scale.shape, num_hidden_layers=self.scale.layers)  # type: ignore[arg-type]  # all are int
            self._model = build_model(config, self.device)
        return self._model

    def exactness(self) -> Iterator[Row]:
        """Compare the logits of a small model in float32 on the device with those on the CPU."""
        config = LlamaConfig(**TOY, num_hidden_layers=2)  # type: ignore[arg-type]  # all are int
        model = build_model(config, torch.device("cpu")).float()
        ids = torch.randint(0, config.vocab_size, (1, 200), generator=torch.Generator().manual_seed(0))
        _, expected = CachedForward(model).prefill(ids, chunk_tokens=None)
        model.to(self.device)
        for chunk in (None, 64):
            _, got = CachedForward(model).prefill(ids.to(self.device), chunk_tokens=chunk)
            difference = float((got.cpu() - expected).abs().max() / expected.std())
            yield {"chunk_tokens": chunk, "difference": difference, "ok": difference <= EXACT_LIMIT}

    def prefill(self) -> Iterator[Row]:
        """Measure every attention implementation at every length, and the peaks against the estimate of --plan."""
        for length in self.scale.lengths:
            for attention in self.attentions:
                row = measure_prefill(self.model, attention, length, self.ceiling)
                yield asdict(row) | {"ok": row.is_as_estimated}

    def decode(self) -> Iterator[Row]:
        """Measure the tokens of an answer that follow prompts of every length."""
        forward = CachedForward(self.model)
        for length in self.scale.lengths:
            cache, _ = forward.prefill(self._ids(1, length), chunk_tokens=8192)
            token = self._ids(1, 1)

            def answer(cache: Any = cache, token: Any = token) -> None:
                for _ in range(self.scale.decode_tokens):
                    forward.extend(cache, token)

            seconds = seconds_of(answer, self.device)
            yield {"length_tokens": length, "tokens_per_second": self.scale.decode_tokens / seconds}

    def rows(self) -> Iterator[Row]:
        """Measure decoding by the rows of a batch, in shapes of the engine, at the length of short prompts."""
        forward, places = CachedForward(self.model), places_for(self.scale.batch_length)
        cache, _ = forward.prefill(
            self._ids(1, self.scale.batch_length - 1 - self.scale.decode_tokens), chunk_tokens=None
        )
        chosen = max(1, BATCH_TOKENS // places)
        for count in sorted({*self.scale.rows, min(chosen, max(self.scale.rows))}):
            batch = DecodingRows(forward, rows=count, places=places)
            for row in range(count):
                batch.fill(row, cache)
            tokens, is_open = self._ids(1, count)[0], torch.ones(count, dtype=torch.long, device=self.device)

            def answers(batch: DecodingRows = batch, tokens: Any = tokens, is_open: Any = is_open) -> None:
                for _ in range(self.scale.decode_tokens // 2):
                    batch.extend(tokens, is_open)

            answers()
            seconds = seconds_of(answers, self.device)
            rate = count * (self.scale.decode_tokens // 2) / seconds
            yield {"rows": count, "places": places, "tokens_per_second": rate, "is_chosen": count == chosen}

    def sharing(self) -> Iterator[Row]:
        """Measure a prompt alone, and after another one with the same first half, through the engine's cache."""
        forward, length = CachedForward(self.model), max(self.scale.lengths[:2])
        mode, cache = exact_prefill_mode(forward, "sdpa", is_small=self.scale is TINY), PrefixCache(forward)
        first = tuple(self._ids(1, length)[0].tolist())
        second = (*first[: length // 2], *self._ids(1, length - length // 2)[0].tolist())
        cache.prefill(first, mode)
        cache.clear()
        for ids, name in ((first, "alone"), (second, "after a shared half")):
            started = time.perf_counter()
            reused = cache.prefill(ids, mode).reused
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            seconds = time.perf_counter() - started
            is_shared = name == "alone" or not mode.shares_prefixes or reused > 0
            yield {"prompt": name, "tokens": length, "reused": reused, "seconds": seconds, "ok": is_shared}

    def tasks(self) -> Iterator[Row]:
        """Run RULER's 13 tasks at one length: by one worker, by two on this GPU, and by vLLM where it is installed."""
        runs: dict[str, tuple[str, ...]] = {"one worker": ("-n", "1"), "two workers": ("-n", "2")}
        if find_spec("vllm") is not None:
            runs["one worker with vLLM"] = ("-n", "1", "--engine", "vllm")
        for name, words in runs.items():
            started = time.monotonic()
            lines, code = self._suite(Path(self._folder.name, name), *words)
            seconds = time.monotonic() - started
            yield {"run": name, "seconds": seconds, "result": "; ".join(lines), "ok": code in (0, 1)}

    def _suite(self, journal: Path, *words: str) -> tuple[list[str], int]:
        """Run the suite on the checkpoint; return the lines with scores and the exit code."""
        if self.checkpoint is None:
            raise LookupError("needs --checkpoint")
        command = [sys.executable, "-m", "pytest", "--model", str(self.checkpoint), "--suite", "ruler", *words]
        command += ["--lengths", self.scale.suite_length, "--samples", "8"]
        ended = subprocess.run(
            [*command, "--journal", str(journal), "--device", self.device.type],
            cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=self._seconds_left(),
        )  # fmt: skip
        shown = ("effective", "mean", "niah_multikey_1", "of the workers", "cost", "error")
        lines = [line.strip() for line in ended.stdout.splitlines() if line.strip().startswith(shown)]
        printed = [line for line in (ended.stdout + ended.stderr).splitlines() if line.strip()]
        return lines or printed[-1:], ended.returncode

    def _seconds_left(self) -> float:
        return max(1.0, self.deadline - time.monotonic())

    def _ids(self, rows: int, length: int) -> torch.Tensor:
        return torch.randint(0, self.scale.shape["vocab_size"], (rows, length), device=self.device)


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


def measure_prefill(model: Any, attention: str, length: int, ceiling: float) -> PrefillRow:
    """Measure one prefill after a warm-up, with the code that the engine uses."""
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
    seconds = seconds_of(lambda: forward.prefill(ids, chunk_tokens=chunk), device)
    estimate = estimate_memory(checkpoint_of(model), length)
    assert estimate is not None
    return PrefillRow(
        attention=attention,
        length_tokens=length,
        chunk_tokens=chunk,
        tokens_per_second=length / seconds,
        ceiling_share=prefill_flops(model, length) / seconds / ceiling,
        peak_bytes=torch.cuda.max_memory_allocated() if device.type == "cuda" else None,
        estimated_bytes=0 if estimate is None else estimate.total_bytes,
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


def run_part(name: str, work: Callable[[], Iterable[Row]], deadline: float) -> Iterator[Part]:
    """Yield the part after every row and at its end, with the reason why rows are missing."""
    started = time.monotonic()
    rows: list[Row] = []
    problem = "not measured: no time left"
    if started < deadline:
        try:
            for row in work():
                rows.append(row)
                yield Part(name=name, rows=tuple(rows), seconds=time.monotonic() - started, problem="under way")
                if time.monotonic() > deadline:
                    break
            else:
                problem = ""
        except LookupError as error:
            problem = f"not measured: {error}"
        except subprocess.TimeoutExpired:
            pass
        except (RuntimeError, ValueError, OSError) as error:
            problem = f"failed: {str(error).partition(chr(10))[0]}"
    if any(not row.get("ok", True) for row in rows):
        problem = "a row is not ok"
    yield Part(name=name, rows=tuple(rows), seconds=time.monotonic() - started, problem=problem)


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
    deadline = started + 60 * options.minutes
    session = Session(TINY if options.tiny else GPU, device, options.checkpoint, deadline=deadline)
    parts: dict[str, Part] = {}
    hardware = torch.cuda.get_device_name() if device.type == "cuda" else "a CPU, with a tiny model"
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.parts.split(","):
        for part in run_part(name, getattr(session, name), deadline):
            parts[name] = part
            results = [asdict(each) for each in parts.values()]
            document = {"hardware": hardware, "ceiling_flops": session.ceiling, "parts": results}
            write_file(options.out / "gpu_session.json", (json.dumps(document, indent=2) + "\n").encode())
            write_file(options.out / "gpu_session.md", page(hardware, session.ceiling, [*parts.values()]).encode())
    print(f"{options.out / 'gpu_session.md'}: {time.monotonic() - started:.0f} s")
    return int(any(part.problem and not part.problem.startswith("not measured") for part in parts.values()))


def _cell(value: Any) -> str:
    return f"{value:,.3g}" if isinstance(value, float) else str(value)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/gpu_session"), metavar="DIR")
    parser.add_argument("--minutes", type=float, default=9.0, help="nothing is measured after this time (default: 9)")
    parser.add_argument("--parts", default=",".join(PARTS), help="the parts to measure (default: all)")
    parser.add_argument("--checkpoint", type=Path, metavar="CKPT", help="also measure tasks on this checkpoint")
    parser.add_argument("--tiny", action="store_true", help="run all parts with a tiny model on the CPU")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
