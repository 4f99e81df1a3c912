"""The sentence that explains the verdict of a gate, made of its typed reason and its numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from longctx.fixtures.records import PairedChange, Reason, Verdict
from longctx.plugins.evidence.effective_length import (
    contiguous_effective_length,
    effective_length,
    effective_length_label,
)
from longctx.plugins.report.tables import short_length

# Points by which the sum of differences may be off.
ROUNDING = 1e-6
# Rarer losses are not told apart.
MOST_RUNS = 1_000_000
# More frequent ones are not counted.
MOST_SHOWN = 2 / 3
# Lengths that pass have 100 points in the arithmetic of effective lengths, others 0.
HALF = 50.0
PLAIN: Mapping[Reason, str] = {
    "no answers": "--signal likelihood generates no answers",
    "same checkpoint": "the baseline is the same checkpoint: a comparison with itself is most often a wrong path",
    "no common samples": "too few samples to compare: the baseline's journal has none of these samples",
    "no baseline": "it compares with a baseline; give --baseline",
}

REMEDIES: Mapping[str, str] = {
    "too few samples": "--full, more --samples or a longer --budget decides it",
    "not shown": "twice the samples may show it",
    "short baseline": "measure the baseline with --full",
    "short candidate": "measure all samples of the base, or leave out of it what is not meant",
    "distractors not told": "give more --samples",
}
"""What may decide an undecided verdict, by its reason."""


def reason_text(verdict: Verdict) -> str:
    """Return one line that explains a verdict; of an undecided one with its remedy."""
    remedy = REMEDIES.get(verdict.because or "", "") if verdict.verdict == "undecided" else ""
    return f"{_facts_text(verdict)}; {remedy}" if remedy else _facts_text(verdict)


def _facts_text(verdict: Verdict) -> str:
    because, length = verdict.because, verdict.length
    if because == "error":
        return verdict.detail
    if because is not None and because in PLAIN:
        return PLAIN[because]
    if because == "interrupted":
        return f"interrupted after {verdict.samples:,} of {verdict.of:,} samples"
    if because == "missing tasks" and verdict.kind == "likelihood":
        return f"likelihood: not all tasks run at {short_length(length)}"
    if because == "missing tasks":
        place = "" if length is None else f" at {short_length(length)}"
        return f"partial: {verdict.detail} not run{place}"
    if verdict.kind in ("regression", "change"):
        return _comparison_text(verdict)
    if verdict.kind == "likelihood":
        return _likelihood_text(verdict)
    counts = _extent(verdict)
    if verdict.kind == "effective_length":
        return _effective_length_text(verdict) + ("" if because == "missing length" else counts)
    if verdict.measured is None:
        return f"cases without a sample: {verdict.detail}"
    return _mean_text(verdict) + counts


def _extent(verdict: Verdict) -> str:
    if verdict.samples == verdict.of:
        return f" (all {verdict.of} samples)"
    return f" ({verdict.samples} of {verdict.of} samples)"


def _mean_text(verdict: Verdict) -> str:
    """Return the text that compares a mean at a length, or over all lengths, with the required one."""
    assert verdict.measured is not None
    text = _compared(verdict.measured, verdict.required, verdict.length)
    if verdict.because == "not shown":
        return f"{text}; not shown to be below it for the model"
    if verdict.verdict == "undecided":
        return text
    return f"{text}; the model's own mean may be on either side" if verdict.of_model == "near" else text


def _compared(mean: float, required: float, length: int | None) -> str:
    place = "over all lengths" if length is None else f"at {short_length(length)}"
    return f"mean {mean:.1f} {place}, needs more than {required:g}"


def _effective_length_text(verdict: Verdict) -> str:
    findings = {at.length: at for at in verdict.by_length if at.length is not None}
    threshold, needs = verdict.threshold or 0.0, f"needs at least {short_length(int(verdict.required))}"
    if verdict.because == "missing length":
        return f"{needs}, the longest tested length is {short_length(max(findings))}"
    open_lengths = [short_length(length) for length, at in findings.items() if not at.is_settled]
    if open_lengths:
        return f"not decided at {', '.join(open_lengths)}; {needs} (mean above {threshold:g})"
    settled = {length: 100.0 if at.verdict == "pass" else 0.0 for length, at in findings.items()}
    text = f"reaches {shown_label(effective_length_label(settled, HALF))}, {needs}"
    longest = effective_length(settled, HALF)
    below = [at for length, at in findings.items() if at.is_below and length < (longest or 0)]
    above = [at for length, at in findings.items() if at.verdict != "pass" and length > (longest or 0)]
    failed = [at for at in (*below, *above) if at.measured is not None]
    if verdict.verdict == "fail" and failed:
        text += f": {_compared(failed[0].measured or 0.0, threshold, failed[0].length)}"
    else:
        text += f" (mean above {threshold:g})"
    contiguous = contiguous_effective_length(settled, HALF)
    if contiguous != longest:
        up_to = f"up to {short_length(contiguous)} only" if contiguous else "at none of the shortest lengths"
        text += f"; not monotone: without a gap it passes {up_to}"
    return text + _possible_lengths(findings)


def _possible_lengths(findings: Mapping[int, Verdict]) -> str:
    """Return between which lengths the model's own effective length is, if other samples may show another one."""
    passed = [length for length, at in findings.items() if at.verdict == "pass" and at.of_model != "near"]
    possible = [length for length, at in findings.items() if at.verdict == "pass" or at.of_model == "near"]
    if max(possible, default=0) <= max(passed, default=0):
        return ""
    shortest = short_length(max(passed)) if passed else f"less than {short_length(min(findings))}"
    return f"; the model's own length may be from {shortest} to {short_length(max(possible))}"


