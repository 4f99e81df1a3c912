"""Sequential tests on the finished part of a queue, and the part of the queue that the soonest verdict needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from plugins.gates.clusters import ClusteredQueue, SampleRef, first_precise_look, soonest_precise_look
from plugins.gates.e_process import Floats
from plugins.gates.haystacks import model_paired_evidence
from plugins.gates.phases import decide_sweeps
from plugins.gates.statistics import Decision, decide_level, decide_paired, first_decision, paired_evidence

# The most clusters offered to workers beyond the finished ones; a large run's workers hold fewer at a time.
MAX_CLUSTERS_AHEAD = 1024
# The soonest verdict is first sought within so many clusters: it is often that near, and looking far takes long.
NEAR_CLUSTERS_AHEAD = 128
# The same for an estimate, whose interval takes a millisecond or more at every look.
ESTIMATE_CLUSTERS_AHEAD = 256
# The clusters of phase sweeps offered to workers beyond the finished ones; each has a sample for every phase.
SWEEPS_AHEAD = 4
# The share of samples that may be started beyond those of the soonest verdict, so that no worker stands idle.
SPARE_SHARE = 0.05

Scores = Mapping[SampleRef, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """A hypothesis on the mean of some cases at one length: that it is above a threshold.

    Without a threshold it stands for an estimate: the mean is measured, and nothing is decided.
    """

    case_ids: frozenset[str]

    threshold: float | None
    """0 to 1; None for an estimate."""

    indifference_zone: float = 0.0
    """The distance from the threshold, 0 to 1, within which either verdict is accepted."""

    alpha: float = 0.01
    """The largest probability of a wrong verdict."""

    precision: float = 0.0
    """The half width (0 to 1) of the `ESTIMATE_ALPHA` interval at which an estimate ends; 0 for all samples."""

    drives_sampling: bool = True
    """True if samples are measured until this hypothesis is settled; False if it only reads what others need."""

    moduli: tuple[int, ...] = ()
    """For a hypothesis on the largest difference between phases, which the threshold bounds, the numbers modulo which
    positions are compared; empty for a hypothesis on the mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NonInferiority:
    """The hypothesis that a panel's mean has not fallen against a baseline, on pairs of samples."""

    drop: float
    """The loss, 0 to 1, that a pass rules out."""

    clear: float
    """The loss, 0 to 1, below `drop`, that a failure exceeds for certain."""

    alpha: float
    """The largest probability of a wrong verdict."""

    finite_population: bool = False
    """True if the means are those of the planned samples, False if they are those of the models behind them. Then a
    haystack is one observation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterimAnalysis:
    """The result of a sequential test on the finished part of a queue."""

    decision: Decision | None
    """The verdict; None while it is open, and always for an estimate."""

    samples: int
    """The number of samples behind the result, counted from the start of the queue."""

    planned_samples: int
    """The number of samples in the queue."""

    clusters: int
    """The number of clusters behind the result."""

    is_precise: bool = False
    """True if an estimate has reached its precision."""

    @property
    def is_settled(self) -> bool:
        """True once the verdict is final or the estimate precise, so that no further sample is needed."""
        return self.decision is not None or self.is_precise


def analyze(
    hypothesis: Hypothesis,
    queue: ClusteredQueue,
    scores: Scores,
    *,
    control_variate: Scores | None = None,
    full: bool = False,
) -> InterimAnalysis:
    """Test a hypothesis on the finished prefix of a queue.

    `control_variate` are the scores of a finished baseline; they sharpen the test if they cover the whole queue.
    With `full` a verdict waits for all samples.
    """
    if hypothesis.moduli:
        decision, clusters = decide_sweeps(hypothesis, queue, scores, full=full)
        return _analysis(decision, queue, clusters)
    means = queue.weighted_means(scores)
    decision = _decide_level(hypothesis, queue, means, control_variate, full=full)
    estimates = hypothesis.threshold is None and hypothesis.precision > 0 and not full
    precise_at = first_precise_look(means, queue, hypothesis.precision) if estimates else None
    clusters = precise_at or (len(means) if decision is None else decision.stopping_time)
    return _analysis(decision, queue, clusters, is_precise=precise_at is not None)


def analyze_pairs(
    hypothesis: NonInferiority, queue: ClusteredQueue, scores: Scores, baseline: Scores, *, full: bool = False
) -> InterimAnalysis:
    """Test non-inferiority on the prefix of a queue that both models have finished."""
    differences = queue.weighted_means({ref: scores[ref] - baseline[ref] for ref in scores.keys() & baseline})
    decision = decide_pairs(hypothesis, queue, differences)
    return _analysis(decision, queue, len(differences) if decision is None or full else decision.stopping_time)


def pair_evidence(hypothesis: NonInferiority, queue: ClusteredQueue, differences: Floats) -> tuple[Floats, Floats]:
    """Return the two log e-processes of a comparison, for "non-inferior" and "inferior", along the queue's clusters."""
    drop, clear = hypothesis.drop / queue.scale, hypothesis.clear / queue.scale
    if hypothesis.finite_population:
        return paired_evidence(differences, drop=drop, clear=clear, population=len(queue.clusters))
    return model_paired_evidence(differences, queue.haystacks, drop=drop, clear=clear)


