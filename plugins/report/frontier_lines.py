"""The findings of the frontier tasks as text, for terminal, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fixtures.lengths import format_length

Section = Mapping[str, Any]


def frontier_means(document: Mapping[str, Any]) -> dict[str, Mapping[str, float | None]]:
    """Return the means of a document's frontier categories by length; reports of older versions have none."""
    section = document.get("frontier")
    return dict(section["categories"]) if section else {}


def has_no_ruler(document: Mapping[str, Any]) -> bool:
    """Return True if no case of a document is RULER's, the only tasks with an effective length."""
    return all(case["suite"] != "ruler" for case in document["cases"])


def frontier_findings(section: Section | None) -> list[str]:
    """Return one line for every ladder, twin and conversation; empty for a run without frontier tasks."""
    if section is None:
        return []
    return [*_ladders(section), *_twins(section), *_replies(section), *_unanswerable(section), *_lengths(section)]


def _ladders(section: Section) -> Iterator[str]:
    for entry in section["ladders"]:
        rungs = ", ".join(f"{name} {_number(score)}" for name, score in entry["rungs"].items())
        result = f"breaks at {entry['breaks_at']}" if entry["breaks_at"] else "no rung breaks"
        if entry["breaks_at"] is None and None in entry["rungs"].values():
            result = "incomplete"
        yield f"ladder {entry['ladder']} at {_length(entry)}: {result} ({rungs})"


def _twins(section: Section) -> Iterator[str]:
    for entry in section["twins"]:
        yield f"{entry['task']} at {_length(entry)}: {entry['difference']:+.1f} for its twin {entry['twin']}"


def _replies(section: Section) -> Iterator[str]:
    for entry in section["replies"]:
        pairs = entry["copied"]
        total = sum(pair["samples"] for pair in pairs)
        wrong = [pair for pair in pairs if pair["copied"] not in (None, pair["wanted"])]
        swaps = ", ".join(f"reply {pair['copied']} in place of {pair['wanted']}: {pair['samples']}" for pair in wrong)
        copied = f"{sum(pair['samples'] for pair in wrong)} of {total} copy another reply"
        text = f"{entry['task']} at {_length(entry)}: code in {entry['code_rate']:.0f} % of the answers, {copied}"
        yield f"{text} ({swaps})" if swaps else text


def _unanswerable(section: Section) -> Iterator[str]:
    for entry in section["unanswerable"]:
        present, absent = _number(entry["present"]), _number(entry["absent"])
        yield f"not_in_text at {_length(entry)}: {present} where the text tells, {absent} where it does not"


def _lengths(section: Section) -> Iterator[str]:
    tested = {length for scores in section["categories"].values() for length in scores}
    if len(tested) < 2:
        return
    known = {name: length for name, length in section["relative_lengths"].items() if length is not None}
    if known:
        lengths = ", ".join(f"{name} {format_length(length).upper()}" for name, length in known.items())
        share = f"{100 * section['relative_share']:.0f} %"
        yield f"longest length with {share} of the score at {format_length(min(map(int, tested))).upper()}: {lengths}"


def _length(entry: Mapping[str, Any]) -> str:
    return format_length(entry["length"]).upper()


def _number(score: float | None) -> str:
    return "-" if score is None else f"{score:.1f}"