def shown_label(label: str | None) -> str:
    """Return the label of an effective length as reports show it: `<1024` as `<1K`; `undecided` without one."""
    if label is None:
        return "undecided"
    sign = label[0] if label[0] in "<>" else ""
    return f"{sign}{short_length(int(label.removeprefix(sign)))}"


def _likelihood_text(verdict: Verdict) -> str:
    if verdict.measured is None:
        if verdict.because == "no recovery":
            text = "recovery is undefined, because the evidence alone gains less than 0.3 nats"
            return f"likelihood: {text}{_extent(verdict)}"
        return "likelihood: no sample was measured"
    unit = " nats" if verdict.measure == "gain" else ""
    value = f"{verdict.measure} {verdict.measured:.{2 if unit else 1}f}{unit}"
    text = f"{value} is above {verdict.required:g}"
    if verdict.because == "too few samples":
        text = f"{value} is not yet told from {verdict.required:g}"
    elif verdict.because == "likely distractors":
        text += f", but distractors are at least as likely (gold - foil {verdict.margin:+.2f} nats)"
    elif verdict.because == "distractors not told":
        text += f", but gold - foil {verdict.margin:+.2f} nats is not yet told from 0"
    elif verdict.verdict == "fail":
        text = f"{value} is not above {verdict.required:g}"
    elif verdict.margin is None:
        text += "; there are no distractors to compare with"
    return f"likelihood: {text}{_extent(verdict)}"


def _comparison_text(verdict: Verdict) -> str:
    """Return the loss against the baseline, or how much scores changed for better or worse, and what is allowed."""
    change, measured = verdict.change, verdict.measured
    if change is None or measured is None or verdict.interval is None:
        return "too few samples to compare: none has an answer of both models"
    low, high = verdict.interval
    counts = f"{change.worse} worse, {change.better} better of {change.pairs} pairs"
    is_shown = verdict.because != "not shown"
    if verdict.kind == "change":
        bounds = {"pass": f" (at most {high:.1f})", "fail": f" (at least {low:.1f})"}
        bound = bounds.get(verdict.verdict, f" ({low:.1f} to {high:.1f})")
        bound = bound if is_shown else " on these samples, not shown for the model"
        return f"scores changed by {measured:.1f} points{bound}; {verdict.required:g} allowed ({counts})"
    start = ""
    if verdict.because in ("short baseline", "short candidate"):
        start = f"the {verdict.because.removeprefix('short ')} has too few samples to compare: "
    points = round(measured, 1)
    moved = f"gained {points:.1f} points" if points > 0 else f"lost {_loss(points):.1f} points"
    bound = _bound_text(verdict.verdict, measured, low, high) if is_shown else " on these samples"
    allowed = f"{_loss(verdict.required):g} allowed"
    if verdict.verdict == "fail" and measured >= verdict.required:
        # The loss itself does not exceed what is allowed: another limit failed the gate.
        allowed += f", and a failure shows more than {_loss(verdict.required) / 2:g}"
        if low == high and _loss(measured) >= change.limit - ROUNDING:
            allowed = f"less than {change.limit:g} allowed where all pairs are known"
    return f"{start}{moved}{bound}; {allowed} ({counts}){_chance_text(verdict, change)}"


def _bound_text(word: str, measured: float, low: float, high: float) -> str:
    """Return the bound on the change of the planned samples that a verdict rests on."""
    is_gain = round(measured, 1) > 0
    if word == "fail":
        # An interval of no width may end beyond the measured loss by rounding.
        return f" (at least {min(_loss(high), _loss(measured)):.1f})"
    if word == "pass" and is_gain:
        return f" (at least {low:.1f})" if low >= 0 else f" (lost at most {-low:.1f})"
    if word == "pass":
        return f" (at most {_loss(low):.1f})"
    return f" ({'lost ' if is_gain else ''}between {_loss(high):.1f} and {_loss(low):.1f})"


def _chance_text(verdict: Verdict, change: PairedChange) -> str:
    """Return in how many runs an unchanged model loses as much; empty for a verdict that does not rest on it.

    Of several comparisons of a run, one loses as much more often than each does.
    """
    p_value = verdict.p_value
    if p_value is None or not (verdict.verdict == "fail" or verdict.because == "not shown"):
        return ""
    of_run = 1.0 if p_value >= 1 else -math.expm1(change.comparisons * math.log1p(-p_value))
    bound = "fewer than " if of_run * MOST_RUNS < 1 else ""
    share = f"{bound}1 of {_rounded(MOST_RUNS if bound else 1 / of_run)}"
    often = "most" if of_run > MOST_SHOWN else share
    if change.comparisons > 1:
        return f"; in {often} runs an unchanged model loses as much in one of its {change.comparisons} comparisons"
    return f"; unchanged models lose as much in {often} runs"


def _rounded(number: float) -> str:
    """Return a number of at least 1 with two significant digits at most."""
    return f"{float(f'{number:.2g}'):,.0f}" if number >= 10 else f"{number:.1f}".removesuffix(".0")


def _loss(difference: float) -> float:
    """Return the loss of a difference in points, without a negative zero."""
    return -difference + 0.0
