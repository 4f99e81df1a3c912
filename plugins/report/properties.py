"""The properties of the engine in a report, from the findings of --invariance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fixtures.invariance import Finding


def failed_properties(document: Mapping[str, Any]) -> list[str]:
    """Return a line for every property that fails: its name, the sample, the first differing token, both answers."""
    findings = document.get("invariance") or ()
    # Later versions may add keys.
    failed = msgspec.convert([finding for finding in findings if finding["verdict"] == "fail"], list[Finding])
    return [f"invariance: {finding.line}" for finding in failed]


def held_properties(document: Mapping[str, Any]) -> list[str]:
    """Return the number of the checked properties of the engine that hold, in words; nothing without --invariance."""
    checked = [finding for finding in document.get("invariance") or () if finding["verdict"] != "skipped"]
    holding = sum(finding["verdict"] == "pass" for finding in checked)
    return [f"{holding} of {len(checked)} checked properties of the engine hold"] if checked else []
