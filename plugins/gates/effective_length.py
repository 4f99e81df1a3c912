"""RULER's summary of a curve: effective length and weighted averages (Hsieh et al. 2024, §4, Table 3)."""

from __future__ import annotations

from collections.abc import Mapping


def effective_length(scores: Mapping[int, float], threshold: float) -> int | None:
    """The longest length whose score (0 to 100) is strictly above the threshold; None if there is none."""
    _require(scores)
    return max((length for length, score in scores.items() if score > threshold), default=None)


def contiguous_effective_length(scores: Mapping[int, float], threshold: float) -> int | None:
    """The longest length that passes together with all shorter ones; None if the shortest does not."""
    _require(scores)
    longest = None
    for length in sorted(scores):
        if scores[length] <= threshold:
            break
        longest = length
    return longest


def effective_length_label(scores: Mapping[int, float], threshold: float) -> str:
    """`4096`, `<1024` where no tested length passes, `>8192` where the longest tested one does."""
    longest = effective_length(scores, threshold)
    if longest is None:
        return f"<{min(scores)}"
    return f">{longest}" if longest == max(scores) else str(longest)


def average(scores: Mapping[int, float]) -> float:
    """The plain mean over lengths."""
    _require(scores)
    return sum(scores.values()) / len(scores)


def weighted_average(scores: Mapping[int, float], *, rising: bool) -> float:
    """The mean with weights 1 to n over the lengths: the longest weighs most if rising, else least."""
    _require(scores)
    lengths = sorted(scores, reverse=not rising)
    weights = range(1, len(lengths) + 1)
    return sum(weight * scores[length] for weight, length in zip(weights, lengths, strict=True)) / sum(weights)


def _require(scores: Mapping[int, float]) -> None:
    if not scores:
        raise ValueError("no scores: a summary of nothing is not a number")
