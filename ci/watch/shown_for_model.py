"""Decide whether a loss is one of the model, or only of the planned samples.

The comparison of two checkpoints on the planned samples is exact, but the scores of a model that has not changed move a
little from step to step: some answers flip. So the loss is compared with its standard error over haystacks, the texts
that consecutive samples share and that make their scores alike, by Student's t-test. The standard error grows with the
estimated correlation between samples on one haystack.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fixtures.records import family_of
from plugins.gates.regression import comparison_name

Entry = Mapping[str, Any]
GRID = 2000
# The correlation on a haystack is taken to be at the upper end of its one-sided 95 % interval.
CORRELATION_QUANTILE = 1.645


def is_shown_for_model(report: Entry, gate: Entry, alpha: float) -> bool:
    """Return True if the loss of a comparison is shown for the model, wrongly with probability `alpha` at most."""
    entries = [
        (case, report["regression"]["cases"][case["id"]])
        for case in report["cases"]
        if comparison_name(family_of(case["suite"], case["category"]), case["length"]) == gate["name"]
        and report["regression"]["cases"].get(case["id"], {}).get("pairs")
    ]
    if not entries or gate["measured"] is None or gate["measured"] >= 0:
        return False
    estimate, uncertainty = gate["haystack_correlation"] or (0.0, 0.0)
    correlation = min(1.0, max(0.0, estimate + CORRELATION_QUANTILE * uncertainty))
    error = standard_error_points(entries, correlation)
    freedom = sum(compared["pairs"] - 1 for _, compared in entries)
    return freedom > 0 and (error == 0 or tail_probability(-gate["measured"] / error, freedom) <= alpha)


def standard_error_points(entries: Sequence[tuple[Entry, Entry]], correlation: float) -> float:
    """Return the standard error of the mean over cases of the mean differences, in points.

    `entries` are the cases of a report with their comparisons. A score that differs is taken to differ by 100 points.
    """
    variances = []
    for case, compared in entries:
        pairs, mean = compared["pairs"], compared["difference"] / 100
        variance = max(0.0, (compared["worse"] + compared["better"]) / pairs - mean**2)
        # A report of an earlier version may not say how many; one is the safe side.
        haystacks = case.get("haystacks") or 1
        design_effect = 1 + max(0.0, pairs / haystacks - 1) * correlation
        variances.append(variance * design_effect / pairs)
    return 100 * math.sqrt(math.fsum(variances)) / len(entries)


def tail_probability(t: float, freedom: int) -> float:
    """Return the probability that Student's t with these degrees of freedom exceeds `t`, which is at least 0.

    It is half the regularized incomplete beta function of freedom / (freedom + t²) with freedom / 2 and 1/2, whose
    integral over u is taken over s with u = x s^(1/a), where it is smooth.
    """
    a, x = freedom / 2, freedom / (freedom + t**2)
    log_scale = a * math.log(x) - math.log(a) - (math.lgamma(a) + math.lgamma(0.5) - math.lgamma(a + 0.5))
    s = (np.arange(GRID) + 0.5) / GRID
    return 0.5 * math.exp(log_scale) * float(np.mean(1 / np.sqrt(1 - x * s ** (1 / a))))
