"""The evaluation of one run: case results in; verdicts, diagnoses and evidence curves out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from longctx.fixtures.records import Case, Verdict
from longctx.plugins.evidence.clusters import ClusteredQueue
from longctx.plugins.evidence.e_process import Floats
from longctx.plugins.evidence.sequential import pair_evidence
from longctx.plugins.evidence.statistics import level_evidence
from longctx.plugins.thresholds.records import CATEGORIES, Gate, Thresholds
from longctx.plugins.verdicts.diagnoses import Diagnosis, diagnoses
from longctx.plugins.verdicts.evaluate import GateEvaluator, GateFinding, Measured
from longctx.plugins.verdicts.hypotheses import (
    HEADLINE,
    estimate_gate,
    gate_family,
    hypothesis_of,
)
from longctx.plugins.verdicts.likelihood_gates import PanelLikelihood, likelihood_verdicts, panel_likelihoods
from longctx.plugins.verdicts.regression import comparison_name, regression_verdicts

FindingsByLength = Mapping[int, GateFinding]
# The most points that a chart of evidence shows.
MOST_POINTS = 120
# A reader sees no difference between e-values of 10^12 and of infinity.
LARGEST_EXPONENT = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The one evaluation of a run that gate tests, exit code and every report read."""

    thresholds: Thresholds
    measured: Measured
    """The selected cases and the results that came back for them."""
    verdicts: tuple[Verdict, ...]
    """The verdicts of the gates on scores in the order of the thresholds file, then those of the baseline comparison,
    then those of the gates on likelihood."""
    diagnoses: Mapping[str, Diagnosis]
    """The floor and baseline tests of every case that has a score, by case id."""
    ruler: FindingsByLength
    """The mean over all RULER tasks against the reference score."""
    aspects: Mapping[str, FindingsByLength]
    """The mean over the RULER tasks of each aspect against the reference score of that aspect."""
    categories: Mapping[str, FindingsByLength]
    """The estimated mean of each HELMET category."""
    curves: Mapping[str, tuple[Curve, ...]]
    """The evidence curves by the verdict's name."""
    likelihood: tuple[PanelLikelihood, ...] = ()
    """The likelihoods of gold answers on every panel where some were measured."""

    def is_narrowed(self, available: Sequence[Case]) -> bool:
        """Return True if some of the available cases were not selected, or an interruption ended the run."""
        return bool(self.measured.unfinished) or len(self.measured.scope.cases) < len(available)


def evaluate(thresholds: Thresholds, measured: Measured) -> Evaluation:
    """Apply the thresholds to the case results of a run."""
    evaluator, scope = GateEvaluator(thresholds, measured), measured.scope

    def by_length(gate: Gate) -> FindingsByLength:
        return {length: evaluator.finding(gate, length) for length in scope.lengths}

    has_answers = scope.signal != "likelihood"
    verdicts = [
        *(evaluator.verdicts() if has_answers else ()),
        *(regression_verdicts(evaluator) if has_answers else ()),
        *likelihood_verdicts(evaluator),
    ]
    interrupted = {case.length for case in scope.cases if case.id in measured.unfinished}
    for place, verdict in enumerate(verdicts):
        is_open = verdict.verdict == "undecided" and verdict.because != "not shown"
        if is_open and interrupted and verdict.length in (None, *interrupted):
            verdicts[place] = replace(
                verdict, verdict="not measured", measured=None, interval=None, model_interval=None, confidence=None,
                because="interrupted", change=None,
            )  # fmt: skip
    return Evaluation(
        thresholds=thresholds,
        measured=measured,
        verdicts=tuple(verdicts),
        likelihood=panel_likelihoods(evaluator),
        diagnoses=diagnoses(evaluator),
        ruler=by_length(HEADLINE),
        aspects={
            aspect: by_length(replace(HEADLINE, aspect=aspect))
            for aspect in dict.fromkeys(scope.ruler_aspects.values())
        },
        categories={category: by_length(estimate_gate(category)) for category in CATEGORIES},
        curves=curves(evaluator),
    )


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
        for length in evaluator.measured.scope.lengths_of(gate):
            name = gate.name if gate.kind == "effective_length" else gate.verdict_name(length)
            curve = _level_curve(evaluator, gate, length)
            by_name.setdefault(name, []).extend([curve] if curve else [])
    if evaluator.measured.scope.has_baseline:
        for panel, scores, baseline in evaluator.compared_panels():
            by_name[comparison_name(panel.family, panel.length)] = paired = []
            analysis, test = panel.analyze_pairs(scores, baseline), panel.non_inferiority
            queue = panel.queue(panel.cases)
            differences = {sample: scores[sample] - baseline[sample] for sample in scores.keys() & baseline}
            values = queue.weighted_means(differences, analysis.clusters)
            if len(values) and test is not None:
                evidence = pair_evidence(test, queue, values)
                decided = analysis.decision.stopping_time if analysis.decision else None
                paired.append(_curve(panel.length, queue, evidence, alpha=test.alpha, decided=decided, exact=False))
    return {name: tuple(curves_of_gate) for name, curves_of_gate in by_name.items() if curves_of_gate}


def _level_curve(evaluator: GateEvaluator, gate: Gate, length: int) -> Curve | None:
    """Return the curve of a gate at one length; None without evidence for or against its threshold there."""
    scope = evaluator.measured.scope
    panel = evaluator.panels.get((gate_family(gate, scope.task_families), length))
    if panel is None or not set(scope.cases_at(length)).issuperset(scope.tasks_of(gate)):
        return None
    hypothesis = hypothesis_of(gate, scope, length, panel)
    analysis = evaluator.analysis(panel, hypothesis)
    queue = panel.queue(hypothesis.case_ids)
    values = queue.weighted_means(evaluator.scores, analysis.clusters)
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
    if not evidence[0].size:
        # The last cluster of a finite population is no bet, so a single one gives no evidence.
        return None
    decided = analysis.decision.stopping_time if analysis.decision else None
    exact = decided == len(queue.clusters)
    return _curve(length, queue, evidence, alpha=hypothesis.alpha, decided=decided, exact=exact)


def _exponents(logs: Floats) -> tuple[float, ...]:
    """Return natural logarithms as powers of ten, as a chart shows them."""
    powers = np.clip(logs / math.log(10), -LARGEST_EXPONENT, LARGEST_EXPONENT)
    return tuple(round(float(power), 2) for power in powers)


def _curve(
    length: int,
    queue: ClusteredQueue,
    evidence: tuple[Floats, Floats],
    *,
    alpha: float,
    decided: int | None,
    exact: bool,
) -> Curve:
    clusters = evidence[0].size
    evenly_spaced = np.linspace(0, max(0, clusters - 1), MOST_POINTS)
    places = np.unique(evenly_spaced.round().astype(int))[:clusters]
    sizes = np.cumsum([len(cluster) for cluster in queue.clusters])
    above, below = (_exponents(log[places]) for log in evidence)
    return Curve(
        length=length,
        seen=tuple(int(size) for size in sizes[places]),
        above=above,
        below=below,
        bar=round(-math.log10(alpha), 3),
        decided=None if decided is None else int(sizes[decided - 1]),
        exact=exact,
        of=int(sizes[-1]),
    )
