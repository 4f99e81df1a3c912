"""The page of a search: the first bad step, every step that was measured, and the samples that flipped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from fixtures.shown_text import visible_data
from plugins.report.html.page import render

MOST_FLIPS = 200
LEFT_OUT = ("    ", "flipped samples", "written: ")
"""The beginnings of lines for the terminal that the page shows in another way."""


def bisect_page(document: Mapping[str, Any], chart: str) -> str:
    """Return the page of the contents of `bisect.json` and of the chart in `bisect.svg`."""
    search = visible_data(document)
    first_bad, last_good = search.get("first_bad"), search.get("last_good")
    marks = {} if first_bad is None else {last_good: "last good", first_bad: "first bad"}
    return render(
        "bisect.html.j2",
        title=f"Bisection: {search['cases'][0]}",
        search=search,
        is_finished=bool(marks),
        lines=[line for line in search.get("words", ()) if not line.startswith(LEFT_OUT)],
        # Drawn by this program from numbers and escaped texts.
        chart=Markup(chart),
        steps=[_row(look, marks) for look in sorted(search["looks"], key=lambda look: look["step"])],
        flips=[_flip(flip) for flip in search.get("flips", ())[:MOST_FLIPS]],
        more_flips=max(0, len(search.get("flips", ())) - MOST_FLIPS),
    )


def _row(look: Mapping[str, Any], marks: Mapping[int, str]) -> dict[str, Any]:
    low, high = look["interval"] or (None, None)
    rise = look.get("rise_of_loss")
    by_likelihood, nats = ("", "") if rise is None else (" by likelihood", f"{rise:+.2f} nats, ")
    return {
        "step": look["step"],
        "mark": marks.get(look["step"], ""),
        "verdict": look["word"] + (", screened" if look.get("screened") else "") + by_likelihood,
        "difference": "-" if look["difference"] is None else f"{look['difference']:+.1f}",
        "interval": "-" if low is None else f"{low:+.1f} to {high:+.1f}",
        "pairs": look["pairs"],
        "note": look["reason"] or f"{nats}{look['checkpoint']}",
    }


def _flip(flip: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": f"{flip['case']} sample {flip['index']}",
        "direction": "worse" if flip["after"] < flip["before"] else "better",
        "expected": ", ".join(flip["expected"]),
        "before": flip["answer_before"] or "(empty)",
        "after": flip["answer_after"] or "(empty)",
    }
