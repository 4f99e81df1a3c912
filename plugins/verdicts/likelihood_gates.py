"""Gates on the likelihood of gold answers: when to stop measuring, the verdicts, and the results for reports.

Likelihood measures calibration and format as well as retrieval, so no other gate rests on it. A gate of this kind
passes only if the gold answers are also likelier than their foils: among models that answer everything wrong,
likelihood ranks fluency.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from longctx.fixtures.records import Reason, Verdict, VerdictWord
from longctx.fixtures.records.report_parts import CaseLikelihood, LikelihoodChanges, MeanEstimate
from longctx.plugins.evidence.clusters import (
    CLUSTERS_PER_LOOK,
    ESTIMATE_ALPHA,
    ClusteredQueue,
    SampleRef,
    first_precise_look,
)
from longctx.plugins.evidence.likelihood_estimates import (
    DIFFERENCE_CLIP,
    Likelihoods,
    change,
    difference_means,
    estimates,
    evidence_gain_of,
    finished_clusters,
    gain_of,
    margin_estimate,
    recovery_differences,
    recovery_estimate,
)
from longctx.plugins.evidence.points import from_points
from longctx.plugins.evidence.statistics import Decision, decide_level
from longctx.plugins.thresholds.records import Gate, Thresholds
from longctx.plugins.verdicts.evaluate import GateEvaluator
from longctx.plugins.verdicts.hypotheses import PanelKey, Scope, gate_family
from longctx.plugins.verdicts.panels import ModelRole, NextSamples, Panel

# Without a gate, a panel is measured until the interval of its gain has this half width, in nats.
PRECISION = 0.5
# The number of clusters handed out beyond the finished ones.
CLUSTERS_AHEAD = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _LikelihoodRule:
    """The gates that decide how many samples of one panel are measured."""

    panel: Panel
    gates: tuple[tuple[Gate, frozenset[str]], ...]
    """The blocking gates with the ids of the cases that each is about."""
    alpha: float
    """The largest probability of a wrong verdict of one gate."""

    def queue(self, failed: Collection[str] = ()) -> ClusteredQueue:
        """Return the samples with a gold answer, without those of failed cases.

        The distance from foils weighs all clusters alike, so their order is uniformly random.
        """
        return self.panel.queue(_gold_cases(self.panel).difference(failed), is_uniform=True)

    def stop(self, known: Likelihoods, failed: Collection[str] = ()) -> int | None:
        """Return the number of clusters of the queue after which nothing more is needed; None if more are."""
        queue = self.queue(failed)
        stop = None if self.panel.full else self._decided_at(queue, known, failed)
        finished = finished_clusters(queue, known)
        return finished if stop is None and finished == len(queue.clusters) else stop

    def _decided_at(self, queue: ClusteredQueue, known: Likelihoods, failed: Collection[str]) -> int | None:
        gates = [(gate, cases) for gate, cases in self.gates if cases.isdisjoint(failed)]
        if not gates:
            # The gain has to be precise.
            gains = difference_means(queue, known, gain_of)
            values = (gains + queue.strata.largest_values[: gains.size]) / 2
            return first_precise_look(values, queue, PRECISION / (2 * DIFFERENCE_CLIP))
        last = set()
        for gate, cases in gates:
            of_gate = self.panel.queue(cases, is_uniform=True)
            last.add(self._gate_stop(gate, of_gate, known))
        if None in last:
            return None
        # As many clusters as hold the last samples of all gates.
        places = [place for place, refs in enumerate(queue.clusters, start=1) if not last.isdisjoint(refs)]
        return places[-1]

    def next_samples(self, known: Mapping[ModelRole, Likelihoods], failed: Collection[str]) -> NextSamples:
        """Return the samples to measure next, in queue order; a baseline is measured on the same ones."""
        queue = self.queue(failed)
        stop = self.stop(known["model"], failed)
        if stop is None:
            ahead = finished_clusters(queue, known["model"]) + CLUSTERS_AHEAD
            stop = min(len(queue.clusters), max(queue.min_clusters, ahead))
        needed: list[tuple[ModelRole, SampleRef]] = []
        for ref in queue.refs[: queue.sample_count(stop)]:
            needed += [(role, ref) for role, values in known.items() if ref not in values]
        return tuple(needed)

    def _gate_stop(self, gate: Gate, queue: ClusteredQueue, known: Likelihoods) -> SampleRef | None:
        """Return the last sample that the gate's verdict needs; None while it is open."""
        decision = _decide(gate, queue, known, self.alpha)
        if decision is None:
            return None
        finished, alpha = finished_clusters(queue, known), 2 * self.alpha
        for clusters in range(decision.stopping_time, finished + 1, CLUSTERS_PER_LOOK):
            # So many clusters suffice if a recovery is defined after them, and gold is told from foils.
            if gate.measure == "recovery":
                gains = difference_means(queue, known, gain_of, clusters)
                most = difference_means(queue, known, evidence_gain_of, clusters)
                if recovery_estimate(queue, gains, most, alpha=alpha) is None:
                    continue
            margin = margin_estimate(queue, known, clusters=clusters, alpha=alpha)
            if decision.verdict == "fail" or margin is None or margin.low > 0 or margin.high <= 0:
                last_cluster = queue.clusters[clusters - 1]
                return last_cluster[-1]
        return None


