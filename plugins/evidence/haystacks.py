"""Claims about a model rather than about its planned samples: the haystack is the unit of evidence.

A model's mean is that over all samples that could be drawn. The samples on one haystack, the text that several samples
share (`Case.haystack` says which), are not independent draws, so their residuals are added up before they are squared:
the cluster-robust variance (Liang and Zeger 1986, "Longitudinal data analysis using generalized linear models"). Every
case is a stratum with a mean of its own; cases about the same texts are one stratum.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from longctx.fixtures.records.report_parts import Interval
from longctx.plugins.evidence.e_process import TIE_TOLERANCE, Floats
from longctx.plugins.evidence.sign_flips import skewed_tail

Ints = NDArray[np.intp]
# Fewer degrees of freedom within haystacks say nothing about the correlation there.
MIN_REPLICATES = 10
# Bisection steps on the unit interval: bounds are exact to a ten-thousandth of a point.
BISECTIONS = 20

CaseValues = tuple[Floats, Ints]
"""The values of a case's clusters, and the haystack of each."""
Stratum = Sequence[CaseValues]
"""A case, or several cases about the same texts, whose haystacks have the same numbers."""


class HaystackCorrelation(NamedTuple):
    """The correlation between clusters on the same haystack."""

    value: float
    """1 if a haystack decides the scores of all its samples, 0 if it does not matter."""
    standard_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMean:
    """The mean of the cases' means as an estimate of the model's own."""

    mean: float
    variance: float
    """The cluster-robust variance of the mean; 0 if no value differs from the mean of its case."""
    skewness: float
    """The skewness of the mean; 0 without a variance."""
    freedom: float
    """The degrees of freedom of Satterthwaite 1946, "An approximate distribution of estimates of variance components":
    those of haystacks less cases would promise too much where few cases vary."""
    size: float
    """The number of independent samples whose mean would be as precise."""
    size_on_haystacks: float
    """The geometric mean of the numbers of samples and of haystacks: as precise as samples of some correlation."""
    unit: float
    """The change of the mean if one haystack changes as much as those that changed do."""


def model_mean(strata: Iterable[Stratum]) -> ModelMean | None:
    """Return the estimate of the model's mean; None without values, and if a stratum has a single haystack."""
    cases: list[CaseValues] = []
    variances, thirds, freedoms = [], [], []
    changed: list[Floats] = []
    haystacks = 0
    for stratum in strata:
        with_values = [(values, own) for values, own in stratum if values.size]
        if not with_values:
            continue
        cases += with_values
        residuals, totals = _haystack_sums(with_values)
        count = residuals.size
        if count < 2:
            return None
        variances.append(count / (count - 1) * float((residuals**2).sum()))
        thirds.append(float((residuals**3).sum()))
        freedoms.append(count - 1)
        haystacks += count
        changed.append(totals[np.abs(totals) > TIE_TOLERANCE])
    if not cases:
        return None
    total = math.fsum(variances)
    parts = math.fsum(variance**2 / own for variance, own in zip(variances, freedoms, strict=True))
    samples = sum(values.size for values, _ in cases)
    size = math.sqrt(samples * haystacks)
    return ModelMean(
        mean=math.fsum(float(values.mean()) for values, _ in cases) / len(cases),
        variance=total / len(cases) ** 2,
        skewness=math.fsum(thirds) / total**1.5 if total > 0 else 0.0,
        freedom=total**2 / parts if parts > 0 else float(sum(freedoms)),
        size=_independent_samples(cases),
        size_on_haystacks=size,
        unit=_unit(np.concatenate(changed), len(cases), size),
    )


def _haystack_sums(cases: Sequence[CaseValues]) -> tuple[Floats, Floats]:
    """Return by haystack the sum of the residuals, each divided by the size of its case, and that of the values."""
    residuals, shares, haystacks = [], [], []
    for values, own in cases:
        residuals.append((values - values.mean()) / values.size)
        shares.append(values / values.size)
        haystacks.append(own)
    _, numbers = np.unique(np.concatenate(haystacks), return_inverse=True)
    of_residuals = np.bincount(numbers, np.concatenate(residuals))
    of_values = np.bincount(numbers, np.concatenate(shares))
    return of_residuals.astype(np.float64), of_values.astype(np.float64)


def _unit(changed: Floats, cases: int, size: float) -> float:
    # How much a haystack changes is not known from few that changed.
    least = 1 / size
    return max(float(np.sqrt((changed**2).mean())) / cases, least) if changed.size else least


def level_p_values(strata: Iterable[Stratum], threshold: float) -> tuple[float, float] | None:
    """Return the p-values of the model's mean, of scores from 0 to 1, being at most, and at least, the threshold.

    Returns None where `model_mean` does.
    """
    estimate = model_mean(strata)
    if estimate is None:
        return None
    return _p_value_below(_mirrored(estimate), 1 - threshold), _p_value_below(estimate, threshold)


def _mirrored(estimate: ModelMean) -> ModelMean:
    """Return the estimate of how much is missing to the largest mean, 1."""
    return replace(estimate, mean=1 - estimate.mean, skewness=-estimate.skewness)


def _p_value_below(estimate: ModelMean, threshold: float) -> float:
    """Return the p-value of a mean of at least the threshold, from 0 to 1.

    The first test is Student's t-test. Few right answers among many wrong ones seem to vary less than they do. So the
    p-value is at least that of Hall's transformation for skewness (`skewed_tail`), and that of Bentkus 2004, "On
    Hoeffding's inequalities": e times the binomial tail, for as many samples as would be as precise.
    """
    # scipy takes half a second to import, and few runs need it.
    from scipy.special import stdtr

    p_values = [_bentkus_bound(estimate.size, estimate.mean, threshold)]
    if estimate.variance > 0:
        t = (estimate.mean - threshold) / math.sqrt(estimate.variance)
        p_values += [float(stdtr(estimate.freedom, t)), skewed_tail(t, estimate.skewness)]
    return max(p_values)


