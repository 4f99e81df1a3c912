"""Claims about a model rather than about its planned samples: the haystack is the unit of evidence.

A model's mean is that over all samples that could be drawn. The samples on one haystack, the text that several samples
of a case share (`Case.haystack` says which), are not independent draws, so one haystack is one observation, however
many of its samples are measured. Haystacks are drawn independently.

At any time most haystacks are measured in part. The mean of those samples is no valid observation: whether to continue
depends on scores of the same haystack, which the next samples repeat. So the evidence is computed in layers. _Layer k
observes the mean of the first k clusters of every haystack, in the order of the queue, and counts a haystack from the
k-th on. Each layer is an e-process of independent observations. One of n layers refutes a null hypothesis wrongly with
a probability of alpha at most if each of them is held to alpha / n (Bonferroni). Few samples are on different
haystacks, and layer 1 counts nearly all of them; in a complete run the last layer averages whole haystacks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from longctx.plugins.evidence.e_process import PAIR_SHARES, SHARES, TIE_TOLERANCE, Floats, log_evidence
from longctx.plugins.evidence.sign_flips import skewed_tail
from longctx.plugins.evidence.statistics import interval, paired_evidence

Ints = NDArray[np.intp]
# Fewer degrees of freedom within haystacks say nothing about the correlation there.
MIN_REPLICATES = 10


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Haystacks:
    """The haystacks of the clusters of a queue."""

    of_cluster: Ints
    """The number of the haystack, from 0, of every cluster in queue order; at least of those that have a value."""

    sizes: Ints
    """The number of planned clusters of every haystack."""

    def count(self, clusters: int) -> int:
        """Return the number of haystacks among the first clusters."""
        return len(np.unique(self.of_cluster[:clusters]))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Layer:
    """Independent observations, one of each haystack that has enough clusters."""

    places: Ints
    """The place in the queue, from 0, of the cluster that completes each observation, in ascending order."""

    values: Floats


class HaystackCorrelation(NamedTuple):
    """The correlation between clusters on the same haystack."""

    value: float
    """1 if a haystack decides the scores of all its samples, 0 if it does not matter."""

    standard_error: float


def layers(values: Floats, haystacks: Haystacks) -> list[_Layer]:
    """Return the observations of every layer, of 1, 2, 4, ... clusters up to the largest haystack.

    Their number depends on the planned samples alone. `values` belong to the first clusters of the queue.
    """
    own = haystacks.of_cluster[: values.size]
    by_haystack = np.argsort(own, kind="stable")
    starts = np.flatnonzero(np.diff(own[by_haystack], prepend=-1))
    lengths = np.diff(np.append(starts, values.size))
    ordered = values[by_haystack]
    sums = ordered.cumsum()
    before = np.repeat(sums[starts] - ordered[starts], lengths)
    # For every cluster, its number within its haystack from 1 on, and the haystack's mean up to it.
    ranks, means = np.empty(values.size, dtype=np.intp), np.empty(values.size)
    ranks[by_haystack] = np.arange(values.size) - np.repeat(starts, lengths) + 1
    means[by_haystack] = (sums - before) / ranks[by_haystack]
    # Rounding must not take a mean out of the range of its values.
    means = means.clip(values.min(initial=np.inf), values.max(initial=-np.inf))
    sizes = haystacks.sizes[own]
    largest = int(haystacks.sizes.max(initial=1))
    powers = [2**power for power in range((largest - 1).bit_length())]
    observed = []
    for clusters in (*powers, largest):
        complete = ranks == np.minimum(clusters, sizes)
        observed.append(_Layer(places=np.flatnonzero(complete), values=means[complete]))
    return observed


def model_interval(
    values: Floats, haystacks: Haystacks, *, alpha: float, shares: Floats = SHARES
) -> tuple[float, float]:
    """Return bounds that contain the model's mean at all looks so far with probability 1 - `alpha`.

    Scores run from 0 to 1. The bounds are those that every layer allows, and are widened to contain the mean of the
    values. They are (0, 1) without values.
    """
    if not values.size:
        return 0.0, 1.0
    observed = layers(values, haystacks)
    bounds = [interval(layer.values, alpha=alpha / len(observed), shares=shares) for layer in observed]
    mean = math.fsum(values) / values.size
    # The intersection of the bounds, widened to contain the mean.
    return min(mean, max(low for low, _ in bounds)), max(mean, min(high for _, high in bounds))


def model_paired_interval(differences: Floats, haystacks: Haystacks, *, alpha: float) -> tuple[float, float]:
    """Return the bounds of `model_interval` for the mean of differences from -1 to 1."""
    low, high = model_interval((differences + 1) / 2, haystacks, alpha=alpha, shares=PAIR_SHARES)
    return 2 * low - 1, 2 * high - 1


def model_paired_evidence(
    differences: Floats, haystacks: Haystacks, *, drop: float, clear: float
) -> tuple[Floats, Floats]:
    """Return the evidence of `paired_evidence` on the model's mean difference, after every cluster of the queue.

    It is the logarithm of the largest layer's e-value divided by the number of layers. The null hypothesis is refuted
    with a probability of at most alpha where this ever reaches log(1 / alpha).
    """
    observed = layers(differences, haystacks)
    pairs = [paired_evidence(layer.values, drop=drop, clear=clear) for layer in observed]
    non_inferior, inferior = (_over_layers(observed, logs, differences.size) for logs in zip(*pairs, strict=True))
    return non_inferior, inferior


def model_level_evidence(values: Floats, haystacks: Haystacks, *, threshold: float) -> Floats:
    """Return the log evidence against a mean of the model of at least `threshold`, after every cluster of the queue.

    It is composed of layers as `model_paired_evidence` is. The order of the queue must be uniformly random.
    """
    observed = layers(values, haystacks)
    logs = [log_evidence(1 - layer.values, 1 - threshold) for layer in observed]
    return _over_layers(observed, logs, values.size)


def _over_layers(observed: Sequence[_Layer], logs: Sequence[Floats], clusters: int) -> Floats:
    """Return after every cluster the largest log evidence of a layer, for an e-value divided by their number."""
    by_layer = []
    for layer, log in zip(observed, logs, strict=True):
        observations = np.searchsorted(layer.places, np.arange(clusters), side="right")
        log_from_none = np.concatenate([[0.0], log])
        by_layer.append(log_from_none[observations])
    largest: Floats = np.max(by_layer, axis=0)
    return largest - math.log(len(observed))


def level_p_values(cases: Iterable[tuple[Floats, Ints]], threshold: float) -> tuple[float, float] | None:
    """Return the p-values of the model's mean over cases being at most, and at least, the threshold.

    Each case has the values and the haystacks of all its clusters. The first test is Student's t-test of the mean of
    the cases' means with the cluster-robust variance of every case (Liang and Zeger 1986) and the degrees of freedom of
    Satterthwaite 1946, "An approximate distribution of estimates of variance components": those of haystacks less
    cases would promise too much where few cases vary. Few right answers among many wrong ones seem to vary less than
    they do. So the p-value is at least that of Hall's transformation for skewness (`skewed_tail`), and that of Bentkus
    2004, "On Hoeffding's inequalities": e times the binomial tail, for as many samples as would be as precise.
    Returns None if a case has one haystack, or no case varies.
    """
    cases = list(cases)
    means, variances, thirds, freedoms = [], [], [], []
    for values, own in cases:
        _, numbers = np.unique(own, return_inverse=True)
        residuals = np.bincount(numbers, weights=values - values.mean())
        if residuals.size < 2:
            return None
        means.append(float(values.mean()))
        variances.append(residuals.size / (residuals.size - 1) * float((residuals**2).sum()) / values.size**2)
        thirds.append(float((residuals**3).sum()) / values.size**3)
        freedoms.append(residuals.size - 1)
    total = math.fsum(variances)
    if total <= 0:
        return None
    # scipy takes half a second to import, and few runs need it.
    from scipy.special import stdtr

    freedom = total**2 / math.fsum(variance**2 / own for variance, own in zip(variances, freedoms, strict=True))
    mean = math.fsum(means) / len(means)
    t = len(means) * (mean - threshold) / math.sqrt(total)
    size, skewness = _independent_samples(cases), math.fsum(thirds) / total**1.5
    above = float(stdtr(freedom, -t)), skewed_tail(-t, -skewness), _bentkus_bound(size, 1 - mean, 1 - threshold)
    below = float(stdtr(freedom, t)), skewed_tail(t, skewness), _bentkus_bound(size, mean, threshold)
    return max(above), max(below)


def _independent_samples(cases: Sequence[tuple[Floats, Ints]]) -> float:
    """Return the number of independent samples whose mean would be as precise as the mean of the cases' means."""
    estimate = correlation(cases)
    alike = 0.0 if estimate is None else max(0.0, estimate.value)
    precision = 0.0
    for values, own in cases:
        sizes = np.bincount(np.unique(own, return_inverse=True)[1]).astype(float)
        # Without an estimate a haystack counts as one sample.
        effective = sizes.sum() ** 2 / (sizes + alike * sizes * (sizes - 1)).sum() if estimate else float(sizes.size)
        precision += 1 / min(effective, float(values.size))
    return len(cases) ** 2 / precision


