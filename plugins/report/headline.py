"""Statements about a whole run that several reports share: its effective length, failing ids, and what is left out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fixtures.lengths import format_length
from plugins.gates.findings import shown_label
from plugins.report.likelihood import has_no_answers

Document = Mapping[str, Any]
MOST_IDS = 8
"""The most ids of failing gates and cases that are listed."""


def deciding_gate(document: Document) -> Mapping[str, Any] | None:
    """Return the blocking gate on an effective length whose result differs from RULER's; None if there is none.

    Such a gate covers some of the tasks, so RULER's effective length would contradict its verdict.
    """
    gates: list[Mapping[str, Any]] = document["gates"]
    for gate in gates:
        is_decided = gate["kind"] == "effective_length" and gate["blocking"] and gate["verdict"] in ("pass", "fail")
        if is_decided and gate["measured"] != document["ruler"]["effective_length"]:
            return gate
    return None


def gated_length(gate: Mapping[str, Any]) -> str:
    """Return the effective length that a gate measured."""
    return "none" if gate["measured"] is None else format_length(int(gate["measured"])).upper()


def ruler_length(document: Document) -> str:
    """Return RULER's effective length, or the reason why there is none."""
    label = document["ruler"]["effective_length_label"]
    return missing_effective_length(document) if label is None else shown_label(label)


def missing_effective_length(document: Document) -> str:
    """Return the reason why there is no effective length."""
    ruler = document["ruler"]
    if has_no_answers(document):
        return "not measured: --signal likelihood generates no answers"
    undecided = [length for length, verdict in ruler["verdicts"].items() if verdict == "inconclusive"]
    if undecided and set(ruler["verdicts"].values()) <= {"pass", "fail", "inconclusive"}:
        return f"undecided at {', '.join(format_length(int(length)).upper() for length in undecided)}"
    return "not measured: it needs all RULER tasks at every length"


def failing_ids(document: Document) -> list[str]:
    """Return the ids of the blocking gates that do not pass and of the cases with an error, to select them again.

    A gate whose cases were deselected is left out.
    """
    place = Path(document["run"]["options"]["thresholds"]).name
    gates = [gate for gate in document["gates"] if gate["blocking"] and gate["verdict"] != "pass"]
    asked = [gate["name"] for gate in gates if gate["fails"] or gate["verdict"] != "not measured"]
    ids = [f"{place}::gate[{name}]" for name in asked]
    ids += [case["id"] for case in document["cases"] if case["verdict"] == "error"]
    more = [f"and {len(ids) - MOST_IDS} more"] if len(ids) > MOST_IDS else []
    return [*ids[:MOST_IDS], *more]


def partial_note(document: Document) -> str:
    """Return what a run leaves out; empty for a whole one."""
    run = document["run"]
    if run.get("interrupted"):
        samples, planned = (sum(case[key] for case in document["cases"]) for key in ("samples", "planned"))
        return f"interrupted: scores from {samples:,} of {planned:,} samples; the same command continues"
    if not run["partial"]:
        return ""
    deselected = run.get("deselected", 0)
    if not deselected:
        return "partial: cases returned no result"
    return f"partial: {deselected} {'case' if deselected == 1 else 'cases'} deselected"
