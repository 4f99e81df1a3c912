"""Token counts that are known: of a model that runs in this process, and of a prefix cache; counts of draws."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from longctx.fixtures.engines.prefix_order import Ids, common_prefix, visiting_order
from longctx.fixtures.tasks.sample_spec import Draft

# How many standard deviations a chi-square may lie off: once in 100 000 uniform draws.
DEVIATIONS = 4.26


def count(tokens: int | None) -> int:
    """Return a count; raise AssertionError for one that is not known."""
    assert tokens is not None
    return tokens


@dataclass(frozen=True, slots=True)
class PrefillTokens:
    """The tokens of one prompt, by where their keys and values come from."""

    computed: int
    """Tokens that go through the model."""
    reused: int
    """Tokens that are in the cache already."""


def prefill_token_counts(prompts: Sequence[Ids], *, chunk_tokens: int = 1) -> tuple[PrefillTokens, ...]:
    """Return the prefill tokens of each prompt when they are visited one at a time; answers are not counted.

    A prompt reuses whole chunks. It never reuses its last token unless the prompt
    before was the same.
    """
    counts: dict[int, PrefillTokens] = {}
    cached: Ids = ()
    for index in visiting_order(prompts):
        length = len(prompts[index])
        shared = common_prefix(cached, prompts[index])
        reused = length if cached == prompts[index] else min(shared, length - 1) // chunk_tokens * chunk_tokens
        counts[index] = PrefillTokens(length - reused, reused)
        cached = prompts[index]
    return tuple(counts[index] for index in range(len(prompts)))


def is_even(ranks: Iterable[tuple[int, int]]) -> bool:
    """Return True if ranks are uniform draws from their places: chi-square, Wilson and Hilferty's limit."""
    groups: dict[int, Counter[int]] = defaultdict(Counter)
    for rank, places in ranks:
        assert 0 <= rank < places
        groups[places][rank] += 1
    chi_square, freedom = 0.0, 0
    for places, counts in groups.items():
        expected = counts.total() / places
        chi_square += sum((counts[rank] - expected) ** 2 / expected for rank in range(places))
        freedom += places - 1
    spread = 2 / (9 * freedom)
    return chi_square < freedom * (1 - spread + DEVIATIONS * math.sqrt(spread)) ** 3


def ranks_of(drawn: Iterable[Draft]) -> list[tuple[int, int]]:
    return [draft.rank for draft in drawn if draft.rank is not None]
