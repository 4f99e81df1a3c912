"""Search for the step at which a training run became worse. Pure: callbacks measure the steps.

This is a noisy binary search. Each round measures the step that splits the probability of the edge in halves or, with
`parallel` steps at a time, in that many parts and one. A step first answers a few telling samples; it answers more of
them where the search comes back to it because they did not tell. The search ends once one step is certain, or once no
telling sample that could change the result is left: then it names a range.

Histories need not be one step. Where a measured step behind an edge is good again, the loss was a dip, and the search
goes on behind it.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np

from longctx.ci.bisect.posterior import FALL_SHARE, EndpointVotes, Floats, Posterior, Reading

Verdict = Literal["good", "bad", "skipped"]

# Telling samples that a step answers first; each time that they do not tell, their number doubles.
FIRST_SAMPLES = 12
# A step is measured further while it is neither good nor bad but for this share of the search's probability of error.
OPEN_SHARE = 0.25
# Where all telling samples of so many steps do not tell, a range is the result.
MOST_EXHAUSTED = 5
# A step at which the run surely fell is the result if the loss of the bad endpoint began there, not only a dip.
FINAL_PROBABILITY = 0.9
# Without a loss between the endpoints in so many of a hundred histories, nothing is left to search.
NO_LOSS_PROBABILITY = 0.97
# The narrowest range in which the run fell by just enough would often be one in which it fell by slightly less. So
# a range is chosen by a larger fall than the one that is stated.
RANGE_SHARE = 0.4
# For a range of so few steps, the endpoints are not measured on more samples.
NARROW_STEPS = 3
# Bounds the rounds of a search where telling samples do not tell.
MAX_ROUNDS_PER_HALVING, MORE_ROUNDS = 4, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """One measurement of a step."""

    reading: Reading | None = None
    """All its answers to telling samples so far; None if it could not be measured."""
    pairs: int = 0
    """Number of samples that the step and the good endpoint both answered."""
    reason: str = ""
    """One line that says why the step cannot be measured; empty if it can."""


class Dip(NamedTuple):
    """A temporary loss: an edge behind which the run was good again. All fields are positions in the series."""

    last_good: int
    first_bad: int
    good_again: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The result of a search: the run became worse after one position, and at another one behind it at the latest."""

    last_good: int
    """Position of the step before the loss."""
    first_bad: int
    """Position of the step behind the loss."""
    probability: float
    """Probability that the run became worse between the two; never surer than that the endpoints differ."""
    likeliest: int
    """Position of the step at which it became worse most probably."""
    is_shown: bool
    """False if not even the endpoints differ with enough probability."""
    results: Mapping[int, StepResult]
    """All measured or skipped steps by position, in the order of the search."""
    posterior: Posterior
    """The probabilities that all answers together give."""
    dips: tuple[Dip, ...] = ()
    """Earlier edges that turned out to be temporary."""

    @property
    def skipped(self) -> tuple[int, ...]:
        """Positions between the two steps that could not be measured."""
        between = range(self.last_good + 1, self.first_bad)
        skipped = {position for position, result in self.results.items() if result.reason}
        return tuple(position for position in between if position in skipped)

    @property
    def is_step(self) -> bool:
        """True if no step that could be measured lies between the two."""
        return len(self.skipped) == self.first_bad - self.last_good - 1


class Request(NamedTuple):
    """One step to measure."""

    position: int
    samples: int
    """Telling samples that it answers in all."""


class Steps(Protocol):
    """The interface through which a search measures steps."""

    @property
    def votes(self) -> EndpointVotes:
        """Contexts on which the endpoints differ."""

    @property
    def telling(self) -> int:
        """Telling samples that a step can answer."""

    def measure(self, requests: Sequence[Request]) -> Sequence[StepResult]:
        """Measure some steps, at the same time if possible; return the results in the same order."""

    @property
    def can_extend(self) -> bool:
        """True until `extend` has no more samples."""

    def extend(self) -> None:
        """Measure the endpoints on more samples to find more telling ones."""

    @property
    def note(self) -> Callable[[Mapping[int, StepResult], Posterior, Sequence[int]], None]:
        """Shows the state of the search after a round that measured some positions."""


def search(last: int, steps: Steps, *, confidence: float, parallel: int = 1) -> Edge:
    """Return where a run became worse between position 0, the good endpoint, and position `last`, the bad one.

    A step is named if it is right with the probability `confidence`; else the narrowest range with that probability.
    """
    return _Search(last, steps, confidence, parallel).run()


