"""The measurements of one search: its settings, the answers of steps, and the confirmation of the edge."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from longctx.ci.bisect.compare import Bounds, Endpoints, EndpointsError, Suite, extended, regression_gate
from longctx.ci.bisect.journal_stats import Answers, Flip, SampleScores, flipped, scores_of, stored_answers
from longctx.ci.bisect.posterior import EndpointVotes, Posterior, Reading
from longctx.ci.bisect.search import Edge, Request, StepResult
from longctx.ci.checkpoint_dirs import Step
from longctx.fixtures.checkpoints.safetensors import CheckpointError
from longctx.fixtures.records.report_parts import Interval
from longctx.fixtures.seeding import stable_hash

# The probability of error of the comparison of the two steps of an edge, which only describes the loss there.
EDGE_ALPHA = 0.01

# Of scores with many values, small differences are as often chance as not. Contexts tell if they differ by at least
# this share of the mean difference.
LEAST_DIFFERENCE_SHARE = 0.5


Place = tuple[str, int]
"""A case, and the number of a context within it, which consecutive samples share; or the index of a sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TellingSamples:
    """The contexts on which the bad endpoint is worse, in the order in which steps answer them."""

    contexts: tuple[tuple[Place, float], ...]
    """The places of contexts, each with the sum of its scores at the good endpoint less that at the bad one."""
    groups: Mapping[str, int]
    """The number of consecutive samples that share a context, by case id."""
    votes: EndpointVotes

    def values(self, count: int) -> tuple[str, ...]:
        """Return the values of `--only-samples` for the first contexts, one for each case."""
        indices: dict[str, list[int]] = {}
        for place, _ in self.contexts[:count]:
            for case, index in self._samples(place):
                indices.setdefault(case, []).append(index)
        values = []
        for case, of_case in sorted(indices.items()):
            numbers = ",".join(map(str, sorted(of_case)))
            values.append(f"{case}:{numbers}")
        return tuple(values)

    def reading(self, good: SampleScores, step: SampleScores, count: int) -> Reading:
        """Return the answers of a step to the first contexts, up to the first one that it did not answer wholly."""
        losses = []
        for place, loss in self.contexts[:count]:
            samples = self._samples(place)
            if any(sample not in step for sample in samples):
                break
            lost = sum(good[sample] - step[sample] for sample in samples)
            losses.append(min(1.0, max(0.0, lost / loss)))
        return tuple(losses)

    def samples(self, count: int) -> int:
        return sum(self.groups[case] for (case, _), _ in self.contexts[:count])

    def _samples(self, place: Place) -> list[Place]:
        case, number = place
        first, group = number * self.groups[case], self.groups[case]
        return [(case, index) for index in range(first, first + group)]


def telling_samples(
    flips: Sequence[Flip], groups: Mapping[str, int], earlier: TellingSamples | None = None
) -> TellingSamples:
    """Choose the telling contexts, in an order that is always the same.

    Those that steps may have answered already, `earlier`, come first.
    """
    losses: dict[Place, float] = {}
    for flip in flips:
        place = flip.case, flip.index // groups[flip.case]
        losses[place] = losses.get(place, 0.0) + flip.before - flip.after
    sizes = [abs(loss) for loss in losses.values() if loss]
    least = LEAST_DIFFERENCE_SHARE * sum(sizes) / max(1, len(sizes))
    contexts = {} if earlier is None else dict(earlier.contexts)
    better = 0
    for place in sorted(losses, key=lambda place: stable_hash("telling", *place)):
        loss = losses[place]
        if loss > 0 and loss >= least:
            contexts.setdefault(place, loss)
        elif loss < 0 and -loss >= least:
            better += 1
    votes = EndpointVotes(worse=len(contexts), better=better)
    return TellingSamples(contexts=tuple(contexts.items()), groups=groups, votes=votes)


def edge_bounds(loss_points: float) -> Bounds:
    """Return the bounds for a comparison of two steps, which may have this loss."""
    # With half of this drop, half of the loss is the limit where all pairs are known.
    return Bounds(confidence=1 - EDGE_ALPHA, drop_points=2 / 3 * loss_points)


Note = Callable[[Mapping[int, StepResult], Posterior, Sequence[int]], None]


