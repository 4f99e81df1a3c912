"""The evidence behind each verdict as it grew along the queue, thinned to the points that a chart can show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from plugins.gates.clusters import ClusteredQueue, SampleRef
from plugins.gates.e_process import Floats
from plugins.gates.evaluate import GateEvaluator
from plugins.gates.hypotheses import gate_family, hypothesis_of, lengths_of, tasks_of, verdict_name
from plugins.gates.panels import Panel
from plugins.gates.regression import baseline_scores, compared_panels, comparison_name, scores_of_panel
from plugins.gates.sequential import Hypothesis, pair_evidence
from plugins.gates.statistics import level_evidence
from plugins.gates.thresholds import Gate

MOST_POINTS = 120
# A reader sees no difference between e-values of 10^12 and of infinity.
LARGEST_EXPONENT = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Two e-processes over the queue of one panel, in powers of ten. The first to reach the bar decides the verdict."""

    length: int

    seen: tuple[int, ...]
    """The numbers of samples after which the curve has a point."""

    above: tuple[float, ...]
    """The evidence for a pass."""

    below: tuple[float, ...]
    """The evidence for a fail."""

    bar: float
    """The evidence that a verdict takes."""

    decided: int | None
    """The number of samples at which the verdict was final; None if it is open."""

    exact: bool
    """True if the verdict compares the mean of all planned samples instead of the evidence."""

    of: int
    """The number of planned samples."""


def curves(evaluator: GateEvaluator) -> dict[str, tuple[Curve, ...]]:
    """Return the curves by the verdict's name.

    An effective-length gate has one for each length. A gate on a weighted average, likelihood or the worst phase has
    none.
    """
    by_name: dict[str, list[Curve]] = {}
    for gate in evaluator.thresholds.gates:
        if gate.kind in ("weighted_average", "likelihood", "worst_phase"):
            continue
        for length in lengths_of(gate, evaluator.measured.scope):
            name = gate.name if gate.kind == "effective_length" else verdict_name(gate, length)
            curve = _level_curve(evaluator, gate, length)
            by_name.setdefault(name, []).extend([curve] if curve else [])
    if evaluator.measured.scope.has_baseline:
        baseline = baseline_scores(evaluator.measured.results)
        for panel in compared_panels(evaluator):
            curve = _paired_curve(panel, scores_of_panel(panel, evaluator.scores), scores_of_panel(panel, baseline))
            by_name[comparison_name(panel.family, panel.length)] = [curve] if curve else []
    return {name: tuple(curves_of_gate) for name, curves_of_gate in by_name.items() if curves_of_gate}


def _level_curve(evaluator: GateEvaluator, gate: Gate, length: int) -> Curve | None:
    """Return the curve of a gate at one length; None if it was not measured there."""
    scope = evaluator.measured.scope
    panel = evaluator.panels.get((gate_family(gate, scope.task_families), length))
    if panel is None or not set(scope.cases_at(length)).issuperset(tasks_of(gate, scope)):
        return None
    hypothesis = hypothesis_of(gate, scope, length, panel)
    analysis = evaluator.analysis(panel, hypothesis)
    queue = panel.queue(hypothesis.case_ids)
    evidence = _level_evidence(evaluator, queue, hypothesis, queue.weighted_means(evaluator.scores, analysis.clusters))
    if evidence is None:
        return None
    decided = analysis.decision.stopping_time if analysis.decision else None
    exact = decided == len(queue.clusters)
    return _curve(length, queue, evidence, alpha=hypothesis.alpha, decided=decided, exact=exact)


def _level_evidence(
    evaluator: GateEvaluator, queue: ClusteredQueue, hypothesis: Hypothesis, values: Floats
) -> tuple[Floats, Floats] | None:
    """Return the evidence for a mean above and below the threshold; None without any."""
    if not len(values) or hypothesis.threshold is None:
        return None
    known = evaluator.measured.control_variate
    control_variate = None if known is None else queue.weighted_means(known)
    if control_variate is not None and len(control_variate) < len(queue.clusters):
        control_variate = None
    evidence = level_evidence(
        values,
        hypothesis.threshold / queue.scale,
        population=len(queue.clusters),
        indifference_zone=hypothesis.indifference_zone / queue.scale,
        control_variate=control_variate,
        strata=queue.strata,
    )
    # The last cluster of a finite population is no bet, so a single one gives no evidence.
    return evidence if evidence[0].size else None


def _paired_curve(panel: Panel, scores: Mapping[SampleRef, float], baseline: Mapping[SampleRef, float]) -> Curve | None:
    """Return the curve of the comparison with the baseline; None if no sample has both scores."""
    analysis, queue = panel.analyze_pairs(scores, baseline), panel.queue(panel.cases)
    differences = {sample: scores[sample] - baseline[sample] for sample in scores.keys() & baseline}
    values = queue.weighted_means(differences, analysis.clusters)
    test = panel.non_inferiority
    if not len(values) or test is None:
        return None
    evidence = pair_evidence(test, queue, values)
    decided = analysis.decision.stopping_time if analysis.decision else None
    return _curve(panel.length, queue, evidence, alpha=test.alpha, decided=decided, exact=False)


def _curve(
    length: int,
    queue: ClusteredQueue,
    evidence: tuple[Floats, Floats],
    *,
    alpha: float,
    decided: int | None,
    exact: bool,
) -> Curve:
    above, below = (np.clip(log / math.log(10), -LARGEST_EXPONENT, LARGEST_EXPONENT) for log in evidence)
    places = np.unique(np.linspace(0, max(0, above.size - 1), MOST_POINTS).round().astype(int))[: above.size]
    sizes = np.cumsum([len(cluster) for cluster in queue.clusters])
    return Curve(
        length=length,
        seen=tuple(int(sizes[place]) for place in places),
        above=tuple(round(float(above[place]), 2) for place in places),
        below=tuple(round(float(below[place]), 2) for place in places),
        bar=round(-math.log10(alpha), 3),
        decided=None if decided is None else int(sizes[decided - 1]),
        exact=exact,
        of=int(sizes[-1]),
    )
