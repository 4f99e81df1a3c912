"""Claims about a model rather than about its planned samples: the haystack is the unit of evidence.

A model's mean is that over all samples that could be drawn. The samples on one haystack, the text that consecutive
samples of a case share, are not independent draws, so one haystack is one observation, however many of its samples are
measured. Haystacks are drawn independently.

At any time most haystacks are measured in part. The mean of those samples is no valid observation: whether to continue
depends on scores of the same haystack, which the next samples repeat. So the evidence is computed in layers. Layer k
observes the mean of the first k clusters of every haystack, in the order of the queue, and counts a haystack from the
k-th on. Each layer is an e-process of independent observations. One of n layers refutes a null hypothesis wrongly with
a probability of alpha at most if each of them is held to alpha / n (Bonferroni). Few samples are on different
haystacks, and layer 1 counts nearly all of them; in a complete run the last layer averages whole haystacks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plugins.gates.e_process import Floats
from plugins.gates.statistics import interval, paired_evidence

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
class Layer:
    """Independent observations, one of each haystack that has enough clusters."""

    places: Ints
    """The place in the queue, from 0, of the cluster that completes each observation, in ascending order."""

    values: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlation:
    """The correlation between clusters on the same haystack."""

    value: float
    """1 if a haystack decides the scores of all its samples, 0 if it does not matter."""

    standard_error: float


def layers(values: Floats, haystacks: Haystacks) -> list[Layer]:
    """Return the observations of every layer, of 1, 2, 4, ... clusters up to the largest haystack.

    Their number depends on the planned samples alone. `values` belong to the first clusters of the queue.
    """
    own = haystacks.of_cluster[: values.size]
    ranks, means = _running_means(values, own)
    sizes = haystacks.sizes[own]
    largest = int(haystacks.sizes.max(initial=1))
    complete = (ranks == np.minimum(clusters, sizes) for clusters in _layer_sizes(largest))
    return [Layer(places=np.flatnonzero(chosen), values=means[chosen]) for chosen in complete]


def model_interval(values: Floats, haystacks: Haystacks, *, alpha: float) -> tuple[float, float]:
    """Return bounds that contain the model's mean at all looks so far with probability 1 - `alpha`.

    Scores run from 0 to 1. The bounds are those that every layer allows, and are widened to contain the mean of the
    values. They are (0, 1) without values.
    """
    if not values.size:
        return 0.0, 1.0
    observed = layers(values, haystacks)
    bounds = [interval(layer.values, alpha=alpha / len(observed)) for layer in observed]
    mean = math.fsum(values) / values.size
    return _around(mean, bounds)


def model_paired_interval(differences: Floats, haystacks: Haystacks, *, alpha: float) -> tuple[float, float]:
    """Return the bounds of `model_interval` for the mean of differences from -1 to 1."""
    low, high = model_interval((differences + 1) / 2, haystacks, alpha=alpha)
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
    places = [layer.places for layer in observed]
    non_inferior, inferior = (_best_layer(side, places, differences.size) for side in zip(*pairs, strict=True))
    return non_inferior, inferior


def votes(differences: Floats, haystacks: Haystacks) -> Floats:
    """Return one vote for every haystack on which the models differ: -1 if the model is worse, 1 if it is better.

    The first cluster with a difference, in queue order, votes for its haystack. So a vote is final once it is cast, and
    no later sample on the haystack can change it. If the model is no worse, every vote is -1 with a probability of at
    most 1/2, whatever the votes before it, so the evidence may be read at any time.
    """
    differing = np.flatnonzero(differences)
    _, first = np.unique(haystacks.of_cluster[differing], return_index=True)
    result: Floats = np.sign(differences[differing[np.sort(first)]])
    return result


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


def correlation(cases: Iterable[tuple[Floats, Ints]]) -> Correlation | None:
    """Estimate the intra-cluster correlation from the values and haystacks of several cases with means of their own.

    This is the one-way analysis-of-variance estimator (Donner 1986, "A review of inference procedures for the
    intraclass correlation coefficient in the one-way random effects model"), pooled over the cases, with the standard
    error of Swiger et al. 1964. Returns None if the values do not vary, or too few haystacks have several of them.
    """
    parts = [_sums_of_squares(values, haystacks) for values, haystacks in cases if values.size]
    between, within, between_freedom, within_freedom, unequal = np.sum(parts, axis=0) if parts else np.zeros(5)
    if between_freedom < 1 or within_freedom < MIN_REPLICATES or between + within <= 0:
        return None
    mean_between, mean_within, size = between / between_freedom, within / within_freedom, unequal / between_freedom
    value = (mean_between - mean_within) / (mean_between + (size - 1) * mean_within)
    spread = (1 - value) * (1 + (size - 1) * value) / size
    freedom = between_freedom * within_freedom / (between_freedom + within_freedom)
    return Correlation(value=float(value), standard_error=float(abs(spread) * math.sqrt(2 / freedom)))


def correlation_pair(estimate: Correlation | None) -> tuple[float, float] | None:
    """Return the correlation and its standard error, as verdicts hold them."""
    return None if estimate is None else (estimate.value, estimate.standard_error)


def _layer_sizes(largest: int) -> Iterator[int]:
    size = 1
    while size < largest:
        yield size
        size *= 2
    yield largest


def _running_means(values: Floats, own: Ints) -> tuple[Ints, Floats]:
    """Return, for every cluster, its number within its haystack from 1 on, and the haystack's mean up to it."""
    by_haystack = np.argsort(own, kind="stable")
    starts = np.flatnonzero(np.diff(own[by_haystack], prepend=-1))
    lengths = np.diff(np.append(starts, values.size))
    sums = values[by_haystack].cumsum()
    before = np.repeat(sums[starts] - values[by_haystack][starts], lengths)
    ranks, means = np.empty(values.size, dtype=np.intp), np.empty(values.size)
    ranks[by_haystack] = np.arange(values.size) - np.repeat(starts, lengths) + 1
    means[by_haystack] = (sums - before) / ranks[by_haystack]
    # Rounding must not take a mean out of the range of its values.
    return ranks, means.clip(values.min(initial=np.inf), values.max(initial=-np.inf))


def _best_layer(logs: Sequence[Floats], places: Sequence[Ints], clusters: int) -> Floats:
    """Return the evidence of the best layer after every cluster, from that after every observation of a layer."""
    at_every_cluster = [
        np.concatenate([[0.0], log])[np.searchsorted(place, np.arange(clusters), side="right")]
        for log, place in zip(logs, places, strict=True)
    ]
    best: Floats = np.max(at_every_cluster, axis=0) - math.log(len(logs))
    return best


def _around(mean: float, bounds: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the intersection of the bounds, widened to contain the mean."""
    return min(mean, max(low for low, _ in bounds)), max(mean, min(high for _, high in bounds))


def _sums_of_squares(values: Floats, own: Ints) -> tuple[float, float, float, float, float]:
    """Return the terms of one case: sums of squares and degrees of freedom between and within, and sizes."""
    _, numbers, sizes = np.unique(own, return_inverse=True, return_counts=True)
    means = np.bincount(numbers, weights=values) / sizes
    within = float(((values - means[numbers]) ** 2).sum())
    between = float((sizes * (means - values.mean()) ** 2).sum())
    unequal = float(values.size - (sizes**2).sum() / values.size)
    return between, within, len(sizes) - 1.0, float(values.size - len(sizes)), unequal
