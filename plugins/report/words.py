"""The words in which reports for people show verdicts."""

from __future__ import annotations

SHOWN = {"inconclusive": "undecided"}


def shown_verdict(verdict: str) -> str:
    """Return the word for a verdict: `undecided` for one that the JSON report calls inconclusive."""
    return SHOWN.get(verdict, verdict)
