"""HELMET's summary: categories, data sets and the average, and what each mean lacks (Yen et al. 2025, §2.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fixtures.records import Case
from plugins.gates.clusters import ESTIMATE_ALPHA
from plugins.gates.evaluation import Evaluation
from plugins.gates.thresholds import CATEGORIES


def helmet(
    evaluation: Evaluation, planned: Sequence[Case], unavailable: Mapping[str, str], scoring: str
) -> dict[str, Any] | None:
    """None for a run without any of its cases; scores are 0 to 100.

    A category's score is the mean of its data sets, HELMET's that of the seven categories; a mean that lacks a
    part is None, and `missing` says which part and why. Intervals are at `confidence`, each for itself.
    """
    cases = [case for case in planned if case.suite == "helmet"]
    if not cases:
        return None
    lengths, found = evaluation.measured.scope.lengths, evaluation.categories
    categories = {
        category: {str(length): each.score for length, each in findings.items()} for category, findings in found.items()
    }
    return {
        "scoring": scoring,
        "categories": categories,
        "intervals": {
            category: {str(length): each.interval and list(each.interval) for length, each in findings.items()}
            for category, findings in found.items()
        },
        "datasets": _datasets(evaluation, cases),
        "confidence": 1 - ESTIMATE_ALPHA,
        "average": {str(length): _mean([scores[str(length)] for scores in categories.values()]) for length in lengths},
        "sources": {case.task: case.source for case in cases if case.id not in unavailable},
        "missing": {
            category: {str(length): _missing(evaluation, cases, unavailable, category, length) for length in lengths}
            for category in CATEGORIES
        },
    }


def _datasets(evaluation: Evaluation, cases: Sequence[Case]) -> dict[str, dict[str, float | None]]:
    found: dict[str, dict[str, float | None]] = {}
    for case in cases:
        result = evaluation.measured.results.get(case.id)
        score = result.score if result else None
        found.setdefault(case.task, {})[str(case.length)] = None if score is None else 100 * score
    return found


def _missing(
    evaluation: Evaluation, cases: Sequence[Case], unavailable: Mapping[str, str], category: str, length: int
) -> dict[str, str]:
    """By data set why it has no score."""
    selected = evaluation.measured.scope.cases_at(length)
    found = {}
    for case in cases:
        if (case.category, case.length) != (category, length):
            continue
        result = evaluation.measured.results.get(case.id)
        if result is None or result.score is None:
            reason = unavailable.get(case.id) or (result.error if result else None)
            found[case.task] = reason or ("no sample was begun" if case.task in selected else "not selected")
    return found


def _mean(scores: Sequence[float | None]) -> float | None:
    known = [score for score in scores if score is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(scores) else None
