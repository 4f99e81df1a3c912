"""Estimates from the likelihoods of gold answers, with confidence sequences over clusters of samples.

All values are in nats per gold token. `gain` is the loss without the context less the loss with it. `recovery` is the
sum of the gains over the sum of what the evidence alone would gain: a ratio of sums, never a mean of ratios. `margin`
is the loss of a foil, a distractor's value, less that of the gold answer.

Values are clipped, because a confidence sequence needs bounds: losses at `NLL_CLIP`, differences at `DIFFERENCE_CLIP`
on both sides. A mean is that of the clipped values, so it lies in its interval.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

from longctx.fixtures.records import Likelihood
from longctx.fixtures.records.report_parts import CaseLikelihood, Interval, LikelihoodChanges, MeanEstimate
from longctx.plugins.evidence.clusters import ClusteredQueue, SampleRef
from longctx.plugins.evidence.e_process import Floats, LevelBets, Strata
from longctx.plugins.evidence.haystacks import Ints, mean_interval, model_mean
from longctx.plugins.evidence.points import to_points
from longctx.plugins.evidence.statistics import stratified_interval

NLL_CLIP = 10.0
DIFFERENCE_CLIP = 5.0
# Recovery divides by what the evidence gains; below this lower bound, in nats, the quotient means nothing.
LEAST_EVIDENCE_GAIN = 0.3
# The range of a recovery's interval. Above 1 the context helps more than the evidence alone.
RECOVERY_RANGE = (-1.0, 2.0)
BISECTIONS = 16

Likelihoods = Mapping[SampleRef, Likelihood]
Value = Callable[[Likelihood], float]


def gain_of(item: Likelihood) -> float:
    return item.query.nll - item.full.nll


def evidence_gain_of(item: Likelihood) -> float:
    return item.query.nll - item.evidence.nll


def _gain_after_first(item: Likelihood) -> float:
    return item.query.nll_after_first - item.full.nll_after_first


def finished_clusters(queue: ClusteredQueue, known: Likelihoods) -> int:
    return len(queue.weighted_means(dict.fromkeys(known, 0.0)))


def difference_means(queue: ClusteredQueue, known: Likelihoods, value: Value, stop: int | None = None) -> Floats:
    """Return the weighted means of the first clusters' differences, clipped and divided by the clip: -1 to 1."""
    shares = {ref: _share(value(item)) for ref, item in known.items()}
    return queue.weighted_means(shares, stop)


def estimates(queue: ClusteredQueue, known: Likelihoods, *, alpha: float) -> CaseLikelihood | None:
    """Return the estimates from the finished clusters at the start of a queue; None without any.

    Each interval misses its mean with probability `alpha` at most.
    """
    clusters = finished_clusters(queue, known)
    if not clusters:
        return None
    used = {ref: known[ref] for ref in queue.refs[: queue.sample_count(clusters)]}

    def loss(value: Value) -> MeanEstimate:
        shares = {ref: min(value(item), NLL_CLIP) / NLL_CLIP for ref, item in used.items()}
        return _estimate(queue, shares, alpha, NLL_CLIP)

    greedy = {ref: float(item.full.is_greedy) for ref, item in used.items()}
    gains = difference_means(queue, used, gain_of)
    gains_after_first = difference_means(queue, used, _gain_after_first)
    return CaseLikelihood(
        samples=len(used),
        planned=len(queue.refs),
        clipped=sum(map(_is_clipped, used.values())),
        nll=loss(lambda item: item.full.nll),
        nll_after_first=loss(lambda item: item.full.nll_after_first),
        query=loss(lambda item: item.query.nll),
        evidence=loss(lambda item: item.evidence.nll),
        gain=_panel_difference(queue, gains, alpha),
        gain_after_first=_panel_difference(queue, gains_after_first, alpha),
        recovery=recovery_estimate(queue, gains, difference_means(queue, used, evidence_gain_of), alpha=alpha),
        greedy=_estimate(queue, greedy, alpha, to_points(1.0)),
        margin=margin_estimate(queue, used, clusters=clusters, alpha=alpha),
    )


def change(
    queue: ClusteredQueue, known: Likelihoods, baseline: Likelihoods, *, alpha: float
) -> LikelihoodChanges | None:
    """Return the differences on the finished clusters that the two models share; None without any."""

    both = known.keys() & baseline.keys()

    def differences(value: Value) -> Floats:
        shares = {ref: _share(value(known[ref]) - value(baseline[ref])) for ref in both}
        return queue.weighted_means(shares)

    nll = differences(lambda item: item.full.nll)
    if not nll.size:
        return None
    error, estimate = None, model_mean([[(nll, queue.units[: nll.size])]])
    if estimate is not None:
        error = DIFFERENCE_CLIP * queue.scale * math.sqrt(estimate.variance)
    return LikelihoodChanges(
        pairs=len(nll),
        nll=_panel_difference(queue, nll, alpha),
        nll_error=error,
        gain=_panel_difference(queue, differences(gain_of), alpha),
        evidence=_panel_difference(queue, differences(lambda item: item.evidence.nll), alpha),
    )


