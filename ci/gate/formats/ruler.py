"""The prediction files of RULER's scripts, LENGTH/pred/TASK.jsonl, scored here as RULER does.

Seen at commit c3f5e3b.
"""

from __future__ import annotations

import re

import msgspec

from longctx.ci.gate.records import SCORE, Content, ResultFile, ScoredSample, text_hash


class Line(msgspec.Struct, kw_only=True):
    """A prediction."""

    index: int
    input: str
    outputs: tuple[str, ...]
    pred: str


def matches(content: Content) -> bool:
    """Return True for a file of predictions."""
    return bool(content.lines) and content.keys >= {"index", "input", "outputs", "pred"}


def read(content: Content) -> ResultFile:
    """Read and score all predictions. One of the references of a question is enough, other tasks need all."""
    # Its table of characters takes longer to make than most comparisons.
    from longctx.fixtures.scoring.match import string_match_all, string_match_any

    # Several processes write TASK-0.jsonl, TASK-1.jsonl and so on.
    task = re.sub(r"-\d+$", "", content.path.name.partition(".")[0])
    match = string_match_any if task.startswith("qa") else string_match_all
    lengths = [int(part) for part in content.path.parts if part.isdecimal() and int(part) >= 256]
    samples = tuple(
        ScoredSample(
            task=task,
            id=str(line.index),
            scores={SCORE: match(line.pred, line.outputs)},
            length=lengths[-1] if lengths else 0,
            prompt=text_hash(line.input),
            answer=line.pred,
            expected=line.outputs,
        )
        for line in content.rows(Line)
    )
    return ResultFile(path=content.path, samples=samples, notes=content.notes)
