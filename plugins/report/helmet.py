"""HELMET's part of the report: scores of categories and data sets, and their average (Yen et al. 2025, §2.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fixtures.records import Case
from plugins.gates.clusters import ESTIMATE_ALPHA
from plugins.gates.evaluation import Evaluation
from plugins.gates.points import to_points
from plugins.gates.thresholds import CATEGORIES


def helmet(
    evaluation: Evaluation, planned: Sequence[Case], unavailable: Mapping[str, str], scoring: str
) -> dict[str, Any] | None:
    """Return HELMET's summary with scores from 0 to 100; None for a run without HELMET.

    A category's score is the mean of its data sets; the average is the mean of the seven categories. A mean that lacks
    one of its parts is None, and `missing` gives the reasons. Every interval holds with `confidence` by itself.
    """
    cases = [case for case in planned if case.suite == "helmet"]
    if not cases:
        return None
    lengths = evaluation.measured.scope.lengths
    scores = {
        category: {str(length): finding.score for length, finding in findings.items()}
        for category, findings in evaluation.categories.items()
    }
    return {
        "scoring": scoring,
        "categories": scores,
        "intervals": {
            category: {str(length): finding.interval and list(finding.interval) for length, finding in findings.items()}
            for category, findings in evaluation.categories.items()
        },
        "datasets": _datasets(evaluation, cases),
        "confidence": 1 - ESTIMATE_ALPHA,
        "average": {
            str(length): _mean([by_length[str(length)] for by_length in scores.values()]) for length in lengths
        },
        "sources": {case.task: case.source for case in cases if case.id not in unavailable},
        "missing": {
            category: {str(length): _missing(evaluation, cases, unavailable, category, length) for length in lengths}
            for category in CATEGORIES
        },
    }


def _datasets(evaluation: Evaluation, cases: Sequence[Case]) -> dict[str, dict[str, float | None]]:
    """Return the scores of all data sets by length."""
    scores: dict[str, dict[str, float | None]] = {}
    for case in cases:
        result = evaluation.measured.results.get(case.id)
        score = result.score if result else None
        scores.setdefault(case.task, {})[str(case.length)] = None if score is None else to_points(score)
    return scores


def _missing(
    evaluation: Evaluation, cases: Sequence[Case], unavailable: Mapping[str, str], category: str, length: int
) -> dict[str, str]:
    """Return the data sets of a category that have no score at a length, with the reason."""
    selected = evaluation.measured.scope.cases_at(length)
    reasons = {}
    for case in cases:
        if (case.category, case.length) != (category, length):
            continue
        result = evaluation.measured.results.get(case.id)
        if result is None or result.score is None:
            reason = unavailable.get(case.id) or (result.error if result else None)
            reasons[case.task] = reason or ("no sample was started" if case.task in selected else "not selected")
    return reasons


def _mean(scores: Sequence[float | None]) -> float | None:
    """Return the mean; None if a score is missing."""
    known = [score for score in scores if score is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(scores) else None
