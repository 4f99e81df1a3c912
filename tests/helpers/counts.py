"""Token counts that are known: of a model that runs in this process, and of a prefix cache."""

from collections.abc import Sequence
from dataclasses import dataclass

from longctx.fixtures.engines.prefix_order import Ids, common_prefix, visiting_order


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
