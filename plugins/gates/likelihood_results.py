"""The likelihoods of a run's panels and cases, for reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plugins.gates.clusters import ESTIMATE_ALPHA
from plugins.gates.evaluate import GateEvaluator
from plugins.gates.likelihood import (
    LikelihoodChange,
    LikelihoodEstimates,
    Likelihoods,
    change,
    estimates,
    finished_clusters,
)
from plugins.gates.likelihood_gates import build_rules
from plugins.gates.panels import Panel


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelLikelihood:
    """The likelihoods of one panel, for reports."""

    family: str
    length: int
    pooled: LikelihoodEstimates
    cases: Mapping[str, LikelihoodEstimates]
    """By case id."""
    change: LikelihoodChange | None
    """The comparison with the baseline; None without one."""


def panel_likelihoods(evaluator: GateEvaluator) -> tuple[PanelLikelihood, ...]:
    """Return the likelihoods of all panels that have any; failed cases are left out and reported as errors."""
    measured = evaluator.measured
    results = []
    for rule in build_rules(evaluator.thresholds, measured.scope, evaluator.panels).values():
        panel, queue = rule.panel, rule.queue(measured.failed)
        known = {ref: measured.likelihoods[ref] for ref in queue.refs if ref in measured.likelihoods}
        stop = rule.stop(known, measured.failed)
        clusters = finished_clusters(queue, known) if stop is None else stop
        pooled = estimates(queue, known, clusters=clusters, alpha=ESTIMATE_ALPHA)
        if pooled is None:
            continue
        used = {ref: known[ref] for ref in queue.refs[: queue.sample_count(clusters)]}
        by_case = {case_id: _case_estimates(panel, case_id, used) for case_id in panel.cases}
        results.append(
            PanelLikelihood(
                family=panel.family,
                length=panel.length,
                pooled=pooled,
                cases={case_id: result for case_id, result in by_case.items() if result is not None},
                change=change(queue, used, measured.baseline_likelihoods, alpha=ESTIMATE_ALPHA),
            )
        )
    return tuple(results)


def _case_estimates(panel: Panel, case_id: str, used: Likelihoods) -> LikelihoodEstimates | None:
    queue = panel.uniform_queue({case_id})
    own = {ref: used[ref] for ref in queue.refs if ref in used}
    return estimates(queue, own, clusters=finished_clusters(queue, own), alpha=ESTIMATE_ALPHA)
