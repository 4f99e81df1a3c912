"""Sequential tests on a queue: the results so far, the samples that the soonest verdict needs, and their power."""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from longctx.plugins.evidence.clusters import (
    MIN_CLUSTERS,
    MIN_CLUSTERS_ONE_CASE,
    ClusteredQueue,
    SampleRef,
    UnitSums,
    first_precise_look,
)
from longctx.plugins.evidence.e_process import TIE_TOLERANCE, Floats, Strata
from longctx.plugins.evidence.haystacks import level_p_values
from longctx.plugins.evidence.sign_flips import FEWEST_UNITS, loss_p_value
from longctx.plugins.evidence.statistics import Decision, decide_level, first_decision, paired_evidence

# The most clusters offered to workers beyond the finished ones; a large run's workers hold fewer at a time.
MAX_CLUSTERS_AHEAD = 1024
# The same for an estimate, whose interval takes a millisecond or more at every look.
ESTIMATE_CLUSTERS_AHEAD = 64
# The share of samples that may be started beyond those of the soonest verdict, so that no worker stands idle.
SPARE_SHARE = 0.05
# The model is tested after these shares of all pairs or samples, which share a part of the probability of error.
LOOKS = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)
EARLY_SHARE_OF_LOSS, EARLY_SHARE_OF_MEAN = 0.5, 0.2
# The loss on a panel whose p-value is larger is left to the samples; else all panels of the run are tested together.
DOUBTFUL_P_VALUE = 0.1

# A loss counts as detectable if it is shown with this probability; the second number is the normal quantile of it.
POWER, POWER_QUANTILE = 0.8, 0.8416