def samples_until_verdict(
    hypothesis: Hypothesis,
    queue: ClusteredQueue,
    analysis: InterimAnalysis,
    scores: Scores,
    *,
    control_variate: Scores | None = None,
    full: bool = False,
) -> Sequence[SampleRef]:
    """Return the prefix of the queue that any verdict needs, plus `SPARE_SHARE`, for any missing scores.

    A score can only delay a verdict if it is not the best possible one for it. So no pass comes sooner than with ones
    for all missing scores, and no failure sooner than with zeros; the earlier of the two bounds the prefix.
    """
    if full or (hypothesis.threshold is None and not hypothesis.precision):
        return queue.refs
    if hypothesis.threshold is None:
        return _samples_until_estimate(hypothesis, queue, analysis, scores)
    if hypothesis.moduli:
        return _prefix(queue, analysis, None, max(queue.min_clusters, analysis.clusters + SWEEPS_AHEAD))
    finished = queue.weighted_means(scores, analysis.clusters)

    def decide(refs: Sequence[SampleRef], fill: float) -> Decision | None:
        means = _completed(queue, finished, {ref: scores.get(ref, fill) for ref in refs})
        return _decide_level(hypothesis, queue, means, control_variate)

    return _until_soonest(decide, queue, analysis)


def _samples_until_estimate(
    hypothesis: Hypothesis, queue: ClusteredQueue, analysis: InterimAnalysis, scores: Scores
) -> Sequence[SampleRef]:
    """Return the prefix of the queue after which the estimate is precise at the soonest, plus `SPARE_SHARE`.

    An interval narrows fastest over equal scores. The mean so far, 0 and 1 are tried; other values rarely end sooner.
    """
    limit = analysis.clusters + ESTIMATE_CLUSTERS_AHEAD
    finished = queue.weighted_means(scores, analysis.clusters)
    refs = _refs_between(queue, analysis.clusters, limit)
    mean_so_far = [min(1.0, queue.scale * float(finished.mean()))] if finished.size else []
    completions = [
        _completed(queue, finished, {ref: scores.get(ref, fill) for ref in refs}) for fill in (*mean_so_far, 0.0, 1.0)
    ]
    end = soonest_precise_look(completions, analysis.clusters, queue, hypothesis.precision)
    return _prefix(queue, analysis, end, limit)


def pairs_until_verdict(
    hypothesis: NonInferiority,
    queue: ClusteredQueue,
    analysis: InterimAnalysis,
    scores: Scores,
    baseline: Scores,
    *,
    full: bool = False,
) -> Sequence[SampleRef]:
    """Return the prefix of the queue that any verdict on pairs needs; see `samples_until_verdict`."""
    if full:
        return queue.refs
    finished = queue.weighted_means(
        {ref: scores[ref] - baseline[ref] for ref in _refs_between(queue, 0, analysis.clusters)}
    )

    def decide(refs: Sequence[SampleRef], fill: float) -> Decision | None:
        assumed = {ref: scores.get(ref, fill) - baseline.get(ref, 1 - fill) for ref in refs}
        return decide_pairs(hypothesis, queue, _completed(queue, finished, assumed))

    return _until_soonest(decide, queue, analysis)


