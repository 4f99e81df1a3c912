"""A queue as evidence: which samples belong together, what each weighs, and when their mean is known.

Samples that share a context are one piece of evidence, with their mean.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate, groupby
from typing import NamedTuple

import numpy as np

from fixtures.records import Case
from plugins.gates.statistics import Floats, interval

LEAST_ELEMENTS = 8
LEAST_POOLED_ELEMENTS = 26
LOOKED_AT_EVERY = 4
# Where nothing is decided a mean is known with 95 %, as measurements mostly are, and not with a verdict's certainty.
ESTIMATE_ALPHA = 0.05


class SampleRef(NamedTuple):
    """One place in a queue: a sample of a case."""

    case: str
    sample: int


def piece_of(element: SampleRef, cases: Mapping[str, Case]) -> tuple[str, int]:
    """The case, and the number of the context within it."""
    return element.case, element.sample // cases[element.case].group


class ClusteredQueue:
    """A queue as evidence: its elements by pieces, each with a weight of at most 1.

    A panel's mean is that of its cases' means. Where they differ in size, a piece of a smaller case
    weighs more; `scale` times the mean of the weighted values is the panel's mean.
    """

    def __init__(self, queue: Sequence[SampleRef], cases: Mapping[str, Case]):
        self.queue = tuple(queue)
        grouped = groupby(queue, key=lambda element: piece_of(element, cases))
        self.pieces = tuple(tuple(elements) for _, elements in grouped)
        counts = Counter(piece[0].case for piece in self.pieces)
        self.scale = len(self.pieces) / (len(counts) * min(counts.values())) if counts else 1.0
        weights = {case: min(counts.values()) / count for case, count in counts.items()}
        self._weighted = tuple((weights[piece[0].case], piece) for piece in self.pieces)
        self._ends = (0, *accumulate(map(len, self.pieces)))
        unseen, at = set(counts), 0
        while unseen:
            unseen.discard(self.pieces[at][0].case)
            at += 1
        # One of every case, so that each has a score; and for a verdict a few before a first look.
        self.complete = at
        self.least = max(at, LEAST_POOLED_ELEMENTS if len(counts) > 1 else LEAST_ELEMENTS)

    def values(self, scores: Mapping[SampleRef, float], pieces: int | None = None, *, start: int = 0) -> Floats:
        """The weighted means of the first finished pieces, 0 to 1 (or -1 to 1), from the one numbered `start` on.

        So many in all, or all there are.
        """
        found: list[float] = []
        # Read after every batch: asking beforehand what is finished would take longer than reading it.
        with suppress(KeyError):
            for weight, piece in self._weighted[start:pieces]:
                found.append(weight * sum(map(scores.__getitem__, piece)) / len(piece))
        return np.array(found, dtype=np.float64)

    def elements(self, pieces: int) -> int:
        """How many elements the first pieces hold."""
        return self._ends[min(pieces, len(self.pieces))]


def known_at(values: Floats, pool: ClusteredQueue, precision: float) -> int | None:
    """The first look at which the mean is known well enough; looks are at fixed places, whoever takes them."""
    width = 2 * precision / pool.scale
    for pieces in range(pool.complete, len(values) + 1, LOOKED_AT_EVERY):
        if _width(values[:pieces].tobytes(), len(pool.pieces)) <= width:
            return pieces
    return None


def known_soonest(fills: Sequence[Floats], finished: int, pool: ClusteredQueue, precision: float) -> int | None:
    """The first look after `finished` pieces at which the mean would be known with any of these scores.

    All are of the same pieces, the likeliest first: of the others it is asked only whether they are sooner.
    """
    width, of = 2 * precision / pool.scale, len(pool.pieces)
    looks = range(pool.complete, len(fills[0]) + 1, LOOKED_AT_EVERY)
    looks = looks[max(0, -(-(finished + 1 - pool.complete) // LOOKED_AT_EVERY)) :]
    sooner = looks
    for values in fills:
        at = _first_known(values, sooner, of, width)
        sooner = sooner[:at]
    return looks[len(sooner)] if len(sooner) < len(looks) else None


def _first_known(values: Floats, looks: range, population: int, width: float) -> int:
    """The number of the look at which the mean is known; of all looks where it is known at none."""

    def is_known(pieces: int) -> bool:
        return _interval_width(values[:pieces], population) <= width

    return bisect_left(looks[:-1], True, key=is_known) if looks and is_known(looks[-1]) else len(looks)


def _interval_width(values: Floats, population: int) -> float:
    low, high = interval(values, alpha=ESTIMATE_ALPHA, population=population)
    return high - low


@lru_cache(maxsize=4096)
def _width(values: bytes, population: int) -> float:
    """Of the interval of the mean; a prefix of a queue is looked at again and again."""
    return _interval_width(np.frombuffer(values), population)
