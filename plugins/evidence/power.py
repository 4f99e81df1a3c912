"""The power of tests: the smallest loss that so many pairs show."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from longctx.plugins.evidence.clusters import MIN_CLUSTERS, ClusteredQueue
from longctx.plugins.evidence.e_process import Floats
from longctx.plugins.evidence.sequential import ErrorShares, NonInferiority, Pairs, decide_pairs
from longctx.plugins.evidence.sign_flips import FEWEST_UNITS, loss_p_value
from longctx.plugins.evidence.statistics import decide_paired

# A loss counts as detectable if it is shown with this probability; the second number is the normal quantile of it.
POWER, POWER_QUANTILE = 0.8, 0.8416


def detectable_panel_loss(hypothesis: NonInferiority, queue: ClusteredQueue, pairs: int) -> float | None:
    """Return the smallest loss of a panel's mean, 0 to 1, that fails with probability `POWER` on so many clusters.

    The loss is one-way: all clusters with another score than the baseline's are worse. Flips in both directions make
    the detectable loss larger. Returns None if no loss can be shown.
    """
    return _panel_loss(hypothesis, pairs, len(queue.clusters), queue.unit_count(pairs))


@lru_cache(maxsize=1024)
def _panel_loss(hypothesis: NonInferiority, pairs: int, population: int, units: int) -> float | None:
    def is_failed(differences: Floats) -> bool:
        decision = decide_paired(
            differences,
            drop=hypothesis.allowed(1.0),
            alpha=hypothesis.alpha,
            min_observations=min(pairs, MIN_CLUSTERS),
            population=population,
        )
        if decision is None or decision.verdict == "pass":
            return False
        if hypothesis.confirmation is None:
            return True
        # The lost pairs are spread over the haystacks, all of one size.
        lost, largest = round(-differences.sum()), np.full(units, pairs / units)
        sums = -np.bincount(np.arange(lost) % units, minlength=units).astype(np.float64)
        return loss_p_value(sums, largest) <= hypothesis.confirmation.complete

    return _detectable_loss(pairs, is_failed, population)


def fewest_units(confirmation: ErrorShares) -> int:
    """Return the number of haystacks on which a loss on each of them can be shown for the model."""
    return max(FEWEST_UNITS, math.ceil(-math.log2(confirmation.complete)))


def _detectable_loss(pairs: int, is_shown: Callable[[Floats], bool], population: int) -> float | None:
    """Return the loss whose number of worse pairs reaches the smallest number that is shown, with probability `POWER`.

    The number of worse pairs is taken to be normal, and the worse pairs to be spread evenly.
    """
    if not pairs or not is_shown(_spread(pairs, pairs)):
        return None
    least = 1 + bisect_left(range(1, pairs), True, key=lambda worse: is_shown(_spread(worse, pairs)))
    remaining_share = 1 - pairs / population
    variance = least * (1 - least / pairs) * remaining_share
    worse = least + POWER_QUANTILE * math.sqrt(variance)
    return min(1.0, worse / pairs)


def _spread(worse: int, pairs: int) -> Floats:
    """Return the differences of so many pairs, with the worse ones at equal distances."""
    marks = np.arange(pairs + 1) * worse // pairs
    return -np.diff(marks).astype(np.float64)


def can_rule_out(hypothesis: NonInferiority, queue: ClusteredQueue, pairs: int) -> bool:
    """Return True if equal scores on so many clusters rule out the loss that the hypothesis is about."""
    equal = Pairs(
        queue=queue, differences=np.zeros(pairs), baseline=queue.weighted_means(dict.fromkeys(queue.refs, 1.0), pairs)
    )
    decision = decide_pairs(hypothesis, equal)
    return decision is not None and decision.verdict == "pass"
