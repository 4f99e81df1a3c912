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


def effective_length_finding(
    words: Mapping[int, VerdictWord],
    required: int,
    threshold: float,
    means: Mapping[int, float | None] | None = None,
) -> Finding:
    """Compare the effective length with the required one, given the verdict and the mean at each length.

    The verdict is final as soon as those of the required and longer lengths are.
    """
    needs = f"needs at least {_shown(required)}"
    if required > max(words):
        return Finding(word="not measured", reason=f"{needs}, the longest tested length is {_shown(max(words))}")
    long_enough = {word for length, word in words.items() if length >= required}
    if "pass" in long_enough:
        word: VerdictWord = "pass"
    else:
        word = "fail" if long_enough == {"fail"} else "inconclusive"
    settled = settled_scores(words)
    if settled is None:
        open_lengths = ", ".join(_shown(length) for length, at_length in words.items() if at_length == "inconclusive")
        return Finding(word=word, reason=f"undecided at {open_lengths}; {needs} (mean above {threshold:g})")
    reason = f"reaches {shown_label(effective_length_label(settled, HALF))}, {needs}"
    length = effective_length(settled, HALF)
    failed_at = min((at for at, score in settled.items() if score < HALF and at > (length or 0)), default=None)
    mean = None if failed_at is None else (means or {}).get(failed_at)
    if word == "fail" and failed_at is not None and mean is not None:
        reason += f": {comparison(mean, word, threshold, failed_at)}"
    else:
        reason += f" (mean above {threshold:g})"
    contiguous = contiguous_effective_length(settled, HALF)
    if contiguous != length:
        up_to = f"up to {_shown(contiguous)} only" if contiguous else "at none of the shortest lengths"
        reason += f"; not monotone: without a gap it passes {up_to}"
    return Finding(word=word, reason=reason)


def shown_label(label: str | None) -> str:
    """Return the label of an effective length as reports show it: `<1024` as `<1K`; `undecided` without one."""
    if label is None:
        return "undecided"
    sign = label[0] if label[0] in "<>" else ""
    return f"{sign}{_shown(int(label.removeprefix(sign)))}"


def shown_verdict(verdict: str) -> str:
    """Return the word that reports show for a verdict: `undecided` for one that the JSON report calls inconclusive."""
    return "undecided" if verdict == "inconclusive" else verdict


def _shown(length: int) -> str:
    return format_length(length).upper()


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


def comparison(mean: float, word: VerdictWord, required: float, length: int | None = None) -> str:
    """Return the text that compares a mean at a length, or over all lengths, with the required one, both in points."""
    place = "over all lengths" if length is None else f"at {_shown(length)}"
    undecided = "" if word in ("pass", "fail") else "; undecided"
    return f"mean {mean:.1f} {place}, needs more than {required:g}{undecided}"


def extent(samples: int, of: int) -> str:
    """Return the number of samples behind a finding as text."""
    return f" (all {of} samples)" if samples == of else f" ({samples} of {of} samples)"
