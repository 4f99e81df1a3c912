"""A panel: the cases of one family at one length, the hypotheses about them, and the samples to measure next.

All samples of a panel form one queue in a random order, the same on every machine. Evidence is read from the
start of the queue up to the first unfinished sample, never in the order of completion: samples that finish early are
not a random choice of all. Samples that share a context stay together in the queue and form one cluster of evidence.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from types import MappingProxyType
from typing import Literal

from longctx.fixtures.records import Case
from longctx.fixtures.seeding import stable_hash
from longctx.plugins.evidence.clusters import ClusteredQueue, SampleRef
from longctx.plugins.evidence.sequential import (
    MAX_CLUSTERS_AHEAD,
    Hypothesis,
    InterimAnalysis,
    NonInferiority,
    Pairs,
    Scores,
    analyze,
    analyze_pairs,
    kept_shares,
    look_clusters,
    pairs_until_verdict,
    samples_until_verdict,
)

# Where models are loaded in turn, as many times the pairs of the soonest verdict are measured.
TURN_FACTOR = 2
ModelRole = Literal["model", "baseline"]
NextSamples = tuple[tuple[ModelRole, SampleRef], ...]
"""Samples to measure, each with the model that has to answer it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A comparison of some cases of a panel with the baseline."""

    hypothesis: NonInferiority | Hypothesis
    """That the mean has not fallen; or, on how much of each score is kept, that it is above a threshold."""
    gate: str = ""
    """The name of the gate that asks for it; empty for the comparison of all cases, which every run makes."""
    case_ids: frozenset[str] | None = None
    """The cases that it is about; None for all of the panel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelStatus:
    """The state of a panel's tests, and the samples that its open verdicts need next."""

    evidence_counts: Mapping[str, int]
    """By case id, the number of samples behind the tests, from the start of the case's part of the queue."""
    paired_counts: Mapping[str, int]
    """By case id, how many of these samples were compared with the baseline."""
    next_samples: NextSamples
    """The samples to measure next, in queue order.

    They are those that the soonest possible verdicts need and hardly more, so that many workers together do the work
    of one. The tuple is empty once all verdicts are final.
    """
    analyses: Mapping[Hypothesis, InterimAnalysis]
    """The tests of the hypotheses that drive sampling."""
    comparisons: Mapping[Comparison, InterimAnalysis]
    """The tests against the baseline; empty without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLook:
    """The next look at the pairs of all panels together, as one comparison of a panel sees it."""

    share: float = 0.0
    """The share of its pairs that the look needs."""
    waits: bool = False
    """True if the panel's own pairs wait until the other panels have theirs."""
    has_failed: bool = False
    """True if the last look has shown a loss on this panel."""


NO_LOOK = SharedLook()


