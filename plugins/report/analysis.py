"""HELMET's analysis over many checkpoints (Yen et al. 2025, §3), as a Markdown page from their JSON reports.

It shows the rank correlations of categories and of RULER with HELMET, scores by depth, and categories that moved
together over the steps of a training run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

from fixtures.lengths import format_length
from plugins.gates.rank_correlation import RankCorrelation, rank_correlation
from plugins.gates.thresholds import CATEGORIES
from plugins.report.history import Document
from plugins.report.markdown import plain

RULER, HELMET = "RULER", "HELMET"
MEASURES = (RULER, HELMET, *CATEGORIES)
DEPTH_TENTHS = 10
SHOWN_NAME = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One checkpoint and its scores, 0 to 100: means over the lengths that all checkpoints have."""

    name: str
    step: int | None
    scores: Mapping[str, float]
    """By measure: RULER, a category, or HELMET as the mean of all categories."""


def analysis(documents: Sequence[Document], since: int | None = None) -> str:
    """Return the page; `since` is the first step of the comparison of steps.

    Raises ValueError for fewer than two reports.
    """
    latest = {document["model"]["fingerprint"]: document for document in sorted(documents, key=_started)}
    if len(latest) < 2:
        raise ValueError(f"{len(latest)} checkpoints cannot be compared; give reports of two or more")
    checkpoints = sorted(
        _checkpoints(list(latest.values())), key=lambda one: (one.step is None, one.step or 0, one.name)
    )
    parts = ["# Many checkpoints", _scores(checkpoints), _correlations(checkpoints), _depths(list(latest.values()))]
    parts.append(_together(checkpoints, since))
    return "\n\n".join(part for part in parts if part) + "\n"


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


def _scores(checkpoints: Sequence[Checkpoint]) -> str:
    shown = [measure for measure in MEASURES if measure in checkpoints[0].scores]
    rows = [(_label(one), *(f"{one.scores[measure]:.1f}" for measure in shown)) for one in checkpoints]
    return "Means over the lengths that all checkpoints were measured at.\n\n" + _table(("", *shown), rows)


def _correlations(checkpoints: Sequence[Checkpoint]) -> str:
    """Return the rank correlations of all pairs of measures over the checkpoints."""
    rows = _pair_rows(checkpoints[0].scores, lambda measure: [one.scores[measure] for one in checkpoints])
    text = f"## Rank correlation over {len(checkpoints)} checkpoints\n\nSpearman's, with 95 % intervals.\n\n"
    return text + (_table(("", "", "correlation", "95 %"), rows) if rows else "Not known: it needs four checkpoints.")


def _depths(documents: Sequence[Document]) -> str:
    """Return the mean score by depth at each length: a dip in the middle is the loss in the middle."""
    points: dict[int, dict[int, list[float]]] = {}
    for case in (case for document in documents for case in document["cases"]):
        for point in case["by_depth"]:
            tenth = min(DEPTH_TENTHS - 1, int(point["depth"] * DEPTH_TENTHS))
            points.setdefault(case["length"], {}).setdefault(tenth, []).append(point["score"])
    if not points:
        return ""
    rows = [
        (format_length(length), *(_cell(by_tenth.get(tenth)) for tenth in range(DEPTH_TENTHS)), _dip(by_tenth))
        for length, by_tenth in sorted(points.items())
    ]
    head = ("", *(f"{(tenth + 0.5) / DEPTH_TENTHS:.2f}" for tenth in range(DEPTH_TENTHS)), "ends less middle")
    return "## Score by depth of the answer\n\nMeans over all checkpoints and tasks.\n\n" + _table(head, rows)


def _dip(by_tenth: Mapping[int, Sequence[float]]) -> str:
    """Return the mean of the outer fifths less that of the middle fifth."""
    ends = [score for tenth in (0, 1, 8, 9) for score in by_tenth.get(tenth, ())]
    middle = [score for tenth in (4, 5) for score in by_tenth.get(tenth, ())]
    return f"{_mean(ends) - _mean(middle):+.1f}" if ends and middle else "-"


def _together(checkpoints: Sequence[Checkpoint], since: int | None) -> str:
    """Return the changes since a step, and the pairs of measures whose changes from step to step go together."""
    steps = [one for one in checkpoints if one.step is not None and one.step >= (since or 0)]
    if len(steps) < 2:
        return ""
    first, last = steps[0], steps[-1]
    changes = [(measure, f"{last.scores[measure] - score:+.1f}") for measure, score in first.scores.items()]

    def moves(measure: str) -> list[float]:
        return [after.scores[measure] - before.scores[measure] for before, after in pairwise(steps)]

    clear = [row for row in _pair_rows(first.scores, moves, only_clear=True) if HELMET not in row[:2]]
    text = f"## Changes from step {first.step} to {last.step}\n\n" + _table(("", "change"), changes)
    known = "Moved together from step to step (intervals without 0):\n\n" + _table(
        ("", "", "correlation", "95 %"), clear
    )
    return f"{text}\n\n{known if clear else 'No two measures are shown to have moved together.'}"


def _pair_rows(
    measures: Mapping[str, float], values: Callable[[str], Sequence[float]], *, only_clear: bool = False
) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for first, second in combinations(measures, 2):
        correlation = rank_correlation(values(first), values(second))
        if correlation is not None and (correlation.is_clear or not only_clear):
            rows.append((first, second, *_shown(correlation)))
    return rows


def _shown(correlation: RankCorrelation) -> tuple[str, str]:
    return f"{correlation.value:+.2f}", f"{correlation.low:+.2f} to {correlation.high:+.2f}"


def _label(checkpoint: Checkpoint) -> str:
    step = "" if checkpoint.step is None else f", step {checkpoint.step}"
    return plain(checkpoint.name, SHOWN_NAME) + step


def _cell(scores: Sequence[float] | None) -> str:
    return f"{_mean(scores):.1f}" if scores else "-"


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
