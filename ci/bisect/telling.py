"""The samples that tell a good step from a bad one: those that the bad endpoint answers worse than the good one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from longctx.ci.bisect.journal_stats import Flip, SampleScores
from longctx.ci.bisect.posterior import EndpointVotes, Reading
from longctx.fixtures.seeding import stable_hash

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
        return tuple(f"{case}:{','.join(map(str, sorted(of_case)))}" for case, of_case in sorted(indices.items()))

    def reading(self, good: SampleScores, step: SampleScores, count: int) -> Reading:
        """Return what a step answered to the first contexts, up to the first one that it did not answer wholly."""
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
        context = flip.case, flip.index // groups[flip.case]
        losses[context] = losses.get(context, 0.0) + flip.before - flip.after
    known = {} if earlier is None else {(context.case, context.number): context for context in earlier.contexts}
    differing = [abs(loss) for loss in losses.values() if loss]
    least = LEAST_DIFFERENCE_SHARE * sum(differing) / len(differing) if differing else 0.0
    worse = [context for context, loss in losses.items() if loss > 0 and loss >= least and context not in known]
    added = sorted(worse, key=lambda context: stable_hash("telling", *context))
    new = (_Context(case=case, number=number, loss=losses[case, number]) for case, number in added)
    return TellingSamples(
        contexts=(*known.values(), *new),
        groups=groups,
        votes=EndpointVotes(
            worse=len(known) + len(added), better=sum(loss < 0 and -loss >= least for loss in losses.values())
        ),
    )  # fmt: skip
