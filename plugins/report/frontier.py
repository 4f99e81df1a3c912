"""The frontier tasks in the report: a mean for each category, which enters neither RULER's nor HELMET's figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fixtures.records import Case
from plugins.gates.evaluation import Evaluation
from plugins.gates.points import to_points

SUITE = "frontier"
# A length counts as mastered with this share of the score at the shortest length (NoLiMa's rule).
RELATIVE_SHARE = 0.85
ByLength = dict[str, float | None]


def frontier(evaluation: Evaluation, planned: Sequence[Case]) -> dict[str, Any] | None:
    """Return the summary of the frontier tasks with scores from 0 to 100; None for a run without them."""
    cases = [case for case in planned if case.suite == SUITE]
    if not cases:
        return None
    categories = {
        category: _means(evaluation, [case for case in cases if case.category == category])
        for category in dict.fromkeys(case.category for case in cases)
    }
    return {
        "categories": categories,
        "relative_share": RELATIVE_SHARE,
        "relative_lengths": {category: relative_length(scores) for category, scores in categories.items()},
    }


def frontier_means(document: Mapping[str, Any]) -> dict[str, Mapping[str, float | None]]:
    """Return the means of a document's frontier categories by length; reports of older versions have none."""
    section = document.get("frontier")
    return dict(section["categories"]) if section else {}


def has_no_ruler(document: Mapping[str, Any]) -> bool:
    """Return True if no case of a document is RULER's, the only tasks with an effective length."""
    return all(case["suite"] != "ruler" for case in document["cases"])


def relative_length(scores: Mapping[str, float | None]) -> int | None:
    """Return the longest length with at least `RELATIVE_SHARE` of the score at the shortest length.

    Returns None if the shortest length has no score or a score of 0, of which every other would be a share.
    """
    known = {int(length): score for length, score in scores.items() if score is not None}
    shortest = min(map(int, scores), default=None)
    if shortest is None or not known.get(shortest):
        return None
    return max(length for length, score in known.items() if score >= RELATIVE_SHARE * known[shortest])


def _means(evaluation: Evaluation, cases: Sequence[Case]) -> ByLength:
    """Return the mean score of the cases by length; None at a length where one of them has no score."""
    return {
        str(length): _mean([_score(evaluation, case) for case in cases if case.length == length])
        for length in evaluation.measured.scope.lengths
    }


def _score(evaluation: Evaluation, case: Case) -> float | None:
    result = evaluation.measured.results.get(case.id)
    return None if result is None or result.score is None else to_points(result.score)


def _mean(scores: Sequence[float | None]) -> float | None:
    known = [score for score in scores if score is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(scores) else None
