"""HELMET: scores of categories and data sets, and their average (Yen et al. 2025, §2.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from longctx.fixtures.records import Case
from longctx.fixtures.records.report import HelmetSummary, JsonReport
from longctx.fixtures.shown_text import one_line
from longctx.plugins.config.run_facts import RunFacts
from longctx.plugins.evidence.clusters import ESTIMATE_ALPHA
from longctx.plugins.evidence.points import to_points
from longctx.plugins.report.formats import both_ends, short_length, shown_number
from longctx.plugins.report.html.tables import tested_lengths
from longctx.plugins.report.sections.section import Section
from longctx.plugins.report.summary import Details
from longctx.plugins.thresholds.records import CATEGORIES
from longctx.plugins.verdicts.evaluation import Evaluation


def helmet(
    evaluation: Evaluation, planned: Sequence[Case], unavailable: Mapping[str, str], run: RunFacts
) -> HelmetSummary | None:
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
    average: dict[str, float | None] = {}
    for length in map(str, lengths):
        parts = [by_length[length] for by_length in scores.values()]
        known = [score for score in parts if score is not None]
        average[length] = math.fsum(known) / len(known) if known and len(known) == len(parts) else None
    datasets: dict[str, dict[str, float | None]] = {}
    for case in cases:
        result = evaluation.measured.results.get(case.id)
        score = result.score if result else None
        datasets.setdefault(case.task, {})[str(case.length)] = None if score is None else to_points(score)
    return HelmetSummary(
        scoring="paper" if run.options.scoring == "paper" else "strict",
        rubrics=run.rubrics,
        categories=scores,
        intervals={
            category: {str(length): finding.interval for length, finding in findings.items()}
            for category, findings in evaluation.categories.items()
        },
        datasets=datasets,
        confidence=1 - ESTIMATE_ALPHA,
        average=average,
        sources={case.task: case.source for case in cases if case.id not in unavailable},
        missing={
            category: {str(length): _missing(evaluation, cases, unavailable, category, length) for length in lengths}
            for category in CATEGORIES
        },
    )


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


def _page(document: JsonReport, _: Details) -> dict[str, Any]:
    """Return HELMET's categories at the longest measured length; None if no category was measured at any length."""
    helmet = document.helmet
    measured = [
        length
        for length in tested_lengths(document)
        if helmet and any(scores.get(str(length)) is not None for scores in helmet.categories.values())
    ]
    if helmet is None or not measured:
        return {"helmet": None}
    key = str(measured[-1])
    bars = []
    for category, scores in helmet.categories.items():
        score, missing = scores.get(key), helmet.missing.get(category, {}).get(key, {})
        interval = None if score is None else helmet.intervals.get(category, {}).get(key)
        # Both ends are the same number if the mean is known.
        is_known = interval is not None and shown_number(interval[0]) == shown_number(interval[1])
        reasons = "; ".join(f"{dataset}: {reason}" for dataset, reason in missing.items())
        bars.append(
            {
                "name": category,
                "score": score,
                "interval": interval,
                "interval_text": "" if interval is None or is_known else both_ends(interval),
                "missing": one_line(reasons, 160),
            }
        )
    shown = {
        "length": short_length(measured[-1]),
        "bars": bars,
        "average": helmet.average.get(key),
        "confidence": helmet.confidence,
    }
    return {"helmet": shown}


HELMET_SECTION = Section(page=_page)
