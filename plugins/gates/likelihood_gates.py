"""Gates on the likelihood of gold answers: when to stop measuring, the verdicts, and the results for reports.

Likelihood measures calibration and format as well as retrieval, so no other gate rests on it. A gate of this kind
passes only if the gold answers are also likelier than their foils: among models that answer everything wrong,
likelihood ranks fluency.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING

from fixtures.lengths import format_length
from fixtures.records import Verdict, VerdictWord
from plugins.gates.clusters import CLUSTERS_PER_LOOK, ClusteredQueue, SampleRef, first_precise_look
from plugins.gates.findings import extent
from plugins.gates.hypotheses import PanelKey, Scope, gate_family, lengths_of, tasks_of, verdict_name
from plugins.gates.likelihood import (
    DIFFERENCE_CLIP,
    Estimate,
    LikelihoodEstimates,
    Likelihoods,
    difference_means,
    estimates,
    evidence_gain_of,
    finished_clusters,
    gain_of,
    margin_estimate,
    recovery_differences,
    recovery_estimate,
)
from plugins.gates.panels import ModelRole, Panel
from plugins.gates.points import from_points, to_points
from plugins.gates.statistics import Decision, decide_level
from plugins.gates.thresholds import Gate, Thresholds

if TYPE_CHECKING:
    from plugins.gates.evaluate import GateEvaluator

KIND = "likelihood"
# Without a gate, a panel is measured until the interval of its gain has this half width, in nats.
PRECISION = 0.5
# The number of clusters handed out beyond the finished ones.
CLUSTERS_AHEAD = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelihoodRule:
    """The gates that decide how many samples of one panel are measured."""

    panel: Panel
    gates: tuple[tuple[Gate, frozenset[str]], ...]
    """The blocking gates with the ids of the cases that each is about."""
    alpha: float
    """The largest probability of a wrong verdict of one gate."""

    def queue(self, failed: Collection[str] = ()) -> ClusteredQueue:
        """Return the samples with a gold answer, without those of failed cases, in a uniformly random order.

        Rates at which answers are drawn follow from the spread of scores, which says nothing about likelihoods.
        """
        return self.panel.uniform_queue(gold_cases(self.panel).difference(failed))

    def stop(self, known: Likelihoods, failed: Collection[str] = ()) -> int | None:
        """Return the number of clusters of the queue after which nothing more is needed; None if more are."""
        queue = self.queue(failed)
        stop = None if self.panel.full else self._decided(queue, known, failed)
        finished = finished_clusters(queue, known)
        return finished if stop is None and finished == len(queue.clusters) else stop

    def _decided(self, queue: ClusteredQueue, known: Likelihoods, failed: Collection[str]) -> int | None:
        """Return the number of clusters after which all gates are decided, or the gain is precise without a gate."""
        gates = [(gate, cases) for gate, cases in self.gates if cases.isdisjoint(failed)]
        if not gates:
            means = (difference_means(queue, known, gain_of) + 1) / 2
            return first_precise_look(means, queue, PRECISION / (2 * DIFFERENCE_CLIP))
        stops = [self._gate_stop(gate, self.panel.uniform_queue(cases), known) for gate, cases in gates]
        decided = [stop for stop in stops if stop is not None]
        return _clusters_holding(queue, decided) if len(decided) == len(stops) else None

    def next_samples(
        self, known: Mapping[ModelRole, Likelihoods], failed: Collection[str]
    ) -> tuple[tuple[ModelRole, SampleRef], ...]:
        """Return the samples to measure next, in queue order; a baseline is measured on the same ones."""
        queue = self.queue(failed)
        stop = self.stop(known["model"], failed)
        if stop is None:
            ahead = finished_clusters(queue, known["model"]) + CLUSTERS_AHEAD
            stop = min(len(queue.clusters), max(queue.min_clusters, ahead))
        wanted = queue.refs[: queue.sample_count(stop)]
        return tuple((role, ref) for ref in wanted for role, values in known.items() if ref not in values)

    def _gate_stop(self, gate: Gate, queue: ClusteredQueue, known: Likelihoods) -> SampleRef | None:
        """Return the last sample that the gate's verdict needs; None while it is open."""
        decision = decide(gate, queue, known, self.alpha)
        if decision is None:
            return None
        finished = finished_clusters(queue, known)
        for clusters in range(decision.stopping_time, finished + 1, CLUSTERS_PER_LOOK):
            if _is_settled(gate, decision, queue, known, clusters, self.alpha):
                return queue.refs[queue.sample_count(clusters) - 1]
        return None


