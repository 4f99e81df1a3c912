"""The evidence behind each verdict as it grew along the queue, thinned to what a chart can show."""

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
from plugins.gates.regression import baseline_scores, comparison_name, scores_of_panel
from plugins.gates.sequential import Hypothesis
from plugins.gates.statistics import level_evidence, paired_evidence
from plugins.gates.thresholds import Gate

MOST_POINTS = 120
# e-values of 10^12 and of infinity are the same to a reader.
LARGEST = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Two e-processes over one panel's queue, in powers of ten, after each of the `seen` samples.

    `above` speaks for a pass, `below` for a fail; the first to reach `bar` decides, at `decided` samples. `exact`
    says that all `of` samples were compared instead, None for `decided` that nothing was.
    """

    length: int
    seen: tuple[int, ...]
    above: tuple[float, ...]
    below: tuple[float, ...]
    bar: float
    decided: int | None
    exact: bool
    of: int


def curves(judge: GateEvaluator) -> dict[str, tuple[Curve, ...]]:
    """By the verdict's name; a gate on the effective length has one for each length, a weighted average none."""
    found: dict[str, list[Curve]] = {}
    known: dict[tuple[int, Hypothesis], Curve | None] = {}
    for gate in judge.thresholds.gates:
        if gate.kind == "weighted_average":
            continue
        for length in lengths_of(gate, judge.measured.scope):
            name = gate.name if gate.kind == "effective_length" else verdict_name(gate, length)
            curve = _level(judge, gate, length, known)
            found.setdefault(name, []).extend([curve] if curve else [])
    if judge.measured.scope.has_baseline:
        baseline = baseline_scores(judge.measured.results)
        for panel in judge.panels.values():
            paired = _paired(panel, scores_of_panel(panel, judge.scores), scores_of_panel(panel, baseline))
            found[comparison_name(panel.family, panel.length)] = [paired] if paired else []
    return {name: tuple(each) for name, each in found.items() if each}


def _level(
    judge: GateEvaluator, gate: Gate, length: int, known: dict[tuple[int, Hypothesis], Curve | None]
) -> Curve | None:
    """None where the gate was not measured at the length; `known` are those that other gates have asked for."""
    scope = judge.measured.scope
    panel = judge.panels.get((gate_family(gate, scope.task_families), length))
    if panel is None or not set(scope.cases_at(length)).issuperset(tasks_of(gate, scope)):
        return None
    rule = hypothesis_of(gate, scope, length, panel)
    if (length, rule) in known:
        return known[length, rule]
    look = panel.analyze(rule, judge.scores, control_variate=judge.measured.control_variate)
    pool = panel.queue(rule.case_ids)
    values = pool.weighted_means(judge.scores, look.clusters)
    known[length, rule] = None
    if len(values) and rule.threshold is not None:
        of = len(pool.clusters)
        control = (
            None if judge.measured.control_variate is None else pool.weighted_means(judge.measured.control_variate)
        )
        evidence = level_evidence(
            values,
            rule.threshold / pool.scale,
            population=of,
            indifference_zone=rule.indifference_zone / pool.scale,
            control_variate=control if control is not None and len(control) == of else None,
        )
        decided = look.decision.stopping_time if look.decision else None
        exact = look.decision is not None and look.decision.stopping_time == of
        # The last of a population is no bet, so a single sample draws nothing.
        if evidence[0].size:
            known[length, rule] = _curve(length, pool, evidence, alpha=rule.alpha, decided=decided, exact=exact)
    return known[length, rule]


def _paired(panel: Panel, scores: Mapping[SampleRef, float], baseline: Mapping[SampleRef, float]) -> Curve | None:
    """None without a pair."""
    look, pool = panel.analyze_pairs(scores, baseline), panel.queue(panel.cases)
    differences = {element: scores[element] - baseline[element] for element in scores.keys() & baseline}
    values = pool.weighted_means(differences, look.clusters)
    if not len(values) or panel.non_inferiority is None:
        return None
    drop, clear = panel.non_inferiority.drop / pool.scale, panel.non_inferiority.clear / pool.scale
    population = len(pool.clusters) if panel.non_inferiority.finite_population else None
    evidence = paired_evidence(values, drop=drop, clear=clear, population=population)
    decided = look.decision.stopping_time if look.decision else None
    return _curve(panel.length, pool, evidence, alpha=panel.non_inferiority.alpha, decided=decided, exact=False)


def _curve(
    length: int,
    pool: ClusteredQueue,
    evidence: tuple[Floats, Floats],
    *,
    alpha: float,
    decided: int | None,
    exact: bool,
) -> Curve:
    above, below = (np.clip(each / math.log(10), -LARGEST, LARGEST) for each in evidence)
    places = np.unique(np.linspace(0, max(0, above.size - 1), MOST_POINTS).round().astype(int))[: above.size]
    sizes = np.cumsum([len(piece) for piece in pool.clusters])
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
