"""The samples of this suite: files of --samples-jsonl."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from longctx.ci.gate.records import SCORE, Content, ResultFile, ScoredSample, text_hash
from longctx.fixtures.records import Case
from longctx.fixtures.records.samples import Source


class SampleLine(msgspec.Struct, kw_only=True):
    """A line of --samples-jsonl, as `plugins.report.sample_files` writes it."""

    case: str
    suite: str
    category: str
    task: str
    length: int
    index: int
    score: float
    source: Source
    version: str = ""
    seed: int = 0
    answer: str = ""
    references: tuple[str, ...] = ()
    excerpt: Mapping[str, Any] | None = None
    group: int = 1
    planned: int = 0
    """0 in files of earlier versions, which do not tell."""
    haystack: int | None = None
    shared_text: bool = False


def matches(content: Content) -> bool:
    """Return True for a file of --samples-jsonl."""
    return bool(content.lines) and content.keys >= {"case", "index", "score", "suite", "fingerprint"}


def read(content: Content) -> ResultFile:
    """Read all lines."""
    lines = list(content.rows(SampleLine))
    by_case: dict[str, list[SampleLine]] = {}
    for line in lines:
        by_case.setdefault(line.case, []).append(line)
    cases = {case_id: _case(own) for case_id, own in by_case.items()}
    samples = [
        ScoredSample(
            task=line.task,
            id=str(line.index),
            scores={SCORE: line.score / 100},
            length=line.length,
            prompt=text_hash([line.version, line.seed, line.references]),
            unit="known",
            answer=line.answer,
            expected=line.references,
            case=cases[line.case],
            seed=line.seed,
        )
        for line in lines
    ]
    return ResultFile(path=content.path, samples=tuple(samples), notes=content.notes)


def _case(lines: list[SampleLine]) -> Case:
    """Return the case of some lines."""
    first = lines[0]
    most = max(first.planned, 1 + max(line.index for line in lines))
    haystacks = {line.index: line.haystack for line in lines if line.haystack is not None}
    shares = any(haystack != index // first.group for index, haystack in haystacks.items())
    # Indices without a line have no text; none is read.
    texts = tuple(haystacks.get(index, 0) for index in range(most)) if first.shared_text else ()
    return Case(
        id=first.case,
        suite=first.suite,
        category=first.category,
        task=first.task,
        length=first.length,
        samples=most,
        source=first.source,
        generation_tokens=1,
        group=first.group,
        shares_haystacks=shares and not texts,
        version=first.version,
        only=() if first.planned else tuple(sorted(line.index for line in lines)),
        texts=texts,
    )