def gold_cases(panel: Panel) -> frozenset[str]:
    """Return the ids of the panel's cases that have gold answers."""
    return frozenset(case.id for case in panel.cases.values() if case.has_gold)


def build_rules(
    thresholds: Thresholds, scope: Scope, panels: Mapping[PanelKey, Panel]
) -> dict[PanelKey, LikelihoodRule]:
    """Return the rules of all panels that have gold answers; the gates share the error probability of the file."""
    gates = [gate for gate in thresholds.gates if gate.kind == KIND]
    tests = sum(len(lengths_of(gate, scope)) for gate in gates)
    alpha = (1 - thresholds.verdict.confidence) / max(1, tests)
    return {
        key: LikelihoodRule(
            panel=panel,
            gates=tuple(
                (gate, cases)
                for gate in gates
                if gate.blocking and panel.length in lengths_of(gate, scope) and (cases := _cases(gate, scope, panel))
            ),
            alpha=alpha,
        )
        for key, panel in panels.items()
        if gold_cases(panel)
    }


def decide(gate: Gate, queue: ClusteredQueue, known: Likelihoods, alpha: float) -> Decision | None:
    """Return the decision of a gate on the finished clusters; None while it is open.

    It regards neither the foils nor whether a recovery is defined.
    """
    assert gate.above is not None
    gains = difference_means(queue, known, gain_of)
    threshold = gate.above / (DIFFERENCE_CLIP * queue.scale)
    if gate.measure == "recovery":
        most = difference_means(queue, known, evidence_gain_of)
        gains, threshold = recovery_differences(gains, most, from_points(gate.above)), 0.0
    return decide_level(
        (gains + 1) / 2,
        min(max((threshold + 1) / 2, 0.0), 1.0),
        alpha=alpha,
        population=len(queue.clusters),
        min_observations=queue.min_clusters,
    )


def _is_settled(
    gate: Gate, decision: Decision, queue: ClusteredQueue, known: Likelihoods, clusters: int, alpha: float
) -> bool:
    """Return True if the first clusters suffice for a decision: a recovery is defined and gold is told from foils."""
    if gate.measure == "recovery":
        gains, most = (difference_means(queue, known, value, clusters) for value in (gain_of, evidence_gain_of))
        if recovery_estimate(gains.tobytes(), most.tobytes(), queue, 2 * alpha) is None:
            return False
    margin = margin_estimate(queue, known, clusters=clusters, alpha=2 * alpha)
    return decision.verdict == "fail" or margin is None or margin.low > 0 or margin.high <= 0


def likelihood_verdicts(evaluator: GateEvaluator) -> tuple[Verdict, ...]:
    """Return the verdicts of all likelihood gates, one per length."""
    scope = evaluator.measured.scope
    rules = build_rules(evaluator.thresholds, scope, evaluator.panels)
    return tuple(
        _verdict(evaluator, rules, gate, length)
        for gate in evaluator.thresholds.gates
        if gate.kind == KIND
        for length in sorted({*lengths_of(gate, scope), *gate.lengths})
    )


def _cases(gate: Gate, scope: Scope, panel: Panel) -> frozenset[str]:
    """Return the ids of the gate's cases in the panel; empty unless all of its tasks are there."""
    if gate_family(gate, scope.task_families) != panel.family:
        return frozenset()
    tasks = set(tasks_of(gate, scope))
    cases = frozenset(case.id for case in panel.cases.values() if case.task in tasks and case.has_gold)
    return cases if len(cases) == len(tasks) else frozenset()


def _clusters_holding(queue: ClusteredQueue, samples: Sequence[SampleRef]) -> int:
    """Return the number of the queue's first clusters that hold all of the samples."""
    wanted = set(samples)
    return max(number for number, cluster in enumerate(queue.clusters, start=1) if wanted.intersection(cluster))


