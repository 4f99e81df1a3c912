"""The page's section on the likelihoods of gold answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from plugins.report.html.tables import short_length
from plugins.report.likelihood import CAPTION, MEASURES, texts


def likelihood_section(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the rows of panels, each followed by its cases, and the findings; None for a run of answers only."""
    section = document["likelihood"]
    if section is None:
        return None
    return {
        "caption": CAPTION,
        "headings": list(MEASURES.values()),
        "rows": [row for panel in section["panels"] for row in _rows(document, panel)],
        "findings": [f"{_name(panel)}: {finding}" for panel in section["panels"] for finding in panel["findings"]],
    }


def _rows(document: Mapping[str, Any], panel: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield _row("mean", _name(panel), panel)
    if panel["change"] is not None:
        changes = {key: panel["change"].get(key) for key in MEASURES}
        yield {"kind": "mean", "name": "change", "texts": texts(changes), "samples": panel["change"]["pairs"]}
    for case in document["cases"]:
        family = case["category"] if case["suite"] == "helmet" else case["suite"]
        entry = document["likelihood"]["cases"].get(case["id"])
        if entry is not None and (family, case["length"]) == (panel["family"], panel["length"]):
            yield _row("task", case["task"], entry)


def _row(kind: str, name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"kind": kind, "name": name, "texts": texts(entry), "samples": entry["samples"]}


def _name(panel: Mapping[str, Any]) -> str:
    return f"{panel['family']} at {short_length(panel['length'])}"