def _gold_cases(panel: Panel) -> frozenset[str]:
    return frozenset(case.id for case in panel.cases.values() if case.has_gold)


def build_rules(
    thresholds: Thresholds, scope: Scope, panels: Mapping[PanelKey, Panel]
) -> dict[PanelKey, _LikelihoodRule]:
    """Return the rules of all panels that have gold answers; the gates share the error probability of the file."""
    gates = [gate for gate in thresholds.gates if gate.kind == "likelihood"]
    tests = sum(len(scope.lengths_of(gate)) for gate in gates)
    alpha = (1 - thresholds.verdict.confidence) / max(1, tests)
    rules = {}
    for key, panel in panels.items():
        blocking = []
        for gate in gates:
            cases = _cases(gate, scope, panel)
            if gate.blocking and panel.length in scope.lengths_of(gate) and cases:
                blocking.append((gate, cases))
        if _gold_cases(panel):
            rules[key] = _LikelihoodRule(panel=panel, gates=tuple(blocking), alpha=alpha)
    return rules


def _decide(gate: Gate, queue: ClusteredQueue, known: Likelihoods, alpha: float) -> Decision | None:
    """Return the decision of a gate on the finished clusters; None while it is open.

    It regards neither the foils nor whether a recovery is defined.
    """
    above = gate.above
    assert above is not None
    gains = difference_means(queue, known, gain_of)
    threshold = above / (DIFFERENCE_CLIP * queue.scale)
    if gate.measure == "recovery":
        most = difference_means(queue, known, evidence_gain_of)
        gains, threshold = recovery_differences(gains, most, from_points(above)), 0.0
    share = min(max((threshold + 1) / 2, 0.0), 1.0)
    least = queue.min_clusters
    return decide_level((gains + 1) / 2, share, queue.drawn_strata, alpha=alpha, min_observations=least)


def likelihood_verdicts(evaluator: GateEvaluator) -> tuple[Verdict, ...]:
    thresholds, scope = evaluator.thresholds, evaluator.measured.scope
    rules, verdicts = build_rules(thresholds, scope, evaluator.panels), list[Verdict]()
    for gate in thresholds.gates:
        if gate.kind == "likelihood":
            verdicts += [_verdict(evaluator, rules, gate, length) for length in scope.verdict_lengths(gate)]
    return tuple(verdicts)


def _cases(gate: Gate, scope: Scope, panel: Panel) -> frozenset[str]:
    """Return the ids of the gate's cases in the panel; empty unless all of its tasks are there."""
    if gate_family(gate, scope.task_families) != panel.family:
        return frozenset()
    tasks = set(scope.tasks_of(gate))
    cases = frozenset(case.id for case in panel.cases.values() if case.task in tasks and case.has_gold)
    return cases if len(cases) == len(tasks) else frozenset()


