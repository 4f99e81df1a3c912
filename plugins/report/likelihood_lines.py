"""The likelihoods of gold answers in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fixtures.lengths import format_length
from plugins.report.likelihood import CAPTION, MEASURES, texts

WIDTH = 14


def likelihood_lines(section: Mapping[str, Any] | None) -> list[tuple[str, dict[str, bool]]]:
    """Return lines with their markup: the measures of every panel with their intervals below, and the findings."""
    if section is None:
        return []
    lines: list[tuple[str, dict[str, bool]]] = [(CAPTION, {"bold": True}), (_row("", MEASURES.values()), {})]
    for panel in section["panels"]:
        values = texts(panel)
        lines += [
            (_row(f"{panel['family']} {format_length(panel['length']).upper()}", [value for value, _ in values]), {}),
            (_row(f"  {panel['samples']} samples", [interval for _, interval in values]), {}),
        ]
        if panel["change"] is not None:
            changes = (f"{key} {panel['change'][key]['mean']:+.2f}" for key in ("nll", "gain", "evidence"))
            lines.append((f"  against the baseline, {panel['change']['pairs']} pairs: {', '.join(changes)}", {}))
        lines += [(f"  {finding}", {"yellow": True}) for finding in panel["findings"]]
    tokens = section["tokens"]
    return [*lines, (f"{tokens['computed']:,} tokens computed for likelihoods, {tokens['reused']:,} reused", {})]


def _row(name: str, cells: Iterable[str]) -> str:
    return f"{name:<{WIDTH}}" + "".join(f" {cell:>{WIDTH - 1}}" for cell in cells)
