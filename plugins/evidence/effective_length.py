"""RULER's summaries of scores over lengths: effective length and weighted averages (Hsieh et al. 2024, §4, Table 3).

Scores are from 0 to 100, keyed by length in tokens. All functions raise ValueError without scores.
"""

from collections.abc import Collection, Mapping


def effective_length(scores: Mapping[int, float], threshold: float) -> int | None:
    """Return the longest length whose score is strictly above the threshold; None if there is none."""
    _require(scores)
    return max((length for length, score in scores.items() if score > threshold), default=None)


def contiguous_effective_length(scores: Mapping[int, float], threshold: float) -> int | None:
    """Return the longest length that passes together with all shorter ones; None if the shortest does not pass."""
    _require(scores)
    longest = None
    for length in sorted(scores):
        if scores[length] <= threshold:
            break
        longest = length
    return longest


def effective_length_label(scores: Mapping[int, float], threshold: float) -> str:
    """Return the effective length as text, such as "4096".

    It is "<1024" if no length passes and 1024 is the shortest, and ">8192" if the longest, 8192, passes.
    """
    longest = effective_length(scores, threshold)
    if longest is None:
        return f"<{min(scores)}"
    return f">{longest}" if longest == max(scores) else str(longest)


def average(scores: Mapping[int, float]) -> float:
    _require(scores)
    return sum(scores.values()) / len(scores)


def weighted_average(scores: Mapping[int, float], *, rising: bool) -> float:
    """Return the mean with weights 1 to n over the lengths: the longest has the largest if rising, else the smallest.

    These are the paper's wAvg (inc) and wAvg (dec).
    """
    _require(scores)
    lengths = sorted(scores, reverse=not rising)
    weights = range(1, len(lengths) + 1)
    return sum(weight * scores[length] for weight, length in zip(weights, lengths, strict=True)) / sum(weights)


def _require(scores: Collection[int]) -> None:
    if not scores:
        raise ValueError("no scores: a summary of nothing is not a number")