class Panel:
    """The cases of one family at one length, and the hypotheses about them."""

    def __init__(
        self,
        family: str,
        length: int,
        cases: Sequence[Case],
        *,
        seed: int,
        hypotheses: Iterable[Hypothesis],
        comparisons: Iterable[Comparison] = (),
        full: bool = False,
        is_in_turn: bool = False,
    ):
        self.family = family
        self.length = length
        self.cases = {case.id: case for case in cases}
        self.hypotheses = tuple(hypotheses)
        self.comparisons = tuple(comparisons)
        self.full = full
        self.is_in_turn = is_in_turn
        self._seed = seed
        self._queues: dict[tuple[frozenset[str], bool], ClusteredQueue] = {}

    @cached_property
    def order(self) -> tuple[SampleRef, ...]:
        """All samples in queue order. Leaving out a case or adding samples never reorders the others.

        Clusters arrive independently, at the rates of their cases. So they are drawn without replacement, with
        probabilities proportional to these rates, and given the rates the order depends on identities alone.
        """
        return self._sorted(_rates_by_weight(self.cases.values()))

    @cached_property
    def _uniform_order(self) -> tuple[SampleRef, ...]:
        return self._sorted({})

    def _sorted(self, rates: Mapping[str, float]) -> tuple[SampleRef, ...]:
        """Return all samples by the arrival of their clusters, at these rates by case id, else at 1."""
        ranked = []
        for case in self.cases.values():
            rate = rates.get(case.id, 1.0)
            task = case.samples_of or case.task
            for index in case.planned:
                # A uniformly random number, the same for a cluster that two tasks share.
                number = stable_hash("queue", self._seed, task, case.length, index // case.group)
                arrival = -math.log((2**64 - number) / 2**64) / rate
                ranked.append((arrival, number, SampleRef(case.id, index)))
        return tuple(ref for *_, ref in sorted(ranked))

    def haystack(self, ref: SampleRef) -> tuple[str, int]:
        return ref.case_id, self.cases[ref.case_id].haystack(ref.sample_index)

    def queue(self, case_ids: Collection[str], *, is_uniform: bool = False) -> ClusteredQueue:
        """Return the samples of some cases by clusters, for likelihoods in a uniformly random order.

        In each case both orders are the same.
        """
        chosen = frozenset(case_ids)
        if (chosen, is_uniform) not in self._queues:
            order = self._uniform_order if is_uniform else self.order
            refs = [ref for ref in order if ref.case_id in chosen]
            self._queues[chosen, is_uniform] = ClusteredQueue(refs, self.cases, is_uniform=is_uniform)
        return self._queues[chosen, is_uniform]

    def analyze(self, hypothesis: Hypothesis, scores: Scores, *, failed: Collection[str] = ()) -> InterimAnalysis:
        """Test a hypothesis on its cases without the failed ones, so that an error does not hold up the others."""
        queue = self.queue(hypothesis.case_ids.difference(failed))
        return analyze(hypothesis, queue, scores, full=self.full)

    def analyze_pairs(
        self,
        comparison: Comparison,
        scores: Scores,
        baseline: Scores,
        *,
        final_baseline: Scores | None = None,
        failed: Collection[str] = (),
        least_share: float = 0.0,
    ) -> InterimAnalysis:
        """Test a comparison on its cases without the failed ones; the result rests on `least_share` of all pairs.

        A `final_baseline` is all that there will be of the baseline.
        """
        queue, hypothesis = self.paired_queue(comparison, failed), comparison.hypothesis
        if isinstance(hypothesis, Hypothesis):
            return analyze(hypothesis, queue, kept_shares(scores, baseline), full=self.full)
        most = None if final_baseline is None else len(queue.weighted_means(final_baseline))
        least_share = 1.0 if self.full else least_share
        return analyze_pairs(hypothesis, Pairs.of(queue, scores, baseline), least_share=least_share, most=most)

    def paired_queue(self, comparison: Comparison, failed: Collection[str] = ()) -> ClusteredQueue:
        case_ids = frozenset(self.cases) if comparison.case_ids is None else comparison.case_ids
        return self.queue(case_ids.difference(failed))

    def status(
        self,
        scores: Scores,
        *,
        baseline: Scores | None = None,
        final_baseline: Scores | None = None,
        failed: Collection[str] = (),
        looks: Mapping[Comparison, SharedLook] = MappingProxyType({}),
    ) -> PanelStatus:
        """Return the state of the tests and the samples to measure next.

        `baseline` is None in a run without one. A baseline whose scores are also the `final_baseline` is finished:
        the samples it lacks will never be measured, so the pairs end before the first of them. `looks` say which pairs
        a loss on another panel needs.
        """
        compared: dict[Comparison, InterimAnalysis] = {}
        pairs: set[SampleRef] = set()
        paired_counts = Counter[str]()
        others = baseline or {}
        for comparison in () if baseline is None else self.comparisons:
            look, queue = looks.get(comparison, NO_LOOK), self.paired_queue(comparison, failed)
            analysis = compared[comparison] = self.analyze_pairs(
                comparison, scores, others, final_baseline=final_baseline, failed=failed, least_share=look.share
            )
            paired_counts |= _case_counts(queue, analysis)
            needed = queue.sample_count(look_clusters(queue, 1 if self.full else look.share))
            if analysis.decision is None and not (self.full or look.waits or look.has_failed):
                needed = max(needed, self._samples_of_pairs(comparison.hypothesis, queue, analysis, scores, others))
            refs = queue.refs[:needed]
            pairs.update(refs if final_baseline is None else takewhile(final_baseline.__contains__, refs))
        analyses: dict[Hypothesis, InterimAnalysis] = {}
        wanted, evidence_counts = set(pairs), Counter(paired_counts)
        for hypothesis in self.hypotheses:
            if not hypothesis.drives_sampling:
                continue
            queue = self.queue(hypothesis.case_ids.difference(failed))
            analysis = analyses[hypothesis] = analyze(hypothesis, queue, scores, full=self.full)
            evidence_counts |= _case_counts(queue, analysis)
            # Where all planned samples are known, a verdict that is open stays so.
            if not analysis.is_settled and analysis.samples < len(queue.refs):
                wanted.update(samples_until_verdict(hypothesis, queue, analysis, scores, full=self.full))
        return PanelStatus(
            evidence_counts=evidence_counts,
            paired_counts=paired_counts,
            next_samples=self._in_order(wanted.difference(scores), pairs.difference(others)),
            analyses=analyses,
            comparisons=compared,
        )

    def _samples_of_pairs(
        self,
        hypothesis: NonInferiority | Hypothesis,
        queue: ClusteredQueue,
        analysis: InterimAnalysis,
        scores: Scores,
        baseline: Scores,
    ) -> int:
        if isinstance(hypothesis, Hypothesis):
            refs = samples_until_verdict(hypothesis, queue, analysis, kept_shares(scores, baseline))
        else:
            refs = pairs_until_verdict(hypothesis, queue, analysis, scores, baseline)
        # Loading a model again takes longer than the samples that a verdict may turn out not to need.
        return TURN_FACTOR * len(refs) if self.is_in_turn else len(refs)

    def _in_order(self, of_model: Collection[SampleRef], of_baseline: Collection[SampleRef]) -> NextSamples:
        """Return the first of the missing samples in queue order, the model's before the baseline's."""
        needed: list[tuple[ModelRole, SampleRef]] = []
        for ref in self.order if of_model or of_baseline else ():
            if ref in of_model:
                needed.append(("model", ref))
            if ref in of_baseline:
                needed.append(("baseline", ref))
            if len(needed) >= MAX_CLUSTERS_AHEAD:
                break
        return tuple(needed[:MAX_CLUSTERS_AHEAD])


def _case_counts(queue: ClusteredQueue, analysis: InterimAnalysis) -> Counter[str]:
    return Counter(ref.case_id for ref in queue.refs[: analysis.samples])


def _rates_by_weight(cases: Collection[Case]) -> dict[str, float]:
    """Return rates that draw all cases of a panel equally often at first: 1 where they have equally many clusters.

    A panel's mean is that of its cases' means. In a uniformly random order, most draws are of the cases with the most
    clusters, each of which weighs little.
    """
    clusters = {}
    for case in cases:
        groups = {index // case.group for index in case.planned}
        if groups:
            clusters[case.id] = len(groups)
    smallest = min(clusters.values(), default=0)
    return {case_id: smallest / count for case_id, count in clusters.items()}
