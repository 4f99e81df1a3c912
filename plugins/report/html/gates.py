"""The values that the page's template shows of gates: verdicts by length, and the evidence behind them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fixtures.lengths import format_length
from plugins.gates.evidence_curves import Curve
from plugins.report.certainty import correlation_text, two_intervals
from plugins.report.details import Details
from plugins.report.document import detectable_note
from plugins.report.html.tables import Document, number, short_length


def gates(document: Document, details: Details) -> list[dict[str, Any]]:
    """Return the gates by name, each with its verdicts by length and the charts of their evidence."""
    groups: dict[str, list[Any]] = {}
    for gate in document["gates"]:
        suffix = "" if gate["length"] is None else f" at {format_length(gate['length'])}"
        groups.setdefault(gate["name"].removesuffix(suffix), []).append(_gate(gate, details))
    regressions = (name for name, verdicts in groups.items() if verdicts[0]["kind"] == "regression")
    first_regression = next(regressions, None)
    return [
        {
            "name": name,
            "anchor": "regression" if name == first_regression else "",
            "verdicts": verdicts,
            "requirement": verdicts[0]["requirement"],
            "blocking": verdicts[0]["blocking"],
            "open": (verdicts[0]["blocking"] and name == verdicts[0]["name"])
            or any(gate["fails"] for gate in verdicts),
        }
        for name, verdicts in groups.items()
    ]


def _gate(gate: Mapping[str, Any], details: Details) -> dict[str, Any]:
    is_length, signed = gate["kind"] == "effective_length", gate["kind"] == "regression"
    measured = gate["measured"]
    return {
        **gate,
        "at": "" if gate["length"] is None else short_length(gate["length"]),
        "charts": [
            {"length": short_length(curve.length), "curve": curve, "note": _evidence_note(curve)}
            for curve in details.curves.get(gate["name"], ())
        ],
        "shown": short_length(int(measured)) if is_length and measured else number(measured, signed),
        "requirement": _requirement(gate),
        "interval_text": two_intervals(gate),
        "correlation_text": correlation_text(gate),
        "reason": gate["reason"] + detectable_note(gate),
    }


def _evidence_note(curve: Curve) -> str:
    if curve.exact:
        return "all samples measured"
    return "undecided" if curve.decided is None else f"decided after {curve.decided:,} of {curve.of:,} samples"


def _requirement(gate: Mapping[str, Any]) -> str:
    """Return the condition of a gate in a few words."""
    required = gate["required"]
    if gate["kind"] == "effective_length":
        return f"at least {short_length(int(required))}"
    if gate["kind"] == "worst_phase":
        return f"phases within {required:g} points"
    return f"no loss of {-required:g} points" if gate["kind"] == "regression" else f"above {required:g}"
