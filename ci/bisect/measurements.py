"""The measurements of one search: its settings, the answers of steps, and the confirmation of the edge."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from longctx.ci.bisect.compare import Bounds, Comparison, Suite, compare_step, regression_gate, search_bounds
from longctx.ci.bisect.endpoints import Endpoints, extended
from longctx.ci.bisect.journal_stats import Flip, JournalStats, SampleScores
from longctx.ci.bisect.posterior import EndpointVotes, Posterior, Reading
from longctx.ci.bisect.search import Edge, Request, StepResult
from longctx.ci.checkpoint_dirs import Step
from longctx.fixtures.checkpoints.safetensors import CheckpointError
from longctx.fixtures.seeding import stable_hash

# The probability of error of the comparison of the two steps of an edge, which only describes the loss there.
EDGE_ALPHA = 0.01

# Of scores with many values, small differences are as often chance as not. Contexts tell if they differ by at least
# this share of the mean difference.
LEAST_DIFFERENCE_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    """Consecutive samples of a case that share a context; a single sample where none do."""

    case: str
    number: int
    """The number of the context within the case."""
    loss: float
    """The sum of the samples' scores at the good endpoint, less that at the bad one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TellingSamples:
    """The contexts on which the bad endpoint is worse, in the order in which steps answer them."""

    contexts: tuple[_Context, ...]
    groups: Mapping[str, int]
    """The number of consecutive samples that share a context, by case id."""
    votes: EndpointVotes

    def values(self, count: int) -> tuple[str, ...]:
        """Return the values of `--only-samples` for the first contexts, one for each case."""
        indices: dict[str, list[int]] = {}
        for context in self.contexts[:count]:
            indices.setdefault(context.case, []).extend(self._indices(context))
        values = []
        for case, of_case in sorted(indices.items()):
            numbers = ",".join(map(str, sorted(of_case)))
            values.append(f"{case}:{numbers}")
        return tuple(values)

    def reading(self, good: SampleScores, step: SampleScores, count: int) -> Reading:
        """Return the answers of a step to the first contexts, up to the first one that it did not answer wholly."""
        losses = []
        for context in self.contexts[:count]:
            samples = [(context.case, index) for index in self._indices(context)]
            if any(sample not in step for sample in samples):
                break
            lost = sum(good[sample] - step[sample] for sample in samples)
            losses.append(min(1.0, max(0.0, lost / context.loss)))
        return Reading(losses=tuple(losses))

    def samples(self, count: int) -> int:
        """Return the number of samples in the first contexts."""
        return sum(self.groups[context.case] for context in self.contexts[:count])

    def _indices(self, context: _Context) -> range:
        group = self.groups[context.case]
        return range(context.number * group, (context.number + 1) * group)