def _verdict(evaluator: GateEvaluator, rules: Mapping[PanelKey, _LikelihoodRule], gate: Gate, length: int) -> Verdict:
    scope = evaluator.measured.scope
    verdict, _ = evaluator.begin(gate, length)
    verdict = replace(verdict, measure=gate.measure)
    if verdict.because is not None:
        return verdict
    rule = rules.get((gate_family(gate, scope.task_families), length))
    gold = _cases(gate, scope, rule.panel) if rule is not None else frozenset[str]()
    if rule is None or not gold:
        return replace(verdict, because="missing tasks")
    return _measured_verdict(evaluator, rule, gate, gold, verdict)


def _measured_verdict(
    evaluator: GateEvaluator, rule: _LikelihoodRule, gate: Gate, cases: frozenset[str], verdict: Verdict
) -> Verdict:
    measured, alpha = evaluator.measured, rule.alpha
    whole, queue = rule.queue(measured.failed), rule.panel.queue(cases, is_uniform=True)
    stop = rule.stop(measured.likelihoods, measured.failed)
    known = {}
    for ref in whole.refs if stop is None else whole.refs[: whole.sample_count(stop)]:
        if ref in measured.likelihoods and ref.case_id in cases:
            known[ref] = measured.likelihoods[ref]
    result = estimates(queue, known, alpha=2 * alpha)
    if result is None:
        return replace(verdict, verdict="undecided", because="too few samples")
    # A gain in nats, or a recovery in points.
    estimate = result.recovery if gate.measure == "recovery" else result.gain
    margin = result.margin
    word, because = _judged(_decide(gate, queue, known, alpha), estimate, margin)
    verdict = replace(
        verdict,
        samples=result.samples,
        verdict=word,
        because=because,
        margin=None if margin is None else margin.mean,
    )
    if estimate is None:
        return verdict
    return replace(
        verdict,
        measured=estimate.mean,
        interval=estimate.interval,
        model_interval=estimate.model_interval,
        confidence=1 - 2 * alpha,
    )


def _judged(
    decision: Decision | None, estimate: MeanEstimate | None, margin: MeanEstimate | None
) -> tuple[VerdictWord, Reason | None]:
    """Return the verdict and its reason, given the estimates of the gate's measure and of the distance from foils."""
    if estimate is None:
        return "undecided", "no recovery"
    if decision is None:
        return "undecided", "too few samples"
    if decision.verdict == "fail" or margin is None or margin.low > 0:
        return decision.verdict, None
    if margin.high <= 0:
        return "fail", "likely distractors"
    return "undecided", "distractors not told"


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelLikelihood:
    """The likelihoods of one panel, for reports."""

    family: str
    length: int
    pooled: CaseLikelihood
    cases: Mapping[str, CaseLikelihood]
    """By case id."""
    change: LikelihoodChanges | None
    """The comparison with the baseline; None without one."""


def panel_likelihoods(evaluator: GateEvaluator) -> tuple[PanelLikelihood, ...]:
    """Return the likelihoods of all panels that have any; failed cases are left out and reported as errors."""
    measured = evaluator.measured
    rules = build_rules(evaluator.thresholds, measured.scope, evaluator.panels)
    results = []
    for rule in rules.values():
        panel, queue = rule.panel, rule.queue(measured.failed)
        known = {ref: measured.likelihoods[ref] for ref in queue.refs if ref in measured.likelihoods}
        stop = rule.stop(known, measured.failed)
        clusters = finished_clusters(queue, known) if stop is None else stop
        used = {ref: known[ref] for ref in queue.refs[: queue.sample_count(clusters)]}
        pooled = estimates(queue, used, alpha=ESTIMATE_ALPHA)
        if pooled is None:
            continue
        by_case: dict[str, CaseLikelihood] = {}
        for case_id in panel.cases:
            own = panel.queue({case_id}, is_uniform=True)
            result = estimates(own, used, alpha=ESTIMATE_ALPHA)
            if result is not None:
                by_case[case_id] = result
        results.append(
            PanelLikelihood(
                family=panel.family,
                length=panel.length,
                pooled=pooled,
                cases=by_case,
                change=change(queue, used, measured.baseline_likelihoods, alpha=ESTIMATE_ALPHA),
            )
        )
    return tuple(results)