def _bentkus_bound(size: float, mean: float, threshold: float) -> float:
    """Return a bound on the probability of a mean as low as this one of samples of 0 to 1, if theirs is the threshold.

    Between two whole numbers of samples, the logarithm of the tail is interpolated.
    """
    from scipy.special import bdtr

    total = mean * size
    low = math.floor(total + TIE_TOLERANCE)
    tails = bdtr(np.array([low, min(low + 1, math.floor(size))], dtype=np.float64), math.floor(size), threshold)
    share = max(0.0, total - low)
    return float(min(1.0, math.e * tails[0] ** (1 - share) * tails[1] ** share))


def haystack_sums(differences: Floats, haystacks: Haystacks) -> Floats:
    """Return the sum of the differences on every haystack that has some."""
    _, numbers = np.unique(haystacks.of_cluster[: differences.size], return_inverse=True)
    sums: Floats = np.bincount(numbers, weights=differences).astype(np.float64)
    return sums


def clustered_error(values: Floats, haystacks: Haystacks) -> float | None:
    """Return the standard error of the mean of values, whose haystacks are independent; None for fewer than two.

    It is the cluster-robust estimator with the usual correction for the number of clusters (Liang and Zeger 1986,
    "Longitudinal data analysis using generalized linear models").
    """
    _, numbers = np.unique(haystacks.of_cluster[: values.size], return_inverse=True)
    sums = np.bincount(numbers, weights=values - values.mean())
    if len(sums) < 2:
        return None
    return float(math.sqrt(len(sums) / (len(sums) - 1) * (sums**2).sum()) / values.size)


