"""The results of NVIDIA's NeMo Evaluator: `results.jsonl` beside `eval-*.json`. Seen at commit ac66aff5 (0.4.0)."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from longctx.ci.gate.records import Content, ResultFile, ScoredSample, text_hash, texts_of
from longctx.fixtures.outside_files import read_outside

REWARD = "reward"


class Line(msgspec.Struct, kw_only=True):
    """One attempt at a problem."""

    problem_idx: int
    reward: object
    repeat: int = 0
    prompt: object = None
    model_response: str | None = None
    expected_answer: object = None


class Benchmark(msgspec.Struct, kw_only=True):
    """The description of a benchmark."""

    name: str


class Bundle(msgspec.Struct, kw_only=True):
    """The file beside the results that names the benchmark."""

    benchmark: Benchmark
    timestamp: str = ""


def matches(content: Content) -> bool:
    """Return True for the results of problems."""
    return bool(content.lines) and content.keys >= {"problem_idx", "reward"}


def read(content: Content) -> ResultFile:
    """Read all attempts."""
    bundle = _bundle(content.path.parent)
    task = content.path.parent.name if bundle is None else bundle.benchmark.name
    samples = tuple(
        ScoredSample(
            task=task,
            id=str(line.problem_idx),
            scores={REWARD: line.reward},
            prompt=text_hash(line.prompt) if line.prompt else "",
            answer=line.model_response,
            expected=texts_of(line.expected_answer),
            repeat=str(line.repeat),
        )
        for line in content.rows(Line)
    )
    stamp = "" if bundle is None else bundle.timestamp
    return ResultFile(path=content.path, samples=samples, stamp=stamp, notes=content.notes)


def _bundle(folder: Path) -> Bundle | None:
    """Return the newest description in a folder; None without one."""
    bundles = []
    for path in sorted(folder.glob("eval-*.json")):
        with contextlib.suppress(OSError, ValueError):
            bundles.append(msgspec.json.decode(read_outside(path), type=Bundle))
    return max(bundles, key=lambda bundle: bundle.timestamp, default=None)
