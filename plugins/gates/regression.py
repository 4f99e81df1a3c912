"""Has the model become worse than its baseline? Paired by sample, pooled over a panel, told case by case."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fixtures.lengths import format_length
from fixtures.records import CaseResult, Verdict, VerdictWord
from plugins.gates.clusters import SampleRef
from plugins.gates.evaluate import GateEvaluator, interval_alpha
from plugins.gates.hypotheses import RULER
from plugins.gates.panels import Panel
from plugins.gates.statistics import e_bh, interval, log_evidence_below, log_evidence_of_drop, paired_interval

KIND = "regression"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What is known of one case. Scores, floor and differences are 0 to 100, None where not measured.

    `below`: shown to be below its floor; `dropped`: shown to be worse than the baseline; both with
    the share of false discoveries held over all cases. `flips` counts paired samples that became
    worse and better. `interval` is that of the score, whatever the number of samples planned.
    """

    score: float | None
    interval: tuple[float, float] | None
    floor: float | None
    below: bool
    difference: float | None
    difference_interval: tuple[float, float] | None
    flips: tuple[int, int]
    pairs: int
    dropped: bool

    @property
    def bad(self) -> bool:
        return self.below or self.dropped


def name_of(panel: Panel) -> str:
    """The name of the comparison's verdict at the panel's length."""
    return f"regression{'' if panel.family == RULER else f' of {panel.family}'} at {format_length(panel.length)}"


def regression_verdicts(judge: GateEvaluator) -> tuple[Verdict, ...]:
    """One verdict for each length; none without a baseline."""
    if not judge.measured.scope.has_baseline:
        return ()
    baseline = baseline_scores(judge.measured.results)
    return tuple(_regression(judge, panel, of_panel(panel, baseline)) for panel in judge.panels.values())


def diagnoses(judge: GateEvaluator) -> dict[str, Diagnosis]:
    """By case id, for every case that has a score."""
    floors, results = judge.thresholds.floors, judge.measured.results
    scored = {name: result for name, result in results.items() if result.score is not None}
    below = _shown(scored, judge, lambda result: _log_below(result, floors.get(result.case.task)))
    dropped = _shown(scored, judge, _log_dropped)
    return {
        name: _diagnosis(result, judge, floors.get(result.case.task), below=name in below, dropped=name in dropped)
        for name, result in scored.items()
    }


def baseline_scores(results: Mapping[str, CaseResult]) -> dict[SampleRef, float]:
    """The baseline's scores, each at its place in the queue."""
    return {
        SampleRef(result.case.id, outcome.index): score
        for result in results.values()
        for outcome, score in zip(result.outcomes, result.baseline, strict=False)
    }


def of_panel(panel: Panel, scores: Mapping[SampleRef, float]) -> dict[SampleRef, float]:
    """Those of the panel's elements; a run of many panels would otherwise go through all for each."""
    return {element: scores[element] for element in panel.order if element in scores}


def _regression(judge: GateEvaluator, panel: Panel, baseline: Mapping[SampleRef, float]) -> Verdict:
    # Those that cannot be built are in no queue, but the mean without them is not the panel's.
    cases = [case for case in judge.measured.scope.cases_at(panel.length).values() if case.family == panel.family]
    results = [judge.measured.results.get(case.id) for case in cases]
    broken = next((result for result in results if result is not None and result.error is not None), None)
    scores = of_panel(panel, judge.scores)
    look = panel.analyze_pairs(scores, baseline)
    word: VerdictWord = look.decision.verdict if look.decision else "inconclusive"
    value, bounds = None, None
    assert panel.non_inferiority is not None
    alpha = interval_alpha(1 - judge.thresholds.verdict.confidence, panel.non_inferiority.alpha)
    drop = judge.thresholds.regression.drop
    if broken is not None:
        word, reason = "error", f"{broken.case.id}: {broken.error}"
    elif any(result is None for result in results):
        word, reason = "error", "a case came back without a result"
    elif look.samples == 0:
        reason = "no sample has a result of both"
        if judge.measured.scope.baseline_is_final:
            word, reason = "not measured", "the baseline's journal has no result on these samples"
    else:
        pool = panel.queue(panel.cases)
        both = scores.keys() & baseline
        found = pool.weighted_means({element: scores[element] - baseline[element] for element in both}, look.clusters)
        of = len(pool.clusters) if panel.non_inferiority.finite_population else None
        bounds_of_pieces = paired_interval(found, alpha=alpha, population=of)
        low, high = (max(-1.0, min(1.0, pool.scale * end)) for end in bounds_of_pieces)
        value, bounds = 100 * pool.scale * math.fsum(found) / len(found), (100 * low, 100 * high)
        worse, better = int((found < 0).sum()), int((found > 0).sum())
        flips = f"{worse} worse, {better} better of {look.clusters} pairs"
        reason = f"{value:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]: {_said(judge, word)} points ({flips})"
    return Verdict(
        name=name_of(panel),
        kind=KIND,
        length=panel.length,
        measured=value,
        interval=bounds,
        confidence=1 - alpha if bounds else None,
        required=-drop,
        samples=look.samples,
        of=look.planned_samples,
        verdict=word,
        blocking=judge.thresholds.regression.blocking,
        reason=reason,
    )


def _said(judge: GateEvaluator, word: VerdictWord) -> str:
    rules = judge.thresholds.regression
    if word == "pass":
        return f"no loss of {rules.drop:g}"
    if word != "fail":
        return f"neither shown nor ruled out: {rules.drop:g}"
    return f"a loss of more than {f'half of {rules.drop:g}' if rules.clear is None else f'{rules.clear:g}'}"


def _shown(
    results: Mapping[str, CaseResult], judge: GateEvaluator, log_evidence: Callable[[CaseResult], float | None]
) -> set[str]:
    """The cases whose evidence stands after Benjamini and Hochberg's correction for e-values."""
    found = {name: value for name, result in results.items() if (value := log_evidence(result)) is not None}
    rejected = e_bh(list(found.values()), judge.thresholds.regression.false_discoveries)
    return {name for name, shown in zip(found, rejected, strict=True) if shown}


def _log_below(result: CaseResult, floor: float | None) -> float | None:
    if floor is None:
        return None
    values = np.array(result.evidence)
    return log_evidence_below(values, floor / 100, population=result.case.samples // result.case.group)


def _log_dropped(result: CaseResult) -> float | None:
    found = np.array(result.differences)
    return log_evidence_of_drop(found) if len(found) else None


def _diagnosis(
    result: CaseResult, judge: GateEvaluator, floor: float | None, *, below: bool, dropped: bool
) -> Diagnosis:
    alpha = 1 - judge.thresholds.verdict.confidence
    low, high = interval(np.array(result.evidence), alpha=alpha)
    found = np.array(result.differences)
    pairs = len(found)
    between = paired_interval(found, alpha=alpha) if pairs else None
    assert result.score is not None
    return Diagnosis(
        score=100 * result.score,
        interval=(100 * low, 100 * high),
        floor=floor,
        below=below,
        difference=100 * math.fsum(found) / pairs if pairs else None,
        difference_interval=between and (100 * between[0], 100 * between[1]),
        flips=(int((found < 0).sum()), int((found > 0).sum())),
        pairs=pairs,
        dropped=dropped,
    )