def _verdict(evaluator: GateEvaluator, rules: Mapping[PanelKey, LikelihoodRule], gate: Gate, length: int) -> Verdict:
    scope = evaluator.measured.scope
    tasks = tasks_of(gate, scope)
    cases = [case for case in scope.cases_at(length).values() if case.task in tasks]
    results = [evaluator.measured.results[case.id] for case in cases if case.id in evaluator.measured.results]
    assert gate.above is not None
    verdict = Verdict(
        name=verdict_name(gate, length),
        kind=KIND,
        length=length,
        measured=None,
        interval=None,
        confidence=None,
        required=gate.above,
        samples=0,
        of=sum(len(case.planned) for case in cases),
        verdict="not measured",
        blocking=gate.blocking,
        reason=f"likelihood: not all tasks run at {format_length(length)}",
    )
    if (problem := evaluator.problem(cases, results)) is not None:
        return replace(verdict, verdict="error", reason=problem)
    rule = rules.get((gate_family(gate, scope.task_families), length))
    gate_cases = _cases(gate, scope, rule.panel) if rule else frozenset()
    return verdict if rule is None or not gate_cases else _measured_verdict(evaluator, rule, gate, gate_cases, verdict)


def _measured_verdict(
    evaluator: GateEvaluator, rule: LikelihoodRule, gate: Gate, cases: frozenset[str], verdict: Verdict
) -> Verdict:
    all_known = evaluator.measured.likelihoods
    failed = evaluator.measured.failed
    whole, queue = rule.queue(failed), rule.panel.uniform_queue(cases)
    stop = rule.stop(all_known, failed)
    used = whole.refs if stop is None else whole.refs[: whole.sample_count(stop)]
    known = {ref: all_known[ref] for ref in used if ref in all_known and ref.case_id in cases}
    clusters = finished_clusters(queue, known)
    result = estimates(queue, known, clusters=clusters, alpha=2 * rule.alpha)
    if result is None:
        return replace(verdict, verdict="inconclusive", reason="likelihood: no sample was measured")
    estimate = _in_units(gate, result)
    word, comparison = _judged(gate, decide(gate, queue, known, rule.alpha), result)
    return replace(
        verdict,
        measured=None if estimate is None else estimate.mean,
        interval=None if estimate is None else (estimate.low, estimate.high),
        model_interval=None if estimate is None else (estimate.model_low, estimate.model_high),
        confidence=1 - 2 * rule.alpha if estimate else None,
        samples=result.samples,
        verdict=word,
        reason=f"likelihood: {comparison}{extent(result.samples, verdict.of)}",
    )


def _in_units(gate: Gate, result: LikelihoodEstimates) -> Estimate | None:
    """Return the gate's estimate: a gain in nats, a recovery in points."""
    if gate.measure == "gain" or result.recovery is None:
        return result.gain if gate.measure == "gain" else None
    recovery = result.recovery
    return Estimate(*map(to_points, astuple(recovery)))


def _judged(gate: Gate, decision: Decision | None, result: LikelihoodEstimates) -> tuple[VerdictWord, str]:
    """Return the verdict and its reason."""
    estimate = _in_units(gate, result)
    if estimate is None:
        return "inconclusive", "recovery is undefined, because the evidence alone gains less than 0.3 nats"
    value = f"gain {estimate.mean:.2f} nats" if gate.measure == "gain" else f"recovery {estimate.mean:.1f}"
    if decision is None:
        return "inconclusive", f"{value} is not yet told from {gate.above:g}"
    if decision.verdict == "fail":
        return "fail", f"{value} is not above {gate.above:g}"
    text, margin = f"{value} is above {gate.above:g}", result.margin
    if margin is None or margin.low > 0:
        return "pass", f"{text}{'' if margin else '; there are no distractors to compare with'}"
    if margin.high <= 0:
        return "fail", f"{text}, but distractors are at least as likely (gold - foil {margin.mean:+.2f} nats)"
    return "inconclusive", f"{text}, but gold - foil {margin.mean:+.2f} nats is not yet told from 0"
