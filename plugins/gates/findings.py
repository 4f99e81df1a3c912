"""The findings of a gate at single lengths, and what they say together about the effective length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fixtures.lengths import format_length
from fixtures.records import VerdictWord
from plugins.gates.effective_length import contiguous_effective_length, effective_length, effective_length_label
from plugins.gates.haystacks import Correlation

# Verdicts become scores of 0 and 100, so that a length passes if its score is above this one.
HALF = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one gate at one length, or at all of them."""

    word: VerdictWord

    reason: str
    """One line for reports."""

    score: float | None = None
    """The mean over the gate's tasks in points; None if a case has no score."""

    interval: tuple[float, float] | None = None
    """The confidence interval of the score on all planned samples, in points."""

    model_interval: tuple[float, float] | None = None
    """The confidence interval of what unlimited samples would measure, in points."""

    confidence: float | None = None
    """The confidence of both intervals, 0 to 1."""

    haystacks: int = 0
    """The number of haystacks under the samples behind the finding."""

    correlation: Correlation | None = None
    """The correlation between scores on the same haystack."""

    samples: int = 0
    """The number of samples behind the finding."""

    of: int = 0
    """The number of planned samples."""


def effective_length_finding(words: Mapping[int, VerdictWord], required: int, threshold: float) -> Finding:
    """Compare the effective length with the required one, given the verdict at each length.

    The verdict is final as soon as those of the required and longer lengths are.
    """
    if required > max(words):
        return Finding(word="not measured", reason=f"asks for {required}, the longest tested is {max(words)}")
    long_enough = {word for length, word in words.items() if length >= required}
    if "pass" in long_enough:
        word: VerdictWord = "pass"
    else:
        word = "fail" if long_enough == {"fail"} else "inconclusive"
    settled = settled_scores(words)
    if settled is None:
        open_lengths = ", ".join(
            format_length(length) for length, at_length in words.items() if at_length == "inconclusive"
        )
        return Finding(word=word, reason=f"undecided at {open_lengths}, asks for {required} above {threshold:g}")
    reason = f"{effective_length_label(settled, HALF)} above {threshold:g}, asks for {required}"
    contiguous = contiguous_effective_length(settled, HALF)
    if contiguous != effective_length(settled, HALF):
        reason += f"; not monotone: every length passes up to {contiguous or 'none'} only"
    return Finding(word=word, reason=reason)


def settled_scores(words: Mapping[int, VerdictWord]) -> dict[int, float] | None:
    """Return 100 points for each length that passes and 0 for each that fails; None if any verdict is open."""
    if not words or any(word not in ("pass", "fail") for word in words.values()):
        return None
    return {length: 100.0 if word == "pass" else 0.0 for length, word in words.items()}


def first_unmeasured(findings: Mapping[int, Finding]) -> Finding | None:
    """Return the finding that leaves a gate without a result: an error before a length that was not measured."""
    unmeasured = [finding for finding in findings.values() if finding.word in ("error", "not measured")]
    return min(unmeasured, key=lambda finding: finding.word, default=None)


def with_counts(finding: Finding, findings: Mapping[int, Finding]) -> Finding:
    """Return the finding with the samples of all lengths, which its reason mentions too if it was measured."""
    samples = sum(finding.samples for finding in findings.values())
    of = sum(finding.of for finding in findings.values())
    is_measured = finding.word in ("pass", "fail", "inconclusive")
    reason = finding.reason + (extent(samples, of) if is_measured else "")
    return replace(finding, reason=reason, score=None, samples=samples, of=of)


def comparison(value: float, word: VerdictWord, required: float) -> str:
    """Return the text that compares a measured value with the required one, both in points."""
    relation = {"pass": "is above", "fail": "is not above"}.get(word, "is not yet told from")
    return f"{value:.1f} {relation} {required:g}"


def extent(samples: int, of: int) -> str:
    """Return the number of samples behind a finding as text."""
    return f" (all {of} samples)" if samples == of else f" ({samples} of {of} samples)"
