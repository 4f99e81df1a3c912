"""Spearman's rank correlation with a confidence interval (Bonett and Wright 2000)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

FEWEST_PAIRS = 4
_NORMAL_95 = 1.959964


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCorrelation:
    """A rank correlation, -1 to 1, with the 95 % interval of its population value."""

    value: float
    low: float
    high: float
    pairs: int

    @property
    def is_clear(self) -> bool:
        """True if the interval excludes 0."""
        return self.low > 0 or self.high < 0


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> RankCorrelation | None:
    """Return Spearman's correlation of pairs; None for fewer than four, or if one side is constant.

    Ties get the mean of their ranks. A perfect correlation has the interval of one with two neighbours swapped, since a
    few pairs cannot show a population value of 1. Raises ValueError for sequences of different lengths.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} values cannot be paired")
    count = len(first)
    if count < FEWEST_PAIRS or len(set(first)) == 1 or len(set(second)) == 1:
        return None
    value = _pearson(_ranks(first), _ranks(second))
    most = 1 - 12 / (count * (count**2 - 1))
    centre = math.atanh(max(-most, min(most, value)))
    spread = _NORMAL_95 * math.sqrt((1 + value**2 / 2) / (count - 3))
    return RankCorrelation(value=value, low=math.tanh(centre - spread), high=math.tanh(centre + spread), pairs=count)


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the ranks from 1, of ties their mean."""
    ordered = sorted(values)
    first = {value: place for place, value in reversed(list(enumerate(ordered, start=1)))}
    return [first[value] + (ordered.count(value) - 1) / 2 for value in values]


def _pearson(first: Sequence[float], second: Sequence[float]) -> float:
    mean_first, mean_second = math.fsum(first) / len(first), math.fsum(second) / len(second)
    pairs = [(a - mean_first, b - mean_second) for a, b in zip(first, second, strict=True)]
    product = math.fsum(a * b for a, b in pairs)
    return product / math.sqrt(math.fsum(a * a for a, _ in pairs) * math.fsum(b * b for _, b in pairs))
