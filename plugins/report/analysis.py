"""HELMET's analysis over many checkpoints (Yen et al. 2025, §3), from their JSON reports.

It holds the rank correlations of categories and of RULER with HELMET, scores by depth, and categories that moved
together over the steps of a training run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from plugins.gates.rank_correlation import RankCorrelation, rank_correlation
from plugins.gates.thresholds import CATEGORIES
from plugins.report.history import Document

RULER, HELMET = "RULER", "HELMET"
MEASURES = (RULER, HELMET, *CATEGORIES)
DEPTH_TENTHS = 10
DEPTHS = tuple((tenth + 0.5) / DEPTH_TENTHS for tenth in range(DEPTH_TENTHS))
ENDS, MIDDLE = (0, 1, 8, 9), (4, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One checkpoint and its scores, 0 to 100: means over the lengths that all checkpoints have."""

    name: str
    step: int | None
    scores: Mapping[str, float]
    """By measure: RULER, a category, or HELMET as the mean of all categories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlation:
    """The rank correlation of two measures."""

    first: str
    second: str
    found: RankCorrelation


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthCurve:
    """The mean score over the samples of all checkpoints and tasks at one length, by the depth of the answer."""

    length: int
    scores: tuple[float | None, ...]
    """One score for each of DEPTHS."""

    loss_in_the_middle: float | None
    """The mean of the outer fifths less that of the middle fifth, in points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes of all measures over the steps of a training run."""

    first_step: int
    last_step: int
    points: Mapping[str, float]
    """By measure, the change from the first step to the last."""

    together: tuple[Correlation, ...]
    """The pairs of measures whose changes from step to step go together, with intervals that exclude 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """The numbers of many checkpoints."""

    checkpoints: tuple[Checkpoint, ...]
    correlations: tuple[Correlation, ...]
    depths: tuple[DepthCurve, ...]
    changes: Changes | None
    """None if fewer than two reports have a step, or if they have no measure in common."""

    missing: tuple[str, ...]
    """The measures that not all checkpoints have at a common length."""


def analyse(documents: Sequence[Document], since: int | None = None) -> Analysis:
    """Return the analysis of the latest report of each checkpoint; `since` is the first step of the changes.

    Raises ValueError for fewer than two checkpoints.
    """
    latest = {document["model"]["fingerprint"]: document for document in sorted(documents, key=_started)}
    if len(latest) < 2:
        raise ValueError(f"{len(latest)} checkpoints cannot be compared; give reports of two or more")
    checkpoints = sorted(
        _checkpoints(list(latest.values())), key=lambda one: (one.step is None, one.step or 0, one.name)
    )
    measures = checkpoints[0].scores
    return Analysis(
        checkpoints=tuple(checkpoints),
        correlations=tuple(_correlations(measures, lambda name: [one.scores[name] for one in checkpoints])),
        depths=tuple(_depth_curves(list(latest.values()))),
        changes=_changes(checkpoints, since),
        missing=tuple(measure for measure in MEASURES if measure not in measures),
    )


def _started(document: Document) -> str:
    return str(document["run"]["started"])


def _checkpoints(documents: Sequence[Document]) -> Iterator[Checkpoint]:
    tables = [_by_measure(document) for document in documents]
    shared = {
        measure: [
            length
            for length in tables[0].get(measure, {})
            if all(table.get(measure, {}).get(length) is not None for table in tables)
        ]
        for measure in MEASURES
    }
    for document, table in zip(documents, tables, strict=True):
        scores = {
            measure: _mean([table[measure][one] for one in lengths]) for measure, lengths in shared.items() if lengths
        }
        yield Checkpoint(name=document["model"]["name"], step=document["run"].get("step"), scores=scores)


def _by_measure(document: Document) -> dict[str, Mapping[str, float]]:
    helmet = document.get("helmet") or {"categories": {}, "average": {}}
    return {RULER: document["ruler"]["scores"], HELMET: helmet["average"], **helmet["categories"]}


def _depth_curves(documents: Sequence[Document]) -> Iterator[DepthCurve]:
    points: dict[int, dict[int, list[float]]] = {}
    for case in (case for document in documents for case in document["cases"]):
        for point in case["by_depth"]:
            tenth = min(DEPTH_TENTHS - 1, int(point["depth"] * DEPTH_TENTHS))
            at_depth = points.setdefault(case["length"], {}).setdefault(tenth, [])
            at_depth += [point["score"]] * point["samples"]
    for length, by_tenth in sorted(points.items()):
        scores = tuple(_mean(by_tenth[tenth]) if tenth in by_tenth else None for tenth in range(DEPTH_TENTHS))
        ends, middle = ([score for tenth in tenths for score in by_tenth.get(tenth, ())] for tenths in (ENDS, MIDDLE))
        loss = _mean(ends) - _mean(middle) if ends and middle else None
        yield DepthCurve(length=length, scores=scores, loss_in_the_middle=loss)


def _changes(checkpoints: Sequence[Checkpoint], since: int | None) -> Changes | None:
    steps = [one for one in checkpoints if one.step is not None and one.step >= (since or 0)]
    if len(steps) < 2 or not steps[0].scores:
        return None
    first, last = steps[0], steps[-1]
    assert first.step is not None
    assert last.step is not None

    def moves(measure: str) -> list[float]:
        return [after.scores[measure] - before.scores[measure] for before, after in pairwise(steps)]

    # HELMET's mean moves with its parts.
    measures = [measure for measure in first.scores if measure != HELMET]
    return Changes(
        first_step=first.step,
        last_step=last.step,
        points={measure: last.scores[measure] - score for measure, score in first.scores.items()},
        together=tuple(pair for pair in _correlations(measures, moves) if pair.found.is_clear),
    )


def _correlations(
    measures: Sequence[str] | Mapping[str, float], values: Callable[[str], Sequence[float]]
) -> Iterator[Correlation]:
    for first, second in combinations(measures, 2):
        found = rank_correlation(values(first), values(second))
        if found is not None:
            yield Correlation(first=first, second=second, found=found)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
