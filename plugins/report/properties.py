"""The properties of the engine in a report, from the findings of --invariance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fixtures.invariance import Finding


def failed_properties(document: Mapping[str, Any]) -> list[str]:
    """Return a line for every property that fails: its name, the sample, the first differing token, both answers."""
    findings = document.get("invariance") or ()
    return [f"invariance: {Finding(**finding).line}" for finding in findings if finding["verdict"] == "fail"]


def held_properties(document: Mapping[str, Any]) -> list[str]:
    """Return the number of the checked properties of the engine that hold, in words; nothing without --invariance."""
    checked = [finding for finding in document.get("invariance") or () if finding["verdict"] != "skipped"]
    holding = sum(finding["verdict"] == "pass" for finding in checked)
    return [f"{holding} of {len(checked)} checked properties of the engine hold"] if checked else []
