"""Statements about the certainty of a run's results, in the words that all reports share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Document = Mapping[str, Any]
WIDE_POINTS = 30.0
"""An interval of a mean that is wider than this says little, and the text says so."""

FEW_PLANNED = 100
"""A case with fewer planned samples says little about the model, whatever the verdict on them is."""


def two_intervals(gate: Mapping[str, Any]) -> str:
    """Return what a gate's samples say about all planned samples and about the model; empty if nothing was measured.

    The planned samples are known exactly once all are measured. The model is not.
    """
    if gate["interval"] is None or gate.get("model_interval") is None:
        return ""
    signed = gate["kind"] == "regression"
    planned, model = (range_text(gate[key], signed) for key in ("interval", "model_interval"))
    low, high = gate["model_interval"]
    is_wide = gate["kind"] != "likelihood" and high - low > WIDE_POINTS
    of_model = f"somewhere from {model} (too few samples)" if is_wide else model
    return f"these {gate['of']} samples: {planned}; the model: {of_model}"


def range_text(interval: Sequence[float], signed: bool = False) -> str:
    """Return an interval as text, or one number if both ends are shown as the same."""
    low, high = (f"{end:{'+' if signed else ''}.1f}".replace("+0.0", "0.0").replace("-0.0", "0.0") for end in interval)
    return low if low == high else f"{low} to {high}"


def correlation_text(gate: Mapping[str, Any]) -> str:
    """Return the correlation between samples on the same haystack; empty if it was not estimated."""
    estimate = gate.get("haystack_correlation")
    if estimate is None:
        return ""
    value, error = (f"{number:.2f}".replace("-0.00", "0.00") for number in estimate)
    return f"correlation on a haystack: {value} ± {error}"


def few_samples(document: Document) -> str:
    """Return the warning about cases with few planned samples; empty if there are none."""
    few = [case["planned"] for case in document["cases"] if case["planned"] < FEW_PLANNED]
    if not few:
        return ""
    least = f"{min(few)}" if min(few) == max(few) else f"at least {min(few)}"
    cases = f"{len(few)} cases have" if len(few) > 1 else "1 case has"
    return (
        f"{cases} fewer than {FEW_PLANNED} planned samples ({least}): a verdict about these samples says little about "
        "the model; give more --samples"
    )


def seed_role(document: Document) -> str:
    """Return the role of the seed for the errors of the verdicts."""
    return (
        f"Seed {document['run']['seed']} fixes the samples and their order, so a wrong verdict can repeat at every "
        "checkpoint: its probability is per seed; --seed changes it"
    )


def no_votes(document: Document) -> str:
    """Return how many compared cases have no vote, and why; empty if all have one."""
    regression = document["regression"]
    if regression is None:
        return ""
    compared = [case for case in regression["cases"].values() if case["pairs"]]
    reasons = Counter(case["no_vote"] for case in compared if case.get("no_vote"))
    if not reasons:
        return ""
    counts = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    return f"{reasons.total()} of {len(compared)} cases have no vote in the comparison: {counts}"