class _Search:
    def __init__(self, last: int, steps: Steps, confidence: float, parallel: int):
        self._last = last
        self._steps = steps
        self._confidence = confidence
        self._parallel = parallel
        self._rounds_left = MAX_ROUNDS_PER_HALVING * math.ceil(math.log2(last + 1)) + MORE_ROUNDS
        self._asked: dict[int, int] = {}
        self.results: dict[int, StepResult] = {}
        self.posterior = self._posterior()

    def run(self) -> Edge:
        while self._rounds_left > 0:
            if self._certain_edge() is not None:
                break
            requests = self._bisecting()
            if requests:
                self._measure(requests)
            elif self._is_narrow() or not self._steps.can_extend:
                break
            else:
                self._steps.extend()
                self.posterior = self._posterior()
        return self._edge()

    def _is_narrow(self) -> bool:
        """Return True if a range of so few steps is certain that more samples of the endpoints are not worth it."""
        low, high = self._range()
        return high - low <= NARROW_STEPS < self._last and self._fell(low, high) >= self._confidence

    def _measure(self, requests: Sequence[Request]) -> None:
        self._rounds_left -= 1
        for request, result in zip(requests, self._steps.measure(requests), strict=True):
            self.results[request.position] = result
            self._asked[request.position] = max(request.samples, len(result.reading or ()))
        self.posterior = self._posterior()
        self._steps.note(self.results, self.posterior, [request.position for request in requests])

    def _fell(self, low: int, high: int, share: float = FALL_SHARE) -> float:
        """Return the probability that the run fell between two positions, by this share of the loss or more.

        Where the endpoints have lost nothing, no step has. So nothing is surer than the loss of the endpoints.
        """
        return min(self.posterior.fell(low, high, share), 1 - self._steps.votes.p_value)

    def _posterior(self) -> Posterior:
        readings = {position: result.reading for position, result in self.results.items() if result.reading}
        return Posterior(self._last, readings, self._steps.votes)

    def _begins(self) -> Floats:
        """Return for each position the probability that the loss of the bad endpoint had begun there, without end."""
        begun = np.minimum.accumulate(self.posterior.lost[::-1])[::-1]
        begun[0], begun[-1] = 0.0, 1.0
        weights = np.diff(begun, prepend=0.0).clip(min=0.0)
        begins: Floats = weights / weights.sum()
        return begins

    def _certain_edge(self) -> tuple[int, int] | None:
        """Return the positions around the step at which the loss surely began, only skipped ones between, or None."""
        begins = self._begins()
        measurable = [position for position in range(self._last + 1) if not self._is_skipped(position)]
        for low, high in itertools.pairwise(measurable):
            if begins[low + 1 : high + 1].sum() >= FINAL_PROBABILITY:
                return (low, high) if self._fell(low, high) >= self._confidence else None
        return None

    def _bisecting(self) -> list[Request]:
        """Return the steps whose measurement splits the probability of the edge best.

        None are returned if nothing would tell, or if the endpoints must give more telling samples first.
        """
        if self.posterior.loss < 1 - NO_LOSS_PROBABILITY:
            return []
        begun = np.cumsum(self._begins())
        open_share = (1 - self._confidence) * OPEN_SHARE
        requests: dict[int, Request] = {}
        for number in range(1, self._parallel + 1):
            target = number / (self._parallel + 1)
            exhausted = 0
            for position in sorted(range(1, self._last), key=lambda position: abs(begun[position] - target)):
                if position in requests:
                    continue
                if not open_share < begun[position] < 1 - open_share or (exhausted and self._steps.can_extend):
                    break
                samples = self._next_samples(position)
                if samples is not None and (exhausted <= MOST_EXHAUSTED or position in self.results):
                    requests[position] = Request(position, samples)
                    break
                exhausted += not self._is_skipped(position)
        return list(requests.values()) or self._sharpening()

    def _sharpening(self) -> list[Request]:
        """Return the two steps of the likeliest edge, as far as they can answer more telling samples."""
        likeliest = int(np.argmax(self.posterior.falls))
        requests = []
        for position in (likeliest - 1, likeliest):
            samples = self._next_samples(position) if 0 < position < self._last else None
            if samples is not None:
                requests.append(Request(position, samples))
        return requests

    def _is_skipped(self, position: int) -> bool:
        return position in self.results and bool(self.results[position].reason)

    def _next_samples(self, position: int) -> int | None:
        """Return how many telling samples a step should have answered next; None if it cannot answer more."""
        result = self.results.get(position)
        if result is None:
            return min(FIRST_SAMPLES, self._steps.telling)
        if result.reason:
            return None
        answered = self._asked[position]
        wanted = min(max(FIRST_SAMPLES, 2 * answered), self._steps.telling)
        return wanted if wanted > answered else None

    def _edge(self) -> Edge:
        low, high = self._certain_edge() or self._range()
        probability = self._fell(low, high)
        falls = self.posterior.falls
        likeliest = low + 1 + int(np.argmax(falls[low + 1 : high + 1]))
        return Edge(
            last_good=low, first_bad=high, probability=probability, likeliest=likeliest,
            is_shown=probability >= self._confidence,
            results=self.results, posterior=self.posterior, dips=tuple(self._dips(low)),
        )  # fmt: skip

    def _range(self) -> tuple[int, int]:
        """Return the narrowest range between measured steps that is certain; the whole series if there is none."""
        known = {0, self._last}
        known.update(position for position, result in self.results.items() if result.reading)
        begins = self._begins()

        def rank(pair: tuple[int, int]) -> tuple[int, float]:
            low, high = pair
            return high - low, -begins[low + 1 : high + 1].sum()

        for low, high in sorted(itertools.combinations(sorted(known), 2), key=rank):
            if self._fell(low, high, RANGE_SHARE) >= self._confidence:
                return low, high
        return 0, self._last

    def _dips(self, last_good: int) -> Iterator[Dip]:
        """Return the losses before a good step that the run surely recovered from."""
        lost = self.posterior.lost
        good, bad = 0, None
        for position in sorted(position for position, result in self.results.items() if result.reading):
            if position > last_good:
                break
            if lost[position] > FINAL_PROBABILITY and bad is None:
                bad = position
            elif lost[position] < 1 - FINAL_PROBABILITY:
                if bad is not None:
                    yield Dip(good, bad, position)
                good, bad = position, None
