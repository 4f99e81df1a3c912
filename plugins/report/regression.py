"""The section of the JSON report on the comparison with a baseline."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from fixtures.records import CaseResult
from plugins.config.run import Run
from plugins.gates.evaluate import Measured
from plugins.gates.evaluation import Evaluation
from plugins.gates.points import to_points
from plugins.report.made_of import source_of


def regression(evaluation: Evaluation, run: Run) -> dict[str, Any] | None:
    """Return the comparison with the baseline; None without one. A difference is the model's score minus its score."""
    baseline = run.baseline
    if baseline is None:
        return None
    thresholds = run.thresholds.regression
    return {
        "baseline": {
            "name": baseline.name,
            "fingerprint": baseline.fingerprint,
            "source": source_of(baseline.checkpoint),
            "engine": baseline.execution.get("engine") or run.engine_settings("baseline")["engine"],
        },
        "scores": _baseline_scores(evaluation.measured),
        "drop": thresholds.drop,
        "false_discoveries": thresholds.false_discoveries,
        "cases": {
            case_id: {
                "difference": diagnosis.difference,
                "interval": diagnosis.difference_interval and list(diagnosis.difference_interval),
                "worse": diagnosis.flips[0],
                "better": diagnosis.flips[1],
                "haystacks_worse": diagnosis.votes[0],
                "haystacks_better": diagnosis.votes[1],
                "no_vote": diagnosis.no_vote,
                "pairs": diagnosis.pairs,
                "detectable": diagnosis.detectable,
                "dropped": diagnosis.dropped,
            }
            for case_id, diagnosis in evaluation.diagnoses.items()
        },
    }


def _baseline_scores(measured: Measured) -> dict[str, dict[str, float]]:
    """Return the baseline's mean over the tasks of each family, by length in tokens, on the pairs that were measured.

    A length at which a case has no pair is left out.
    """
    panels: dict[tuple[str, int], list[CaseResult | None]] = {}
    for case in measured.scope.cases:
        panels.setdefault((case.family, case.length), []).append(measured.results.get(case.id))
    scores: dict[str, dict[str, float]] = {}
    for (family, length), results in panels.items():
        means = [fmean(result.baseline) for result in results if result is not None and result.baseline]
        if len(means) == len(results):
            scores.setdefault(family, {})[str(length)] = to_points(fmean(means))
    return scores
