"""The tokens that the samples of a run took."""

from __future__ import annotations

from collections.abc import Iterable

from plugins.gates.evaluate import Measured


def tokens_of(measured: Measured) -> dict[str, int | None]:
    """Return the tokens of all finished samples, and an estimate for a run of all planned samples.

    A sum is None if the tokens of a sample are not known.
    """
    generations = [outcome.generation for result in measured.results.values() for outcome in result.outcomes]
    return {
        "prompt": _total(generation.prompt_tokens for generation in generations),
        "generated": _total(generation.generated_tokens for generation in generations),
        "computed": _total(generation.computed_tokens for generation in generations),
        "reused": _total(generation.reused_tokens for generation in generations),
        "full_run_equivalent": _full_run_tokens(measured),
    }


def _total(counts: Iterable[int | None]) -> int | None:
    """Return the sum of counts; None if one of them is not known."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def counted(count: int | None) -> str:
    """Return a number of tokens as reports show it."""
    return "unknown" if count is None else f"{count:,}"


def _full_run_tokens(measured: Measured) -> int:
    """Estimate the computed tokens of all planned samples from the mean of every case's finished samples."""
    total = 0.0
    for case in measured.scope.cases:
        result = measured.results.get(case.id)
        counts = [outcome.generation.computed_tokens for outcome in result.outcomes] if result else []
        computed = [count for count in counts if count is not None]
        total += len(case.planned) * (sum(computed) / len(computed) if computed else case.length)
    return round(total)
