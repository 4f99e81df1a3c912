"""Statements about the gates and the threshold of a run, in the words that its reports share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plugins.gates.findings import shown_label

NO_GATE = "nothing in this run can fail, except for errors; give --baseline, or a gate in --thresholds"


def gate_warning(document: Mapping[str, Any]) -> str:
    """Return a line for a run that nothing can fail; empty if a gate, a floor or a property of the engine can."""
    has_gate = any(gate["blocking"] and gate["verdict"] != "not measured" for gate in document["gates"])
    has_floor = any(case["floor"] is not None for case in document["cases"])
    return "" if has_gate or has_floor or document.get("invariance") else NO_GATE


def threshold_notes(ruler: Mapping[str, Any]) -> list[str]:
    """Return the source of the threshold, how far it fits the run, and the effective length relative to the model."""
    notes = [f"threshold: {ruler['threshold_source']}"]
    notes += [ruler["threshold_note"]] if ruler["threshold_note"] else []
    if ruler["relative_effective_length_label"] is not None:
        bar = f"above {ruler['relative_threshold']:.1f}, 0.85 of the score at the shortest length"
        notes.append(f"relative: {shown_label(ruler['relative_effective_length_label'])} ({bar})")
    return notes
