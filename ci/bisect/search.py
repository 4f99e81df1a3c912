"""Search for the step at which a training run became worse. Pure: a callback measures the steps.

One step at a time, this is a binary search. With `parallel` steps at a time, they cut the range into that many parts
and one, of equal size.

Histories need not be monotone. In any history, such a search ends between a good and a bad neighbour, but if there
are several such edges, it cannot know which one it has reached. So the search measures one more step behind the edge,
in the middle of the widest range that was only assumed to be bad. If that step is good, the edge belongs to a dip, and
the search continues behind it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
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
    is_screened: bool = False
    """True if the pairs are the samples on which the endpoints differ, and nothing else was measured."""
    rise_of_loss: float | None = None
    """Nats a token by which the loss of the gold answers exceeds the good endpoint's, if it decided; else None."""

    def as_json(self) -> dict[str, Any]:
        """Return the verdict under the keys of `bisect.json`."""
        return {
            "word": self.verdict,
            "difference": self.difference,
            "interval": self.interval,
            "pairs": self.pairs,
            "reason": self.reason,
            "screened": self.is_screened,
            "rise_of_loss": self.rise_of_loss,
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
    screened: int | None = None
    """Position of the bad step that the screen alone would have named; None for a search without a screen."""

    @property
    def skipped(self) -> tuple[int, ...]:
        """Positions between the two steps; none of them could be measured."""
        return tuple(range(self.last_good + 1, self.first_bad))


# Returns the verdicts of some positions, in their order.
Measure = Callable[[Sequence[int]], Sequence[StepVerdict]]


def search(
    last: int,
    measure: Measure,
    *,
    screen: Measure | None = None,
    parallel: int = 1,
    on_edge: Callable[[int, int], None] = lambda *_: None,
) -> Edge:
    """Return an edge between position 0, which is good, and position `last`, which is bad.

    `measure` gets up to `parallel` positions between the two at a time, and each position once. `on_edge` gets the two
    positions of each edge before the step that may show it to be a dip is measured.

    `screen` is a cheaper measurement that may be wrong. It chooses where to look; the positions of the edge and of its
    dips are then measured too. Once the two disagree, the search starts again from what was measured, without screen.
    """
    state = _Search(measure, parallel, screen)
    low, high = 0, last
    while True:
        low, high = state.narrow(low, high)
        state.note_screened(high)
        if not state.confirm([low, high, *(position for dip in state.dips for position in dip)]):
            low, high = state.restart(last)
            continue
        doubtful = _widest_unmeasured_middle(high, last, state.verdicts)
        if doubtful is None:
            break
        on_edge(low, high)
        state.measure([doubtful])
        if state.verdicts[doubtful].verdict != "good":
            break
        if not state.confirm([doubtful]):
            low, high = state.restart(last)
            continue
        state.dips.append(Dip(low, high, doubtful))
        low = doubtful
        high = min(position for position in (*_positions(state.verdicts, "bad"), last) if position > doubtful)
    return Edge(last_good=low, first_bad=high, verdicts=state.verdicts, dips=tuple(state.dips), screened=state.screened)


def max_measurements(last: int, *, parallel: int = 1) -> int:
    """Return the most steps that `search` measures in a monotone history without skipped steps."""
    unmeasured, measurements = last - 1, 0
    while unmeasured > 0:
        cuts = _cuts(unmeasured, parallel)
        measurements += len(cuts)
        unmeasured = max(after - before - 1 for before, after in itertools.pairwise((-1, *cuts, unmeasured)))
    return measurements + 1 if last > 1 else 0


class _Search:
    """The verdicts of a search and the dips that they show."""

    def __init__(self, measure: Measure, parallel: int, screen: Measure | None):
        self._measure = measure
        self._screen = screen
        self._parallel = parallel
        self._screened: set[int] = set()
        self.verdicts: dict[int, StepVerdict] = {}
        self.dips: list[Dip] = []
        self.screened: int | None = None

    def note_screened(self, first_bad: int) -> None:
        """Remember the last edge that the screen found."""
        if self._screen is not None:
            self.screened = first_bad

    def measure(self, positions: Sequence[int]) -> None:
        """Get the verdicts of some positions, from the screen as long as it was never wrong."""
        self.verdicts.update(zip(positions, (self._screen or self._measure)(positions), strict=True))
        if self._screen is not None:
            self._screened.update(position for position in positions if self.verdicts[position].verdict != "skipped")

    def confirm(self, positions: Sequence[int]) -> bool:
        """Measure those of the positions that were only screened; return False if a verdict changes."""
        unsure = sorted(self._screened.intersection(positions))
        if not unsure:
            return True
        screened = [self.verdicts[position].verdict for position in unsure]
        self.verdicts.update(zip(unsure, self._measure(unsure), strict=True))
        self._screened.difference_update(unsure)
        return screened == [self.verdicts[position].verdict for position in unsure]

    def restart(self, last: int) -> tuple[int, int]:
        """Forget what was only screened, and screen no more; return the range that the measured verdicts leave."""
        for position in self._screened:
            del self.verdicts[position]
        self._screened.clear()
        self._screen = None
        self.dips.clear()
        return self._last_edge(0, sorted(self.verdicts), last)

    def narrow(self, low: int, high: int) -> tuple[int, int]:
        """Narrow the range between a good and a bad position until all positions inside it have verdicts."""
        while unmeasured := [position for position in range(low + 1, high) if position not in self.verdicts]:
            measured = [unmeasured[cut] for cut in _cuts(len(unmeasured), self._parallel)]
            self.measure(measured)
            low, high = self._last_edge(low, measured, high)
        return low, high

    def _last_edge(self, low: int, measured: Sequence[int], high: int) -> tuple[int, int]:
        """Return the last good position, and the bad one behind it; every bad one before it began a dip."""
        first_bad: int | None = None
        for position in measured:
            verdict = self.verdicts[position].verdict
            if verdict == "bad" and first_bad is None:
                first_bad = position
            elif verdict == "good":
                if first_bad is not None:
                    self.dips.append(Dip(low, first_bad, position))
                low, first_bad = position, None
        return low, high if first_bad is None else first_bad


def _cuts(length: int, parallel: int) -> list[int]:
    """Return up to `parallel` indices that cut a sequence of this length into parts of equal size."""
    return sorted({length * number // (parallel + 1) for number in range(1, parallel + 1)})


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
