"""The result files of HELMET's eval.py, one for a data set and length. Seen at commit 4526dfb."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from longctx.ci.gate.records import Content, ResultFile, ResultsError, ScoredSample, text_hash, texts_of

LENGTH = re.compile(r"_in(\d+)_")
COUNTS = ("input_len", "output_len")


class Arguments(msgspec.Struct, kw_only=True):
    """The options of the run."""

    datasets: str
    input_max_length: int | str = 0


class Results(msgspec.Struct, kw_only=True):
    """A file of results."""

    args: Arguments
    data: tuple[dict[str, Any], ...]
    metrics: dict[str, tuple[object, ...]]


def matches(content: Content) -> bool:
    """Return True for a file of results."""
    return not content.lines and content.keys >= {"args", "data", "metrics", "averaged_metrics"}


def read(content: Content) -> ResultFile:
    """Read all samples with their metrics, 0 to 1."""
    results = content.record(Results)
    metrics = {name: values for name, values in results.metrics.items() if name not in COUNTS}
    for name, values in metrics.items():
        if len(values) != len(results.data):
            raise ResultsError(
                f"{content.path}: metric {name} has {len(values)} values for {len(results.data)} samples; run it again"
            )
    named = LENGTH.search(content.path.name)
    given = str(results.args.input_max_length)
    length = int(named[1]) if named else int(given) if given.isdecimal() else 0
    samples = [
        ScoredSample(
            task=results.args.datasets,
            id=str(number),
            scores={name: values[number] for name, values in metrics.items()},
            length=length,
            prompt=text_hash([entry.get("question"), entry.get("answer")]),
            answer=str(entry.get("output", "")),
            expected=texts_of(entry.get("answer")),
        )
        for number, entry in enumerate(results.data)
    ]
    return ResultFile(path=content.path, samples=tuple(samples))