Scores = Mapping[SampleRef, float]
OfModel = Literal["above", "near", "below"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorShares:
    """The probabilities of error that the tests of a failure may use, so that it holds for the model."""

    early: float
    """For a failure at each look before all samples are known; 0 where nobody looked before."""
    complete: float
    """For a failure by the test of all samples."""
    pooled: "ErrorShares | None" = None
    """For failures by the pairs of all panels of the run together; None for a single panel."""

    @classmethod
    def of_mean(
        cls, error: float, *, is_finished: bool = False, early_share: float = EARLY_SHARE_OF_MEAN
    ) -> "ErrorShares":
        early = 0.0 if is_finished else early_share * error
        return cls(early=early / len(LOOKS), complete=error - early)

    @classmethod
    def of_run(cls, error: float, panels: int, *, is_finished: bool = False) -> "ErrorShares":
        """Share the error probability of a comparison out to its panels and their looks (Bonferroni).

        Half of it belongs to the tests of all panels together, if there are several.
        """

        def of(part: float) -> ErrorShares:
            return cls.of_mean(part, is_finished=is_finished, early_share=EARLY_SHARE_OF_LOSS)

        return of(error) if panels < 2 else replace(of(error / (2 * panels)), pooled=of(error / 2))

    def at(self, share: float) -> float:
        """Return the probability of error of the look at this share of all pairs."""
        return self.early if share < 1 else self.complete


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
    confirmation: ErrorShares | None = None
    """What a mean of the planned samples that is not above the threshold takes to be a failure; None if it is one by
    itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NonInferiority:
    """The hypothesis that a panel's mean has not fallen against a baseline, on pairs of samples."""

    drop: float
    """The loss, 0 to 1, that a pass rules out."""
    alpha: float
    """The largest probability of a wrong failure."""
    relative_drop: float = 0.0
    """A share of the baseline's mean, 0 to 1, that is added to the loss."""
    pass_alpha: float | None = None
    """The largest probability of a wrong pass; None for that of a failure. A run passes if all its panels do, so no
    share of its error has to be given to each (intersection-union test)."""
    confirmation: ErrorShares | None = None
    """What a loss on the planned samples takes to be a failure; None if it is one by itself."""

    def allowed(self, baseline: float) -> float:
        """Return the loss, 0 to 1, that a pass rules out, given the mean of the baseline."""
        return self.drop + self.relative_drop * baseline

    def limit(self, baseline: float) -> float:
        """Return the loss on all planned samples, 0 to 1, from which on it is too large."""
        return 0.75 * self.allowed(baseline)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """The first pairs of a queue: the samples that both models have answered, up to one that lacks a score."""

    queue: ClusteredQueue
    differences: Floats
    """The weighted mean difference, model - baseline, of each cluster."""
    baseline: Floats
    """The weighted mean score of the baseline on each cluster."""
    changes: Floats
    """The weighted mean of |model - baseline| on each cluster."""

    @classmethod
    def of(cls, queue: ClusteredQueue, scores: Scores, baseline: Scores) -> "Pairs":
        """Return the pairs that the scores of both models make."""
        changed = {ref: score - baseline[ref] for ref, score in scores.items() if ref in baseline}
        sizes = {ref: abs(difference) for ref, difference in changed.items()}
        differences = queue.weighted_means(changed)
        return cls(
            queue=queue,
            differences=differences,
            baseline=queue.weighted_means(baseline, len(differences)),
            changes=queue.weighted_means(sizes),
        )

    def __len__(self) -> int:
        return len(self.differences)

    def first(self, clusters: int) -> "Pairs":
        return replace(
            self,
            differences=self.differences[:clusters],
            baseline=self.baseline[:clusters],
            changes=self.changes[:clusters],
        )

    @property
    def loss(self) -> float:
        """The mean loss, 0 to 1; negative for a gain."""
        return -self.queue.mean_difference(self.differences)

    @property
    def baseline_mean(self) -> float:
        """The baseline's mean, 0 to 1; 0 without a pair."""
        return self.queue.mean_difference(self.baseline) if len(self) else 0.0


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
    is_settled: bool = False
    """True once the verdict is final or the estimate precise, so that no further sample is needed."""
    of_model: OfModel | None = None
    """What the samples show of the model's mean: above or below the threshold, or, if they are all planned ones,
    neither."""
    p_value: float | None = None
    """For a comparison that has lost too much on all its pairs, or failed before: the probability that an unchanged
    model loses as much."""
    doubts: tuple[float, ...] = ()
    """The looks, as shares of all pairs, at which an open comparison has lost more than most unchanged models do. All
    panels together may show it for the model."""


def analyze(hypothesis: Hypothesis, queue: ClusteredQueue, scores: Scores, *, full: bool = False) -> InterimAnalysis:
    """Test a hypothesis on the finished prefix of a queue. With `full` a verdict waits for all samples."""
    means = queue.weighted_means(scores)
    decision = _decide_level(hypothesis, queue, means, full=full)
    estimates = hypothesis.threshold is None and hypothesis.precision > 0 and not full
    precise_at = first_precise_look(means, queue, hypothesis.precision) if estimates else None
    clusters = precise_at or (len(means) if decision is None else decision.stopping_time)
    of_model = _of_model(hypothesis, queue, means[:clusters])
    if decision is not None and decision.verdict == "fail" and hypothesis.confirmation is not None:
        of_model = "below"
    return InterimAnalysis(
        decision=decision, samples=queue.sample_count(clusters), planned_samples=len(queue.refs), clusters=clusters,
        is_settled=decision is not None or precise_at is not None, of_model=of_model,
    )  # fmt: skip


def _shown_below(hypothesis: Hypothesis, queue: ClusteredQueue, means: Floats, first: int) -> int | None:
    """Return the number of clusters, at least `first`, at the first look that shows the model below its threshold."""
    confirmation, threshold = hypothesis.confirmation, hypothesis.threshold
    if confirmation is None or threshold is None:
        return None
    for share in LOOKS:
        clusters = look_clusters(queue, share)
        if first <= clusters <= len(means):
            p_values = level_p_values(queue.case_strata(means[:clusters]), threshold)
            if p_values is not None and p_values[1] <= confirmation.early:
                return clusters
    return None


def _of_model(hypothesis: Hypothesis, queue: ClusteredQueue, means: Floats) -> OfModel | None:
    """Return what all planned samples show of the model's mean; None if not all are known, and for an estimate."""
    if hypothesis.threshold is None or not len(means) or len(means) < len(queue.clusters):
        return None
    confirmation = hypothesis.confirmation
    alpha = hypothesis.alpha if confirmation is None else confirmation.complete
    p_values = level_p_values(queue.case_strata(means), hypothesis.threshold)
    if p_values is None or min(p_values) > alpha:
        return "near"
    return "above" if p_values[0] <= alpha else "below"


def analyze_pairs(
    hypothesis: NonInferiority, known: Pairs, *, least_share: float = 0.0, most: int | None = None
) -> InterimAnalysis:
    """Test non-inferiority on the prefix of a queue that both models have finished.

    `least_share` is the share of all pairs that the result rests on even if fewer decide. `most` is the number of
    clusters that can be compared at all, by default all of the queue.
    """
    queue, clusters = known.queue, len(known)
    available = len(queue.clusters) if most is None else min(most, len(queue.clusters))
    decision, looks = _test_pairs(hypothesis, known)
    confirmation, p_value = hypothesis.confirmation, None
    if decision is not None and decision.verdict == "fail" and looks:
        p_value = looks[-1].p_value
    is_complete = decision is None and clusters == available > 0
    if confirmation is not None and is_complete and _has_lost_too_much(hypothesis, known):
        last = _look(known, 1.0, clusters)
        looks.append(last)
        p_value = last.p_value
        if p_value <= confirmation.complete:
            decision = Decision(verdict="fail", stopping_time=clusters)
    doubts = tuple(look.share for look in looks if look.p_value <= DOUBTFUL_P_VALUE)
    least = min(clusters, look_clusters(queue, least_share))
    stop = clusters if decision is None else max(decision.stopping_time, least)
    return InterimAnalysis(
        decision=decision, samples=queue.sample_count(stop), planned_samples=len(queue.refs), clusters=stop,
        is_settled=decision is not None, p_value=p_value, doubts=doubts,
    )  # fmt: skip


def kept_shares(scores: Scores, baseline: Scores) -> dict[SampleRef, float]:
    """Return by pair how much of the score is as the baseline's: 1 if they are equal, 0 if one is 1 and the other 0."""
    return {ref: 1 - abs(scores[ref] - baseline[ref]) for ref in scores.keys() & baseline}


class _Look(NamedTuple):
    """A look at the first pairs of a panel, which have lost too much."""

    share: float
    clusters: int
    p_value: float


def look_clusters(queue: ClusteredQueue, share: float) -> int:
    """Return the number of clusters after which a look at this share of all pairs is due."""
    return math.ceil(share * len(queue.clusters))


def _look(pairs: Pairs, share: float, clusters: int) -> _Look:
    seen = pairs.first(clusters)
    return _Look(share, clusters, _p_value((pairs.queue, seen.differences.tobytes())))


def _looks(hypothesis: NonInferiority, pairs: Pairs) -> Iterator[_Look]:
    """Yield the looks before all pairs are known at which the first clusters have lost too much."""
    # The test is exact for any number of pairs; a panel is judged by pairs of all its cases.
    queue, confirmation = pairs.queue, hypothesis.confirmation
    least = max(queue.covering_clusters, MIN_CLUSTERS_ONE_CASE)
    for share in LOOKS if confirmation is not None and confirmation.early else ():
        clusters = look_clusters(queue, share)
        if least <= clusters <= len(pairs) and _has_lost_too_much(hypothesis, pairs.first(clusters)):
            yield _look(pairs, share, clusters)


def _has_lost_too_much(hypothesis: NonInferiority, pairs: Pairs) -> bool:
    # A baseline of 0 allows no loss, and has nothing to lose.
    return pairs.loss >= max(TIE_TOLERANCE, hypothesis.limit(pairs.baseline_mean) - TIE_TOLERANCE)


@lru_cache(maxsize=1024)
def _p_value(*panels: tuple[ClusteredQueue, bytes]) -> float:
    """Return the probability that an unchanged model loses as much on the first clusters of all panels together.

    A panel has its queue and the differences. Workers look at the same pairs again and again.
    """
    sums: UnitSums = defaultdict(float)
    largest: UnitSums = defaultdict(float)
    for queue, differences in panels:
        queue.add_unit_sums(np.frombuffer(differences), sums, largest)
    return loss_p_value(np.array(list(sums.values())), np.array(list(largest.values())))


def pooled_p_value(compared: Iterable[tuple[NonInferiority, Pairs]]) -> float | None:
    """Return the probability that an unchanged model loses as much on the first pairs of all panels together.

    A panel has its hypothesis and these pairs. Returns None if the mean of the panels' losses is allowed.
    """
    lost, panels = 0.0, []
    for hypothesis, pairs in compared:
        if len(pairs):
            lost += pairs.loss - hypothesis.limit(pairs.baseline_mean)
            panels.append((pairs.queue, pairs.differences.tobytes()))
    return None if lost < -TIE_TOLERANCE else _p_value(*panels)


def samples_until_verdict(
    hypothesis: Hypothesis, queue: ClusteredQueue, analysis: InterimAnalysis, scores: Scores, *, full: bool = False
) -> Sequence[SampleRef]:
    """Return the prefix of the queue that any verdict needs, plus `SPARE_SHARE`, for any missing scores.

    A score can only delay a verdict if it is not the best possible one for it. So no pass comes sooner than with ones
    for all missing scores, and no failure sooner than with zeros; the earlier of the two bounds the prefix.
    """
    if full or (hypothesis.threshold is None and not hypothesis.precision):
        return queue.refs

    def stop(refs: Sequence[SampleRef], fill: float) -> int | None:
        means = queue.weighted_means({ref: scores.get(ref, fill) for ref in refs})
        if hypothesis.threshold is None:
            return first_precise_look(means, queue, hypothesis.precision, after=analysis.clusters)
        return _stopping_time(_decide_level(hypothesis, queue, means))

    # An interval narrows fast over equal scores.
    ahead = ESTIMATE_CLUSTERS_AHEAD if hypothesis.threshold is None else MAX_CLUSTERS_AHEAD
    return _until_soonest(stop, queue, analysis, ahead=ahead)


def pairs_until_verdict(
    hypothesis: NonInferiority, queue: ClusteredQueue, analysis: InterimAnalysis, scores: Scores, baseline: Scores
) -> Sequence[SampleRef]:
    """Return the prefix of the queue that any verdict on pairs needs; see `samples_until_verdict`."""

    def stop(refs: Sequence[SampleRef], fill: float) -> int | None:
        assumed = {ref: scores.get(ref, fill) for ref in refs}
        of_baseline = {ref: baseline.get(ref, 1 - fill) for ref in refs}
        decision, _ = _test_pairs(hypothesis, Pairs.of(queue, assumed, of_baseline))
        return _stopping_time(decision)

    return _until_soonest(stop, queue, analysis)


def _stopping_time(decision: Decision | None) -> int | None:
    return None if decision is None else decision.stopping_time


def _decide_level(
    hypothesis: Hypothesis, queue: ClusteredQueue, means: Floats, *, full: bool = False
) -> Decision | None:
    population = len(queue.clusters)
    if hypothesis.threshold is None or not population:
        return None
    decision = decide_level(
        means,
        hypothesis.threshold / queue.scale,
        queue.strata,
        alpha=hypothesis.alpha,
        indifference_zone=hypothesis.indifference_zone / queue.scale,
        # More than there are: then only the mean of all samples decides.
        min_observations=population + 1 if full else queue.min_clusters,
    )
    if hypothesis.confirmation is None or decision is None or decision.verdict == "pass":
        return decision
    shown_at = _shown_below(hypothesis, queue, means, decision.stopping_time)
    if shown_at is not None:
        return Decision(verdict="fail", stopping_time=shown_at)
    # Undecided until all samples are known, and neither passed nor failed then unless the model is shown to be below.
    is_below = _of_model(hypothesis, queue, means) == "below"
    return Decision(verdict="fail", stopping_time=population) if is_below else None


def _test_pairs(hypothesis: NonInferiority, pairs: Pairs) -> tuple[Decision | None, list[_Look]]:
    """Return the verdict on the first pairs of a queue, None while it is open, and the looks that it took.

    A loss on the planned samples that has to be confirmed stays open until it is shown for the model.
    """
    queue, population = pairs.queue, len(pairs.queue.clusters)
    if not population:
        return None, []
    # A loss of a share of the baseline's score is no loss against the rest of that score.
    evidence = paired_evidence(
        pairs.differences + hypothesis.relative_drop * pairs.baseline,
        queue.drawn_strata,
        drop=hypothesis.drop / queue.scale,
    )
    decision = first_decision(
        evidence,
        alpha=hypothesis.alpha,
        pass_alpha=hypothesis.pass_alpha,
        min_observations=min(population, queue.min_clusters),
    )
    if decision is None and len(pairs) == population:
        has_lost = _has_lost_too_much(hypothesis, pairs)
        decision = Decision(verdict="fail" if has_lost else "pass", stopping_time=population)
    if hypothesis.confirmation is None:
        return decision, []
    passes = decision is not None and decision.verdict == "pass"
    looks = []
    for look in _looks(hypothesis, pairs.first(decision.stopping_time) if decision and passes else pairs):
        looks.append(look)
        if look.p_value <= hypothesis.confirmation.early:
            return Decision(verdict="fail", stopping_time=look.clusters), looks
    if passes:
        return decision, looks
    if len(pairs) == population and not _has_lost_too_much(hypothesis, pairs):
        return Decision(verdict="pass", stopping_time=population), looks
    return None, looks


def _until_soonest(
    stop: Callable[[Sequence[SampleRef], float], int | None],
    queue: ClusteredQueue,
    analysis: InterimAnalysis,
    *,
    ahead: int = MAX_CLUSTERS_AHEAD,
) -> Sequence[SampleRef]:
    """Return the prefix of the queue up to the earliest end plus `SPARE_SHARE`, or `ahead` clusters without an end.

    `stop` gets the samples up to there and a score to assume for the missing ones, and returns the number of clusters
    after which nothing more is needed.
    """
    refs, finished = queue.refs, analysis.clusters
    limit = queue.sample_count(finished + ahead)
    ends = []
    for fill in (0.0, 1.0):
        end = stop(refs[:limit], fill)
        if end is not None:
            ends.append(end)
    if not ends:
        return refs[:limit]
    # Were the end among the finished clusters by rounding, no worker would get a sample.
    needed = queue.sample_count(max(min(ends), finished + 1))
    return refs[: needed + int(SPARE_SHARE * needed)]


def detectable_panel_loss(hypothesis: NonInferiority, queue: ClusteredQueue, pairs: int) -> float | None:
    """Return the smallest loss of a panel's mean, 0 to 1, that fails with probability `POWER` on so many clusters.

    The loss is one-way: all clusters with another score than the baseline's are worse. Flips in both directions make
    the detectable loss larger. Returns None if no loss can be shown.
    """
    return _panel_loss(hypothesis, pairs, len(queue.clusters), queue.unit_count(pairs))


@lru_cache(maxsize=1024)
def _panel_loss(hypothesis: NonInferiority, pairs: int, population: int, units: int) -> float | None:
    def is_failed(worse: int) -> bool:
        return _fails(hypothesis, worse, pairs, population) and _is_confirmed(hypothesis, worse, pairs, units)

    if not pairs or not is_failed(pairs):
        return None
    least = 1 + bisect_left(range(1, pairs), True, key=is_failed)
    # The number of worse pairs is assumed to be normal.
    share, unknown = least / pairs, 1 - pairs / population
    deviation = math.sqrt(least * (1 - share) * unknown)
    return min(1.0, (least + POWER_QUANTILE * deviation) / pairs)


def _fails(hypothesis: NonInferiority, worse: int, pairs: int, population: int) -> bool:
    """Return True if so many worse pairs, at equal distances, are too large a loss of the planned samples."""
    drop = hypothesis.allowed(1.0)
    places = np.arange(pairs + 1) * worse // pairs
    evidence = paired_evidence(-np.diff(places).astype(np.float64), Strata.single(population), drop=drop)
    decision = first_decision(evidence, alpha=hypothesis.alpha, min_observations=min(pairs, MIN_CLUSTERS))
    if decision is not None:
        return decision.verdict == "fail"
    # With all pairs at hand, three quarters of the drop are a failure.
    return pairs == population and worse >= population * (0.75 * drop - TIE_TOLERANCE)


def _is_confirmed(hypothesis: NonInferiority, worse: int, pairs: int, units: int) -> bool:
    """Return True if so many worse pairs, spread over haystacks of one size, show a loss of the model."""
    if hypothesis.confirmation is None:
        return True
    lost = np.bincount(np.arange(worse) % units, minlength=units).astype(np.float64)
    return loss_p_value(-lost, np.full(units, pairs / units)) <= hypothesis.confirmation.complete


def fewest_units(confirmation: ErrorShares) -> int:
    """Return the number of haystacks on which a loss on each of them can be shown for the model."""
    return max(FEWEST_UNITS, math.ceil(-math.log2(confirmation.complete)))


def can_rule_out(hypothesis: NonInferiority, queue: ClusteredQueue, pairs: int) -> bool:
    """Return True if equal scores on so many clusters rule out the loss that the hypothesis is about."""
    ones = dict.fromkeys(queue.refs, 1.0)
    decision, _ = _test_pairs(hypothesis, Pairs.of(queue, ones, ones).first(pairs))
    return decision is not None and decision.verdict == "pass"