def correlation(cases: Iterable[tuple[Floats, Ints]]) -> HaystackCorrelation | None:
    """Estimate the intra-cluster correlation from the values and haystacks of several cases with means of their own.

    This is the one-way analysis-of-variance estimator (Donner 1986, "A review of inference procedures for the
    intraclass correlation coefficient in the one-way random effects model"), pooled over the cases, with the standard
    error of Swiger et al. 1964. Returns None if the values do not vary, or too few haystacks have several of them.
    """
    parts = [_variance_parts(values, own) for values, own in cases if values.size]
    between, within, between_freedom, within_freedom, unequal = np.sum(parts, axis=0) if parts else np.zeros(5)
    if between_freedom < 1 or within_freedom < MIN_REPLICATES or between + within <= 0:
        return None
    mean_between = between / between_freedom
    mean_within = within / within_freedom
    size = unequal / between_freedom
    value = (mean_between - mean_within) / (mean_between + (size - 1) * mean_within)
    spread = (1 - value) * (1 + (size - 1) * value) / size
    freedom = between_freedom * within_freedom / (between_freedom + within_freedom)
    error = abs(spread) * math.sqrt(2 / freedom)
    return HaystackCorrelation(value=float(value), standard_error=float(error))


def _variance_parts(values: Floats, own: Ints) -> tuple[float, float, float, float, float]:
    """Return the sums of squares between and within the haystacks of a case, their degrees of freedom, and the size."""
    _, numbers, sizes = np.unique(own, return_inverse=True, return_counts=True)
    means = np.bincount(numbers, weights=values) / sizes
    between = sizes * (means - values.mean()) ** 2
    sum_between = float(between.sum())
    within = (values - means[numbers]) ** 2
    sum_within = float(within.sum())
    count, haystacks = values.size, len(sizes)
    uneven = count - (sizes**2).sum() / count
    return sum_between, sum_within, haystacks - 1.0, float(count - haystacks), float(uneven)