def level_interval(strata: Iterable[Stratum], *, alpha: float) -> Interval:
    """Return the means from 0 to 1 that `level_p_values` does not refute, with `alpha` / 2 on each side.

    The interval is (0, 1) where there is no estimate.
    """
    estimate = model_mean(strata)
    if estimate is None:
        return 0.0, 1.0
    # Samples of which none varies on a haystack do not show how alike they are.
    estimate = replace(estimate, size=min(estimate.size, estimate.size_on_haystacks))
    return 1 - _upper_bound(_mirrored(estimate), alpha / 2), _upper_bound(estimate, alpha / 2)


def _upper_bound(estimate: ModelMean, alpha: float) -> float:
    """Return the smallest of the means that are refuted as too large."""
    possible, refuted = estimate.mean, 1.0
    for _ in range(BISECTIONS):
        middle = (refuted + possible) / 2
        if _p_value_below(estimate, middle) <= alpha:
            refuted = middle
        else:
            possible = middle
    return refuted


def difference_interval(strata: Iterable[Stratum], *, alpha: float) -> Interval:
    """Return the interval of Student's t for the model's mean of differences from -1 to 1.

    Where few samples differ, their number is as uncertain as that of rare events. So the bounds are those of Wilson
    1927, "Probable inference": each is the mean at which the estimate is just so many standard errors away.
    """
    estimate = model_mean(strata)
    if estimate is None:
        return -1.0, 1.0
    quantile = _quantile(estimate, alpha)
    rare = quantile * estimate.unit / 2
    half = quantile * (rare + math.sqrt(estimate.variance + rare**2))
    return max(-1.0, estimate.mean - half), min(1.0, estimate.mean + half)


def mean_interval(values: Floats, own: Ints, *, alpha: float) -> Interval:
    """Return the interval of Student's t for the mean of values on these haystacks; infinite on a single one."""
    estimate = model_mean([[(values, own)]])
    if estimate is None:
        return -math.inf, math.inf
    half = _quantile(estimate, alpha) * math.sqrt(estimate.variance)
    return estimate.mean - half, estimate.mean + half


def _quantile(estimate: ModelMean, alpha: float) -> float:
    from scipy.special import stdtrit

    return -float(stdtrit(estimate.freedom, alpha / 2))


def _independent_samples(cases: Sequence[CaseValues]) -> float:
    """Return the number of independent samples whose mean would be as precise as the mean of the cases' means."""
    estimate = correlation(cases)
    alike = 0.0 if estimate is None else max(0.0, estimate.value)
    precision = 0.0
    for values, own in cases:
        _, sizes = np.unique(own, return_counts=True)
        # Without an estimate a haystack counts as one sample.
        effective = float(sizes.size)
        if estimate is not None:
            effective = values.size**2 / (sizes + alike * sizes * (sizes - 1)).sum()
        precision += 1 / min(effective, values.size)
    return len(cases) ** 2 / precision


def _bentkus_bound(size: float, mean: float, threshold: float) -> float:
    """Return a bound on the probability of a mean as low as this one of samples of 0 to 1, if theirs is the threshold.

    Between two whole numbers of samples, the logarithm of the tail is interpolated.
    """
    from scipy.special import bdtr

    total, trials = mean * size, math.floor(size)
    low = math.floor(total + TIE_TOLERANCE)
    share = max(0.0, total - low)
    first = float(bdtr(low, trials, threshold))
    second = float(bdtr(min(low + 1, trials), trials, threshold))
    return min(1.0, math.e * math.pow(first, 1 - share) * math.pow(second, share))


def correlation(cases: Iterable[CaseValues]) -> HaystackCorrelation | None:
    """Estimate the intra-cluster correlation from the values and haystacks of several cases with means of their own.

    This is the one-way analysis-of-variance estimator (Donner 1986, "A review of inference procedures for the
    intraclass correlation coefficient in the one-way random effects model"), pooled over the cases, with the standard
    error of Swiger et al. 1964. Returns None if the values do not vary, or too few haystacks have several of them.
    """
    parts = [_variance_parts(values, own) for values, own in cases if values.size]
    if not parts:
        return None
    between, within, between_freedom, within_freedom, unequal = np.sum(parts, axis=0).tolist()
    if between_freedom < 1 or within_freedom < MIN_REPLICATES or between + within <= 0:
        return None
    mean_between = between / between_freedom
    mean_within = within / within_freedom
    size = unequal / between_freedom
    value = (mean_between - mean_within) / (mean_between + (size - 1) * mean_within)
    spread = (1 - value) * (1 + (size - 1) * value) / size
    freedom = between_freedom * within_freedom / (between_freedom + within_freedom)
    return HaystackCorrelation(value=value, standard_error=abs(spread) * math.sqrt(2 / freedom))


def _variance_parts(values: Floats, own: Ints) -> tuple[float, float, float, float, float]:
    """Return the sums of squares between and within the haystacks of a case, their degrees of freedom, and the size."""
    _, numbers, sizes = np.unique(own, return_inverse=True, return_counts=True)
    means = np.bincount(numbers, values) / sizes
    between = sizes * (means - values.mean()) ** 2
    within = (values - means[numbers]) ** 2
    count, haystacks = values.size, len(sizes)
    squares = (sizes**2).sum()
    uneven = count - squares / count
    return between.sum(), within.sum(), haystacks - 1, count - haystacks, uneven
