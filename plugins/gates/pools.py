"""A queue as evidence: which samples belong together, what each weighs, and when their mean is known.

Samples that share a context are one piece of evidence, with their mean.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import groupby, takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fixtures.records import Case
from plugins.gates.statistics import interval

LEAST_ELEMENTS = 8
LEAST_POOLED_ELEMENTS = 26
LOOKED_AT_EVERY = 4
# Where nothing is decided a mean is known with 95 %, as measurements mostly are, and not with a verdict's certainty.
ESTIMATE_ALPHA = 0.05


class Element(NamedTuple):
    """One place in a queue: a sample of a case."""

    case: str
    sample: int


def piece_of(element: Element, cases: Mapping[str, Case]) -> tuple[str, int]:
    """The case, and the number of the context within it."""
    return element.case, element.sample // cases[element.case].group


class Pool:
    """A queue as evidence: its elements by pieces, each with a weight of at most 1.

    A panel's mean is that of its cases' means. Where they differ in size, a piece of a smaller case
    weighs more; `scale` times the mean of the weighted values is the panel's mean.
    """

    def __init__(self, queue: Sequence[Element], cases: Mapping[str, Case]):
        self.queue = tuple(queue)
        grouped = groupby(queue, key=lambda element: piece_of(element, cases))
        self.pieces = tuple(tuple(elements) for _, elements in grouped)
        counts = Counter(piece[0].case for piece in self.pieces)
        self.scale = len(self.pieces) / (len(counts) * min(counts.values())) if counts else 1.0
        self._weights = {case: min(counts.values()) / count for case, count in counts.items()}
        unseen, at = set(counts), 0
        while unseen:
            unseen.discard(self.pieces[at][0].case)
            at += 1
        # One of every case, so that each has a score; and for a verdict a few before a first look.
        self.complete = at
        self.least = max(at, LEAST_POOLED_ELEMENTS if len(counts) > 1 else LEAST_ELEMENTS)

    def values(self, scores: Mapping[Element, float], pieces: int | None = None) -> NDArray[np.float64]:
        """The weighted means of the first finished pieces, 0 to 1 (or -1 to 1): so many, or all there are."""
        finished = takewhile(lambda piece: all(element in scores for element in piece), self.pieces[:pieces])
        return np.array(
            [self._weights[piece[0].case] * sum(map(scores.__getitem__, piece)) / len(piece) for piece in finished],
            dtype=np.float64,
        )

    def elements(self, pieces: int) -> int:
        """How many elements the first pieces hold."""
        return sum(map(len, self.pieces[:pieces]))


def known_at(values: NDArray[np.float64], pool: Pool, precision: float) -> int | None:
    """The first look at which the mean is known well enough; looks are at fixed places, whoever takes them."""
    width = 2 * precision / pool.scale
    for pieces in range(pool.complete, len(values) + 1, LOOKED_AT_EVERY):
        if _width(values[:pieces].tobytes(), len(pool.pieces)) <= width:
            return pieces
    return None


def known_soonest(values: NDArray[np.float64], finished: int, pool: Pool, precision: float) -> int | None:
    """The first look after `finished` pieces at which the mean would be known, if the rest scored as in `values`."""
    width = 2 * precision / pool.scale
    looks = range(pool.complete, len(values) + 1, LOOKED_AT_EVERY)
    looks = looks[max(0, -(-(finished + 1 - pool.complete) // LOOKED_AT_EVERY)) :]
    at = bisect_left(looks, True, key=lambda pieces: _width(values[:pieces].tobytes(), len(pool.pieces)) <= width)
    return looks[at] if at < len(looks) else None


@lru_cache(maxsize=4096)
def _width(values: bytes, population: int) -> float:
    """Of the interval of the mean; a prefix of a queue is looked at again and again."""
    low, high = interval(np.frombuffer(values), alpha=ESTIMATE_ALPHA, population=population)
    return high - low
