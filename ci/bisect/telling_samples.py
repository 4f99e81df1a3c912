"""The samples on which the endpoints of a search differ: a few of them tell whether a step has the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ci.bisect.journal_stats import Flip
from fixtures.seeding import stable_hash

# Enough contexts for a certain verdict if some of them differ by chance.
MOST_CONTEXTS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TellingSamples:
    """Samples that the bad endpoint answers worse than the good one."""

    values: tuple[str, ...]
    """Values of `--only-samples`, one for each case; empty without such samples."""
    loss_points: float
    """The mean loss of the bad endpoint on them, in points."""


def telling_samples(flips: Sequence[Flip], groups: Mapping[str, int], most: int = MOST_CONTEXTS) -> TellingSamples:
    """Choose up to `most` of the contexts on which the bad endpoint is worse. The choice is always the same.

    `groups` are the numbers of consecutive samples that share a context, by case id. All samples of a context come
    together, as in every run.
    """
    losses: dict[tuple[str, int], float] = {}
    for flip in flips:
        context = flip.case, flip.index // groups[flip.case]
        losses[context] = losses.get(context, 0.0) + flip.before - flip.after
    worse = [context for context, loss in losses.items() if loss > 0]
    chosen = sorted(worse, key=lambda context: stable_hash("telling", *context))[:most]
    indices: dict[str, list[int]] = {}
    for case, number in sorted(chosen):
        indices.setdefault(case, []).extend(range(number * groups[case], (number + 1) * groups[case]))
    samples = sum(map(len, indices.values()))
    return TellingSamples(
        values=tuple(f"{case}:{','.join(map(str, of_case))}" for case, of_case in indices.items()),
        loss_points=100 * sum(losses[context] for context in chosen) / samples if samples else 0.0,
    )
