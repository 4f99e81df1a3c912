"""The samples of lm-evaluation-harness (--log_samples): a file `samples_TASK_TIME.jsonl` for every task.

Seen in 0.4.13. A task with several filters has a line for each filter. RULER's metrics are lengths: -1 stands for a
sample of another length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from longctx.ci.gate.records import SCORE, Content, ResultFile, ScoredSample, text_hash, texts_of

NAME = re.compile(r"samples_(.+)_(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d[.\d]*)\.jsonl")
# A text of a document that is at least so long is one that several samples may be about.
LEAST_TEXT = 100


class Line(msgspec.Struct, kw_only=True):
    """A sample after one filter."""

    doc_id: int | str
    doc: Any = None
    target: object = None
    filtered_resps: object = None
    filter: str = "none"
    metrics: tuple[str, ...] = ()
    doc_hash: str = ""
    prompt_hash: str = ""


def matches(content: Content) -> bool:
    """Return True for a file of --log_samples."""
    return bool(content.lines) and content.keys >= {"doc_id", "doc", "filtered_resps"}


def read(content: Content) -> ResultFile:
    """Read all lines; the task and the time are in the name."""
    name = NAME.match(content.path.name)
    task = name[1] if name else content.path.name.partition(".")[0].removeprefix("samples_")
    rows = [(msgspec.convert(row, Line, strict=False), row) for row in content.rows(dict)]
    units = _units([line for line, _ in rows])
    samples = [
        sample
        for (line, row), unit in zip(rows, units, strict=True)
        for sample in _samples(task, line, row, unit)
    ]  # fmt: skip
    return ResultFile(path=content.path, samples=tuple(samples), stamp=name[2] if name else "", notes=content.notes)


def _samples(task: str, line: Line, row: Mapping[str, object], unit: str) -> Iterator[ScoredSample]:
    scores: dict[str, object] = {metric: row[metric] for metric in line.metrics if metric in row}
    by_length = {int(metric): score for metric, score in scores.items() if metric.isdecimal()}
    if by_length:
        measured = [(length, {SCORE: score}) for length, score in by_length.items() if score != -1]
    else:
        # As lm-eval's own tables name them.
        measured = [(0, {f"{metric},{line.filter}": score for metric, score in scores.items()})]
    for length, own in measured:
        yield ScoredSample(
            task=task,
            id=str(line.doc_id),
            scores=own,
            length=length,
            document=line.doc_hash,
            prompt=line.prompt_hash,
            unit=unit,
            answer=_answer(line.filtered_resps),
            expected=texts_of(line.target),
        )


def _answer(responses: object) -> str:
    """Return the answers as text; of a choice by likelihood its number, which is what the target has."""
    choices = responses if isinstance(responses, list) else []
    if choices and all(isinstance(choice, list) and len(choice) == 2 for choice in choices):
        likelihoods = [float(likelihood) for likelihood, _ in choices]
        return str(likelihoods.index(max(likelihoods)))
    return "\n".join(texts_of(responses))


def _units(lines: list[Line]) -> list[str]:
    """Return the text that every sample is about: a long text that several documents have, else the document."""
    texts = []
    for line in lines:
        values = line.doc.values() if isinstance(line.doc, dict) else ()
        longest = max((value for value in values if isinstance(value, str)), key=len, default="")
        texts.append(text_hash(longest) if len(longest) >= LEAST_TEXT else "")
    # One text in all documents is an instruction.
    if len(set(texts)) == 1 or "" in texts:
        texts = [""] * len(lines)
    return [text or line.doc_hash or text_hash(line.doc) for text, line in zip(texts, lines, strict=True)]