def _decide_level(
    hypothesis: Hypothesis,
    queue: ClusteredQueue,
    means: Floats,
    control_variate: Scores | None,
    *,
    full: bool = False,
) -> Decision | None:
    population = len(queue.clusters)
    if hypothesis.threshold is None or not population:
        return None
    control_means = None if control_variate is None else queue.weighted_means(control_variate)
    return decide_level(
        means,
        hypothesis.threshold / queue.scale,
        alpha=hypothesis.alpha,
        population=population,
        indifference_zone=hypothesis.indifference_zone / queue.scale,
        # More than there are: then only the mean of all samples decides.
        min_observations=population + 1 if full else queue.min_clusters,
        control_variate=control_means if control_means is not None and len(control_means) == population else None,
        strata=queue.strata,
    )


def decide_pairs(hypothesis: NonInferiority, queue: ClusteredQueue, differences: Floats) -> Decision | None:
    """Return the verdict on the differences of the first clusters of a queue; None while it is open."""
    population = len(queue.clusters)
    min_observations = min(population, queue.min_clusters)
    if not hypothesis.finite_population or not population:
        non_inferior, inferior = pair_evidence(hypothesis, queue, differences)
        return first_decision(non_inferior, inferior, alpha=hypothesis.alpha, min_observations=min_observations)
    return decide_paired(
        differences,
        drop=hypothesis.drop / queue.scale,
        clear=hypothesis.clear / queue.scale,
        alpha=hypothesis.alpha,
        min_observations=min_observations,
        population=population,
    )


def _analysis(
    decision: Decision | None, queue: ClusteredQueue, clusters: int, *, is_precise: bool = False
) -> InterimAnalysis:
    return InterimAnalysis(
        decision=decision,
        samples=queue.sample_count(clusters),
        planned_samples=len(queue.refs),
        clusters=clusters,
        is_precise=is_precise,
    )


def _refs_between(queue: ClusteredQueue, start: int, stop: int) -> Sequence[SampleRef]:
    """Return the samples of the clusters from number `start` up to `stop`."""
    return queue.refs[queue.sample_count(start) : queue.sample_count(stop)]


def _completed(queue: ClusteredQueue, finished: Floats, assumed: Scores) -> Floats:
    """Return the means of the finished clusters and of those after them, whose scores are assumed."""
    return np.concatenate([finished, queue.weighted_means(assumed, start=len(finished))])


def _until_soonest(
    decide: Callable[[Sequence[SampleRef], float], Decision | None], queue: ClusteredQueue, analysis: InterimAnalysis
) -> Sequence[SampleRef]:
    """Return the prefix of the queue up to the earlier one of two decisions, plus `SPARE_SHARE`.

    `decide` gets the samples of the next clusters, and a score of 0 or 1 to assume for the missing ones.
    """
    for limit in (analysis.clusters + NEAR_CLUSTERS_AHEAD, analysis.clusters + MAX_CLUSTERS_AHEAD):
        refs = _refs_between(queue, analysis.clusters, limit)
        decisions = [decision for fill in (0.0, 1.0) if (decision := decide(refs, fill)) is not None]
        if decisions:
            return _prefix(queue, analysis, min(decision.stopping_time for decision in decisions), limit)
    return _prefix(queue, analysis, None, limit)


def _prefix(queue: ClusteredQueue, analysis: InterimAnalysis, end: int | None, limit: int) -> Sequence[SampleRef]:
    """Return the queue up to `end` clusters plus `SPARE_SHARE`, or up to `limit` clusters if there is no end."""
    if end is None:
        return queue.refs[: queue.sample_count(limit)]
    # Rounding differs with the length of an array, so a completion may decide on the finished clusters alone, which
    # the analysis itself did not. At least one more cluster is needed, or no worker would get a sample.
    needed = queue.sample_count(max(end, analysis.clusters + 1))
    return queue.refs[: needed + int(SPARE_SHARE * needed)]