def margin_estimate(queue: ClusteredQueue, known: Likelihoods, *, clusters: int, alpha: float) -> MeanEstimate | None:
    """Return gold - foil over the first clusters; None without a sample that has a foil.

    Whether a sample has a foil is known before any answer, so the others may be left out.
    """
    places, means, cases = [], [], set()
    for place, cluster in enumerate(queue.clusters[:clusters]):
        margins = []
        for ref in cluster:
            item = known[ref]
            if item.foil is not None:
                margins.append(_share(item.foil.nll - item.full.nll))
        if margins:
            places.append(place)
            means.append(math.fsum(margins) / len(margins))
            cases.add(cluster[0].case_id)
    if not means:
        return None
    population = sum(cluster[0].case_id in cases for cluster in queue.clusters)
    return _difference(np.array(means), Strata.single(population), queue.units[places], alpha)


def _difference(means: Floats, strata: Strata, units: Ints, alpha: float, *, scale: float = 1.0) -> MeanEstimate:
    """Return the mean, in nats, of differences from -1 to 1."""
    low, high = stratified_interval((means + 1) / 2, strata, alpha=alpha)
    mean, planned = math.fsum(means) / len(means), (2 * low - 1, 2 * high - 1)
    of_model = mean_interval(means, units, alpha=alpha)
    estimate = MeanEstimate(mean=mean, interval=planned, model_interval=of_model)
    return _in_unit(estimate, DIFFERENCE_CLIP, scale=scale, least=-1.0)


def _panel_difference(queue: ClusteredQueue, means: Floats, alpha: float) -> MeanEstimate:
    return _difference(means, queue.drawn_strata, queue.units[: means.size], alpha, scale=queue.scale)


def _estimate(queue: ClusteredQueue, scores: Mapping[SampleRef, float], alpha: float, most: float) -> MeanEstimate:
    """Return the mean of values from 0 to `most`, given as shares of it."""
    shares = queue.weighted_means(scores)
    estimate = MeanEstimate(
        mean=math.fsum(shares) / len(shares),
        interval=stratified_interval(shares, queue.drawn_strata, alpha=alpha),
        model_interval=mean_interval(shares, queue.units[: shares.size], alpha=alpha),
    )
    return _in_unit(estimate, most, scale=queue.scale)


def _in_unit(estimate: MeanEstimate, unit: float, *, scale: float, least: float = 0.0) -> MeanEstimate:
    """Return an estimate times a scale, clipped between `least` and 1, in a unit."""

    def shown(value: float) -> float:
        return unit * min(max(scale * value, least), 1.0)

    low, high = map(shown, estimate.interval)
    model_low, model_high = map(shown, estimate.model_interval)
    return MeanEstimate(mean=shown(estimate.mean), interval=(low, high), model_interval=(model_low, model_high))


def recovery_estimate(
    queue: ClusteredQueue, gains: Floats, evidence_gains: Floats, *, alpha: float
) -> MeanEstimate | None:
    """Return the ratio of the sums of the means of clusters in points; None where it is undefined.

    An interval holds every ratio r for which no look has refuted that gains - r x evidence gains has the mean 0.
    """
    if not gains.size or _panel_difference(queue, evidence_gains, alpha).low <= LEAST_EVIDENCE_GAIN:
        return None
    ratio, needed = math.fsum(gains) / math.fsum(evidence_gains), math.log(2 / alpha)
    strata, units = queue.drawn_strata, queue.units[: gains.size]

    def is_refuted(candidate: float) -> tuple[bool, bool]:
        values = recovery_differences(gains, evidence_gains, candidate)
        evidence = LevelBets((values + 1) / 2, strata).log_evidence(0.5, 0.5)
        low, high = evidence.max(axis=-1).tolist()
        return low >= needed, high >= needed

    def is_refuted_of_model(candidate: float) -> tuple[bool, bool]:
        values = recovery_differences(gains, evidence_gains, candidate)
        low, high = mean_interval(values, units, alpha=alpha)
        return low > 0, high < 0

    planned, of_model = _ratio_bounds(is_refuted, ratio), _ratio_bounds(is_refuted_of_model, ratio)
    return MeanEstimate(mean=to_points(ratio), interval=planned, model_interval=of_model)


def _ratio_bounds(is_refuted: Callable[[float], tuple[bool, bool]], ratio: float) -> Interval:
    """Return the interval of a ratio in points, given whether a ratio is refuted as too low, and as too high."""
    start, end = RECOVERY_RANGE
    inner = min(max(ratio, start), end)
    low = _last_refuted(lambda candidate: is_refuted(candidate)[0], start, inner)
    high = _last_refuted(lambda candidate: is_refuted(candidate)[1], end, inner)
    return to_points(min(low, ratio)), to_points(max(high, ratio))


def recovery_differences(gains: Floats, evidence_gains: Floats, ratio: float) -> Floats:
    """Return gains - ratio x evidence gains, divided so that they stay within -1 to 1."""
    return (gains - ratio * evidence_gains) / (1 + abs(ratio))


def _last_refuted(is_refuted: Callable[[float], bool], outer: float, inner: float) -> float:
    """Return the refuted ratio that is nearest to `inner`, by bisection; `outer` if it is not refuted itself."""
    if not is_refuted(outer):
        return outer
    for _ in range(BISECTIONS):
        middle = (outer + inner) / 2
        outer, inner = (middle, inner) if is_refuted(middle) else (outer, middle)
    return outer


def _share(difference: float) -> float:
    """Return a difference, clipped, as a share of the clip."""
    return min(max(difference, -DIFFERENCE_CLIP), DIFFERENCE_CLIP) / DIFFERENCE_CLIP


def _is_clipped(item: Likelihood) -> bool:
    losses = (item.full.nll, item.query.nll, item.evidence.nll)
    return max(losses) > NLL_CLIP or max(abs(gain_of(item)), abs(evidence_gain_of(item))) > DIFFERENCE_CLIP
