"""Binary search for the step at which a training run became worse. Pure: a callback measures the steps.

Histories need not be monotone. In any history, a binary search ends between a good and a bad neighbour, but if there
are several such edges, it cannot know which one it has reached. So the search measures one more step behind the edge,
in the middle of the widest range that was only assumed to be bad. If that step is good, the edge belongs to a dip, and
the search continues behind it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Verdict = Literal["good", "bad", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepVerdict:
    """The result of one step's comparison with a good checkpoint."""

    verdict: Verdict
    difference: float | None = None
    """Mean score of the step minus that of the good checkpoint, in points; None if they were not compared."""
    interval: tuple[float, float] | None = None
    """Confidence interval of the difference, in points; None if they were not compared."""
    pairs: int = 0
    """Number of samples that both checkpoints answered."""
    reason: str = ""
    """One line that says why the step was skipped."""

    def as_json(self) -> dict[str, Any]:
        """Return the verdict under the keys of `bisect.json`."""
        return {
            "word": self.verdict,
            "difference": self.difference,
            "interval": self.interval,
            "pairs": self.pairs,
            "reason": self.reason,
        }


class Dip(NamedTuple):
    """A temporary loss: an edge behind which the run was good again. All fields are positions in the series."""

    last_good: int
    first_bad: int
    good_again: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The result of a search: a good step, and a bad one behind it with only skipped ones between them."""

    last_good: int
    """Position of the good step in the series."""
    first_bad: int
    """Position of the bad step in the series."""
    verdicts: Mapping[int, StepVerdict]
    """Verdicts of all measured or skipped steps by position, in the order of the search."""
    dips: tuple[Dip, ...] = ()
    """Earlier edges that turned out to be temporary."""

    @property
    def skipped(self) -> tuple[int, ...]:
        """Positions between the two steps; none of them could be measured."""
        return tuple(range(self.last_good + 1, self.first_bad))


def search(last: int, measure: Callable[[int], StepVerdict]) -> Edge:
    """Return an edge between position 0, which is good, and position `last`, which is bad.

    `measure` returns the verdict of a position between the two; it is called once for a position.
    """
    verdicts: dict[int, StepVerdict] = {}
    dips: list[Dip] = []
    low, high = 0, last
    while True:
        low, high = _halve(low, high, verdicts, measure)
        doubtful = _widest_unmeasured_middle(high, last, verdicts)
        if doubtful is None:
            break
        verdicts[doubtful] = measure(doubtful)
        if verdicts[doubtful].verdict != "good":
            break
        dips.append(Dip(low, high, doubtful))
        low = doubtful
        high = min(position for position in (*_positions(verdicts, "bad"), last) if position > doubtful)
    return Edge(last_good=low, first_bad=high, verdicts=verdicts, dips=tuple(dips))


def max_measurements(last: int) -> int:
    """Return the most steps that `search` measures in a monotone history without skipped steps."""
    return max(1, (last - 1).bit_length() + 1) if last > 1 else 0


def _halve(
    low: int, high: int, verdicts: dict[int, StepVerdict], measure: Callable[[int], StepVerdict]
) -> tuple[int, int]:
    """Narrow the range between a good and a bad position until all positions inside it have verdicts."""
    while unmeasured := [position for position in range(low + 1, high) if position not in verdicts]:
        middle = unmeasured[len(unmeasured) // 2]
        verdicts[middle] = measure(middle)
        if verdicts[middle].verdict == "bad":
            high = middle
        elif verdicts[middle].verdict == "good":
            low = middle
    return low, high


def _widest_unmeasured_middle(edge: int, last: int, verdicts: Mapping[int, StepVerdict]) -> int | None:
    """Return the middle of the widest unmeasured range behind the edge, None if there is no such range.

    Both ends of such a range are known to be bad; the positions between them are assumed to be.
    """
    bad = sorted({edge, last, *(position for position in _positions(verdicts, "bad") if position >= edge)})
    ranges = [
        [position for position in range(low + 1, high) if position not in verdicts]
        for low, high in itertools.pairwise(bad)
    ]
    widest = max(ranges, key=len, default=[])
    return widest[len(widest) // 2] if widest else None


def _positions(verdicts: Mapping[int, StepVerdict], wanted: Verdict) -> list[int]:
    return [position for position, verdict in verdicts.items() if verdict.verdict == wanted]