class Bisection:
    """A series of checkpoints from a good one to a bad one, and the measurements of those between them."""

    def __init__(self, suite: Suite, steps: Sequence[Step], endpoints: Endpoints, *, confidence: float):
        self.suite = suite
        self.steps = steps
        """All checkpoints by step: the good endpoint first, the bad one last."""
        self.endpoints = endpoints
        self.confidence = confidence
        """The probability from which a step or a range is certain, 0 to 1."""
        self.note: Note = lambda *_: None
        self.can_extend = True
        """False once the endpoints cannot be measured on more samples."""
        self._telling = self._choose(None)

    @property
    def last(self) -> int:
        return len(self.steps) - 1

    @property
    def votes(self) -> EndpointVotes:
        return self._telling.votes

    @property
    def telling(self) -> int:
        return len(self._telling.contexts)

    def measure(self, requests: Sequence[Request]) -> list[StepResult]:
        submit = self.suite.execution.submit
        running = [submit(self._answers, request.position, request.samples) for request in requests]
        return [future.result() for future in running]

    def extend(self) -> None:
        """Measure the endpoints on twice as many samples, if there are so many."""
        more = extended(self.endpoints, self.suite, self.steps[0], self.steps[-1], self.confidence)
        self.can_extend = more is not None
        if more is not None:
            self.endpoints = more
            self._telling = self._choose(self._telling)

    def answers(self, step: Step) -> Answers:
        """Return the results of a step that the journal has now; raise CheckpointError."""
        fingerprint = self.suite.journal_fingerprint(step.path)
        return stored_answers(self.endpoints.report, fingerprint, self.endpoints.cases, self.suite.samples)

    def _choose(self, earlier: TellingSamples | None) -> TellingSamples:
        good = self.answers(self.steps[0])
        self._good = scores_of(good)
        groups = {case.id: case.group for case in self.endpoints.report.cases}
        telling = telling_samples(flipped(good, self.answers(self.steps[-1])), groups, earlier)
        if not telling.contexts:
            raise EndpointsError(3, "--journal: the answers of --good and --bad are gone from it; name another --out")
        return telling

    def _answers(self, position: int, count: int) -> StepResult:
        step, good, only = self.steps[position], self.steps[0], self._telling.values(count)
        bounds = edge_bounds(self.endpoints.loss_points)
        try:
            run = self.suite.compare(step.path, good.path, bounds, cases=self.endpoints.cases, only=only, full=True)
            answers = scores_of(self.answers(step))
        except CheckpointError as error:
            return StepResult(reason=str(error))
        reading = self._telling.reading(self._good, answers, count)
        if not reading:
            gate = regression_gate(run.report)
            reason = run.reason or (gate.reason if gate else "") or "the run answered no telling sample"
            return StepResult(reason=reason)
        return StepResult(reading=reading, pairs=self._telling.samples(len(reading)))


# A second loss before or behind the edge is named from this probability on.
HINT_PROBABILITY = 0.3


class OtherLoss(NamedTuple):
    """A second loss outside the edge, which no measurement has confirmed."""

    before: Step
    after: Step
    probability: float


def other_losses(bisection: Bisection, edge: Edge) -> Iterator[OtherLoss]:
    """Yield the losses before the last good step and behind the first bad one at which the answers hint."""
    for before, after in ((0, edge.last_good), (edge.first_bad, bisection.last)):
        probability = edge.posterior.fell(before, after) if before < after else 0.0
        if probability >= HINT_PROBABILITY:
            yield OtherLoss(bisection.steps[before], bisection.steps[after], probability)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """The last good step compared with the first bad one."""

    difference: float | None = None
    """Mean score of the bad step minus that of the good one, in points; None if they were not compared."""
    interval: Interval | None = None
    """Confidence interval of the difference, in points; None if they were not compared."""
    pairs: int = 0
    """Number of samples that both steps answered."""
    reason: str = ""
    """One line that says why they could not be compared."""
    flips: tuple[Flip, ...] = ()
    """Samples that the two steps score differently; none if one of them cannot be read."""


def confirm(bisection: Bisection, edge: Edge) -> Confirmation:
    """Compare the two steps of the edge, and read their flips."""
    good, bad = bisection.steps[edge.last_good], bisection.steps[edge.first_bad]
    endpoints = bisection.endpoints
    bounds = edge_bounds(endpoints.loss_points)
    try:
        run = bisection.suite.compare(bad.path, good.path, bounds, cases=endpoints.cases)
        flips = flipped(bisection.answers(good), bisection.answers(bad))
    except CheckpointError as error:
        return Confirmation(reason=str(error))
    gate = regression_gate(run.report)
    if gate is None:
        return Confirmation(reason=run.reason or "the run compared nothing", flips=flips)
    if gate.measured is None or gate.interval is None:
        return Confirmation(reason=gate.reason, flips=flips)
    return Confirmation(difference=gate.measured, interval=gate.interval, pairs=gate.samples, flips=flips)
