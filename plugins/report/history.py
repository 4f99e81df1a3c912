"""A checkpoint after the other: what many JSON reports say over the training steps."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fixtures.checkpoints.steps import step_of
from plugins.report.document import SCHEMA


class HistoryError(ValueError):
    """Reports that no history can be drawn from; one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One JSON report, and the step it stands at."""

    step: int
    path: Path
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One number over the steps, None where a report lacks it."""

    name: str
    values: tuple[float | None, ...]
    intervals: tuple[Sequence[float] | None, ...]
    threshold: float | None = None
    words: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Tracks over the same steps, in their order. `gates` holds each blocking gate's verdicts by name."""

    reports: tuple[Report, ...]
    lengths: tuple[int, ...]
    effective: tuple[int | None, ...]
    claimed: int | None
    means: tuple[Track, ...]
    gates: Mapping[str, tuple[str | None, ...]]
    skipped: tuple[str, ...]

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(report.step for report in self.reports)


def read_reports(directory: Path) -> tuple[list[Report], list[str]]:
    """All reports of the directory and those below it by step, and which files have none, with the reason.

    A step is the report's own (--step, or its checkpoint's path), or else what the file's path says. Of
    several reports of a step the one that started last counts. Raises HistoryError where there is none.
    """
    if not directory.is_dir():
        raise HistoryError(f"history: {directory} is not a directory; give one that holds files of --report-json")
    found: dict[int, Report] = {}
    skipped: list[str] = []
    for path in sorted(directory.rglob("*.json")):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(document, dict) or document.get("schema") != SCHEMA:
                continue
        # A directory of results holds other files too.
        except (OSError, ValueError):
            continue
        step = document["run"].get("step")
        step = step_of(str(path.relative_to(directory))) if step is None else step
        if step is None:
            skipped.append(f"{path.relative_to(directory)}: no step in the report nor in its path; run it with --step")
        elif step not in found or found[step].document["run"]["started"] < document["run"]["started"]:
            if step in found:
                skipped.append(f"{found[step].path.relative_to(directory)}: another report of step {step} is newer")
            found[step] = Report(step=step, path=path, document=document)
        else:
            skipped.append(f"{path.relative_to(directory)}: another report of step {step} is newer")
    if not found:
        reason = skipped[0] if skipped else f"it holds no {SCHEMA}"
        raise HistoryError(f"history: {directory} has no report with a step ({reason})")
    return [found[step] for step in sorted(found)], skipped


def history(reports: Sequence[Report], skipped: Sequence[str] = ()) -> History:
    """The numbers of the reports, in the order of their steps."""
    documents = [report.document for report in reports]
    lengths = tuple(sorted({case["length"] for document in documents for case in document["cases"]}))
    names = dict.fromkeys(gate["name"] for document in documents for gate in document["gates"] if gate["blocking"])
    verdicts = [{gate["name"]: gate["verdict"] for gate in document["gates"]} for document in documents]
    return History(
        reports=tuple(reports),
        lengths=lengths,
        effective=tuple(_effective(document) for document in documents),
        claimed=documents[-1]["ruler"]["claimed_length"],
        means=(*_ruler_tracks(documents, lengths), *_helmet_tracks(documents, lengths)),
        gates={name: tuple(found.get(name) for found in verdicts) for name in names},
        skipped=tuple(skipped),
    )


def _effective(document: Mapping[str, Any]) -> int | None:
    """0 where the shortest length fails already."""
    ruler = document["ruler"]
    found: int | None = ruler["effective_length"]
    return 0 if found is None and ruler["effective_length_label"] is not None else found


def _ruler_tracks(documents: Sequence[Mapping[str, Any]], lengths: Sequence[int]) -> list[Track]:
    tracks = []
    for key in map(str, lengths):
        rulers = [document["ruler"] for document in documents]
        track = Track(
            name=f"RULER mean at {key}",
            values=tuple(ruler["scores"].get(key) for ruler in rulers),
            intervals=tuple(ruler["intervals"].get(key) for ruler in rulers),
            threshold=rulers[-1]["threshold"],
            words=tuple(ruler["verdicts"].get(key) for ruler in rulers),
        )
        tracks += [track] if any(value is not None for value in track.values) else []
    return tracks


def _helmet_tracks(documents: Sequence[Mapping[str, Any]], lengths: Sequence[int]) -> list[Track]:
    """Each category over its lengths: the mean of those at which every report that has the category has a score."""
    helmets = [document["helmet"] or {"categories": {}} for document in documents]
    tracks = []
    for category in dict.fromkeys(name for helmet in helmets for name in helmet["categories"]):
        found = [helmet["categories"].get(category, {}) for helmet in helmets]
        rows = [scores for scores in found if any(value is not None for value in scores.values())]
        shared = [key for key in map(str, lengths) if rows and all(scores.get(key) is not None for scores in rows)]
        if shared:
            values = tuple(
                math.fsum(scores[key] for key in shared) / len(shared) if scores in rows else None for scores in found
            )
            tracks.append(Track(name=category, values=values, intervals=(None,) * len(values)))
    return tracks
