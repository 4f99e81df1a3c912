"""The frontier tasks in the report: category means that enter no other figure, and comparisons of related tasks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fixtures.records import Case, Outcome
from plugins.gates.evaluation import Evaluation
from plugins.gates.points import to_points

SUITE = "frontier"
# The category of the tasks that only serve to be compared with others.
CONTROLS = "controls"
# The twin of a task, from which it differs in one thing: literal instead of associative questions, or printed labels.
TWINS = {
    "association": "association_literal", "association_far": "association_literal",
    "count_labels": "count_labels_labelled", "count_users": "count_users_labelled",
    "count_dates": "count_dates_labelled",
}  # fmt: skip
# The tasks of every ladder, with the operation that they test.
LADDERS = {
    "mk": {"basic": "find", "easy": "copy", "medium": "copy and solve", "hard": "solve"},
    "mv": {"basic": "find", "easy": "copy", "medium": "copy and select", "hard": "select"},
    "qa": {"basic": "find", "easy": "select", "medium": "copy and solve", "hard": "solve"},
}
# A length counts as mastered with this share of the score at the shortest length (NoLiMa's rule).
RELATIVE_SHARE = 0.85
# A ladder breaks at its first rung with a score below this.
BREAKS_BELOW = 50.0
ByLength = dict[str, float | None]


def frontier(evaluation: Evaluation, planned: Sequence[Case]) -> dict[str, Any] | None:
    """Return the summary of the frontier tasks with scores from 0 to 100; None for a run without them."""
    cases = [case for case in planned if case.suite == SUITE]
    if not cases:
        return None
    categories = {
        category: means_by_length(evaluation, [case for case in cases if case.category == category])
        for category in dict.fromkeys(case.category for case in cases)
        if category != CONTROLS
    }
    scores = {(case.task, case.length): _score(evaluation, case) for case in cases}
    outcomes = {case: result.outcomes for case in cases if (result := evaluation.measured.results.get(case.id))}
    return {
        "categories": categories,
        "relative_share": RELATIVE_SHARE,
        "relative_lengths": {category: relative_length(means) for category, means in categories.items()},
        "ladders": _ladders(scores, evaluation.measured.scope.lengths),
        "twins": _twins(scores, evaluation.measured.scope.lengths),
        "replies": [_replies(case, own) for case, own in outcomes.items() if case.category == "mrcr" and own],
        "unanswerable": [
            _unanswerable(case, own) for case, own in outcomes.items() if case.category == "absence" and own
        ],
    }


def relative_length(scores: Mapping[str, float | None]) -> int | None:
    """Return the longest length with at least `RELATIVE_SHARE` of the score at the shortest length.

    Returns None if the shortest length has no score or a score of 0, of which every other would be a share.
    """
    known = {int(length): score for length, score in scores.items() if score is not None}
    shortest = min(map(int, scores), default=None)
    if shortest is None or not known.get(shortest):
        return None
    return max(length for length, score in known.items() if score >= RELATIVE_SHARE * known[shortest])


def breaking_rung(rungs: Mapping[str, float | None]) -> str | None:
    """Return the first rung with a score below `BREAKS_BELOW`; None if there is none before an unmeasured rung."""
    for name, score in rungs.items():
        if score is None:
            return None
        if score < BREAKS_BELOW:
            return name
    return None


def _ladders(scores: Mapping[tuple[str, int], float | None], lengths: Sequence[int]) -> list[dict[str, Any]]:
    """Return every ladder at every length where one of its rungs was measured."""
    entries = []
    for ladder, steps in LADDERS.items():
        for length in lengths:
            rungs = {name: scores.get((f"ladder_{ladder}_{step}", length)) for step, name in steps.items()}
            if any(score is not None for score in rungs.values()):
                entries.append({"ladder": ladder, "length": length, "rungs": rungs, "breaks_at": breaking_rung(rungs)})
    return entries


def _twins(scores: Mapping[tuple[str, int], float | None], lengths: Sequence[int]) -> list[dict[str, Any]]:
    """Return the twin's score less the task's at every length where both were measured."""
    entries = []
    for task, twin in TWINS.items():
        for length in lengths:
            score, other = scores.get((task, length)), scores.get((twin, length))
            if score is not None and other is not None:
                entries.append({"task": task, "twin": twin, "length": length, "difference": other - score})
    return entries


def _replies(case: Case, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return how often an answer began with the code, and which reply it copied for which one."""
    pairs = Counter((int(one.score.parts["wanted"]), int(one.score.parts["copied"])) for one in outcomes)
    return {
        "task": case.task,
        "length": case.length,
        "code_rate": _rate([one.score.parts["code"] for one in outcomes]),
        "copied": [
            {"wanted": wanted, "copied": copied or None, "samples": samples}
            for (wanted, copied), samples in sorted(pairs.items())
        ],
    }


def _unanswerable(case: Case, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the scores of the questions that the text answers and of those that it does not answer."""
    rates = {kind: [one.score.value for one in outcomes if kind in one.score.parts] for kind in ("present", "absent")}
    return {"length": case.length, **{kind: _rate(values) for kind, values in rates.items()}}


def _rate(values: Sequence[float]) -> float | None:
    return to_points(math.fsum(values) / len(values)) if values else None


def means_by_length(evaluation: Evaluation, cases: Sequence[Case]) -> ByLength:
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