def telling_samples(
    flips: Sequence[Flip], groups: Mapping[str, int], earlier: TellingSamples | None = None
) -> TellingSamples:
    """Choose the telling contexts, in an order that is always the same.

    Those that steps may have answered already, `earlier`, come first.
    """
    losses: dict[tuple[str, int], float] = {}
    for flip in flips:
        place = flip.case, flip.index // groups[flip.case]
        losses[place] = losses.get(place, 0.0) + flip.before - flip.after
    sizes = [abs(loss) for loss in losses.values() if loss]
    least = LEAST_DIFFERENCE_SHARE * sum(sizes) / max(1, len(sizes))
    worse, better = [], 0
    for (case, number), loss in losses.items():
        if loss > 0 and loss >= least:
            worse.append(_Context(case=case, number=number, loss=loss))
        elif loss < 0 and -loss >= least:
            better += 1
    contexts = [] if earlier is None else list(earlier.contexts)
    known = {(context.case, context.number) for context in contexts}
    for context in sorted(worse, key=lambda context: stable_hash("telling", context.case, context.number)):
        if (context.case, context.number) not in known:
            contexts.append(context)
    votes = EndpointVotes(worse=len(contexts), better=better)
    return TellingSamples(contexts=tuple(contexts), groups=groups, votes=votes)


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
        self._good: SampleScores = {}
        self._telling = self._choose(None)

    @property
    def last(self) -> int:
        """Position of the bad endpoint."""
        return len(self.steps) - 1

    @property
    def votes(self) -> EndpointVotes:
        """Contexts on which the endpoints differ."""
        return self._telling.votes

    @property
    def telling(self) -> int:
        """Number of contexts on which the bad endpoint is worse."""
        return len(self._telling.contexts)

    def measure(self, requests: Sequence[Request]) -> list[StepResult]:
        """Measure some steps, as many at a time as the execution allows."""
        submit = self.suite.execution.submit
        running = [submit(self._answers, request.position, request.samples) for request in requests]
        return [future.result() for future in running]

    def extend(self) -> bool:
        """Measure the endpoints on twice as many samples; return False if there are no more."""
        more = None
        if self.can_extend:
            more = extended(self.endpoints, self.suite, self.steps[0], self.steps[-1], self.confidence)
        self.can_extend = more is not None
        if more is None:
            return False
        self.endpoints = more
        self._telling = self._choose(self._telling)
        return True

    @property
    def bounds(self) -> Bounds:
        """The bounds for comparisons of steps."""
        return search_bounds(self.endpoints.loss_points, alpha=EDGE_ALPHA)

    def stats(self) -> JournalStats:
        """Return the statistics of the journal as it is now."""
        return JournalStats(self.endpoints.report, self.suite.samples)

    def _choose(self, earlier: TellingSamples | None) -> TellingSamples:
        good = self.suite.journal_fingerprint(self.steps[0].path)
        bad = self.suite.journal_fingerprint(self.steps[-1].path)
        groups = {case.id: case.group for case in self.endpoints.report.cases}
        stats = self.stats()
        self._good = stats.scores(good, self.endpoints.cases)
        return telling_samples(stats.flips(good, bad, self.endpoints.cases), groups, earlier)

    def _answers(self, position: int, count: int) -> StepResult:
        """Return a step's answers to the first telling contexts."""
        step, good = self.steps[position].path, self.steps[0].path
        only = self._telling.values(count)
        try:
            run = self.suite.compare(step, good, self.bounds, cases=self.endpoints.cases, only=only, full=True)
            fingerprint = self.suite.journal_fingerprint(step)
        except CheckpointError as error:
            return StepResult(reason=str(error))
        reading = self._telling.reading(self._good, self.stats().scores(fingerprint, self.endpoints.cases), count)
        if not reading.samples:
            gate = regression_gate(run.report)
            reason = run.reason or (gate.reason if gate else "") or "the run answered no telling sample"
            return StepResult(reason=reason)
        return StepResult(reading=reading, pairs=self._telling.samples(reading.samples))


# A second loss before or behind the edge is named from this probability on.
HINT_PROBABILITY = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherLoss:
    """A second loss outside the edge, which no measurement has confirmed."""

    before: Step
    after: Step
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """Everything that was measured after the search itself."""

    edge: Comparison
    """The first bad step compared with the last good one."""
    other_losses: tuple[OtherLoss, ...]
    flips: tuple[Flip, ...]
    """Samples that the last good and the first bad step score differently; none if one of them cannot be read."""


def confirm(bisection: Bisection, edge: Edge) -> Confirmation:
    """Compare the two steps of the edge, and read other losses and flips from the answers of all steps."""
    suite, cases = bisection.suite, bisection.endpoints.cases
    good, bad = bisection.steps[edge.last_good].path, bisection.steps[edge.first_bad].path
    comparison = compare_step(suite, bad, good, bisection.bounds, cases)
    flips: tuple[Flip, ...] = ()
    with contextlib.suppress(CheckpointError):
        fingerprints = suite.journal_fingerprint(good), suite.journal_fingerprint(bad)
        flips = bisection.stats().flips(*fingerprints, cases)
    return Confirmation(edge=comparison, other_losses=_other_losses(bisection, edge), flips=flips)


def _other_losses(bisection: Bisection, edge: Edge) -> tuple[OtherLoss, ...]:
    """Return the losses before the last good step and behind the first bad one at which the answers hint."""
    losses = []
    for before, after in ((0, edge.last_good), (edge.first_bad, bisection.last)):
        probability = edge.posterior.fell(before, after) if before < after else 0.0
        if probability >= HINT_PROBABILITY:
            steps = bisection.steps[before], bisection.steps[after]
            losses.append(OtherLoss(before=steps[0], after=steps[1], probability=probability))
    return tuple(losses)
