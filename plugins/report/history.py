"""The reports of many checkpoints of one training run, in the order of their steps."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fixtures.checkpoints.steps import step_of
from fixtures.outside_files import read_outside
from fixtures.shown_text import visible_data
from plugins.report.document import SCHEMA
from plugins.report.frontier_lines import frontier_means

Categories = Mapping[str, Mapping[str, Any]]
"""The mean score of every category by length; None where it was not measured."""

Document = Mapping[str, Any]


class HistoryError(ValueError):
    """A directory without any report that has a training step; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One JSON report and its training step."""

    step: int
    path: Path
    document: Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One mean score over the steps; None where a report lacks it."""

    name: str
    """A HELMET category, or `RULER mean at <tokens>`."""

    values: tuple[float | None, ...]
    intervals: tuple[Sequence[float] | None, ...]
    threshold: float | None = None
    verdicts: tuple[str | None, ...] = ()
    """The verdicts on the mean being above the threshold; empty for a mean without a threshold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The numbers of several reports, all in the order of the steps."""

    reports: tuple[Report, ...]
    lengths: tuple[int, ...]
    """The lengths that any of the reports tested, in tokens."""

    effective_lengths: tuple[int | None, ...]
    """RULER's effective lengths in tokens: 0 below the shortest tested length, None if not measured."""

    claimed_length: int | None
    """The length that the last checkpoint claims to support, in tokens."""

    means: tuple[Track, ...]
    likelihoods: tuple[Track, ...]
    """Gains in nats and recoveries in points over the steps, by family and length."""

    gate_values: tuple[Track, ...]
    """The measured values of blocking gates on scores and differences, with the value that each requires."""

    gates: Mapping[str, tuple[str | None, ...]]
    """The verdicts of every blocking gate by its name; None where a report lacks the gate."""

    skipped: tuple[str, ...]
    """The files that were left out, with the reason."""

    @property
    def steps(self) -> tuple[int, ...]:
        """The training steps in ascending order."""
        return tuple(report.step for report in self.reports)


def read_reports(directory: Path) -> tuple[list[Report], list[str]]:
    """Return all reports of a directory and its subdirectories by step, and one line for every report left out.

    The step comes from the report itself (--step, or its checkpoint's path), or else from the file's path. Of several
    reports of one step, the one that started last counts. Raises HistoryError if there is no report with a step.
    """
    if not os.path.isdir(directory):
        raise HistoryError(f"history: {directory} is not a directory; name one with files written by --report-json")
    by_step: dict[int, Report] = {}
    skipped: list[str] = []
    for name, document in read_documents(directory):
        run = document.get("run")
        if not isinstance(run, dict) or not isinstance(run.get("step"), (int, type(None))) or "started" not in run:
            skipped.append(f"{name}: its run has not the form of a report's; write it again with --report-json")
            continue
        step = run.get("step")
        step = step_of(name) if step is None else step
        if step is None:
            skipped.append(f"{name}: no step in the report nor in its path; run it with --step")
            continue
        candidates = [Report(step=step, path=directory / name, document=document)]
        candidates += [by_step[step]] if step in by_step else []
        # Of two reports that started at the same time, the one that was read first stays.
        newest = max(reversed(candidates), key=lambda candidate: str(candidate.document["run"]["started"]))
        by_step[step] = newest
        skipped += [
            f"{candidate.path.relative_to(directory)}: another report of step {step} is newer"
            for candidate in candidates
            if candidate is not newest
        ]
    if not by_step:
        reason = skipped[0] if skipped else f"it contains no {SCHEMA}"
        raise HistoryError(f"history: {directory} has no report with a step ({reason})")
    return [by_step[step] for step in sorted(by_step)], skipped


def read_documents(directory: Path) -> Iterator[tuple[str, Document]]:
    """Yield all reports with their paths within the directory; other files are ignored."""
    for path in sorted(directory.rglob("*.json")):
        try:
            document = json.loads(read_outside(path))
        # A directory of results also holds files that are no reports, or that are being written.
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(document, dict) and document.get("schema") == SCHEMA:
            yield str(path.relative_to(directory)), visible_data(document)


def history(reports: Sequence[Report], skipped: Sequence[str] = ()) -> History:
    """Return the numbers of the reports, which must be in the order of their steps."""
    documents = [report.document for report in reports]
    lengths = tuple(sorted({_length(case) for document in documents for case in document["cases"]}))
    names = dict.fromkeys(gate["name"] for document in documents for gate in document["gates"] if gate["blocking"])
    verdicts = [{gate["name"]: gate["verdict"] for gate in document["gates"]} for document in documents]
    return History(
        reports=tuple(reports),
        lengths=lengths,
        effective_lengths=tuple(map(_effective_length, documents)),
        claimed_length=documents[-1]["ruler"]["claimed_length"],
        means=(
            *_ruler_tracks(documents, lengths),
            *_category_tracks([_helmet_categories(document) for document in documents], lengths),
            *_category_tracks([frontier_means(document) for document in documents], lengths),
        ),
        likelihoods=tuple(_likelihood_tracks(documents)),
        gate_values=tuple(_gate_tracks(documents, names)),
        gates={name: tuple(by_name.get(name) for by_name in verdicts) for name in names},
        skipped=tuple(skipped),
    )


def _length(case: Mapping[str, Any]) -> int:
    """Return the length of a case; raise TypeError for another type, which would show only beside other reports."""
    length = case["length"]
    if not isinstance(length, int):
        raise TypeError(f"length is {length!r}")
    return length


def _gate_tracks(documents: Sequence[Document], names: Iterable[str]) -> Iterator[Track]:
    """Yield the measured values of every gate that has one in any report; lengths and likelihoods have own charts."""
    by_name = [{gate["name"]: gate for gate in document["gates"]} for document in documents]
    for name in names:
        gates = [gates.get(name) for gates in by_name]
        known = [gate for gate in gates if gate is not None and gate["measured"] is not None]
        if known and known[-1]["kind"] not in ("effective_length", "likelihood"):
            yield Track(
                name=name,
                values=tuple(gate and gate["measured"] for gate in gates),
                intervals=tuple(gate and gate["interval"] for gate in gates),
                threshold=known[-1]["required"],
                verdicts=tuple(gate and gate["verdict"] for gate in gates),
            )


def _effective_length(document: Document) -> int | None:
    """Return the effective length; 0 if it lies below the shortest tested length, None if it was not measured."""
    ruler = document["ruler"]
    length: int | None = ruler["effective_length"]
    return 0 if length is None and ruler["effective_length_label"] is not None else length


def _ruler_tracks(documents: Sequence[Document], lengths: Sequence[int]) -> list[Track]:
    """Return RULER's mean at every length at which any report has one."""
    rulers = [document["ruler"] for document in documents]
    tracks = [
        Track(
            name=f"RULER mean at {length}",
            values=tuple(ruler["scores"].get(str(length)) for ruler in rulers),
            intervals=tuple(ruler["intervals"].get(str(length)) for ruler in rulers),
            threshold=rulers[-1]["threshold"],
            verdicts=tuple(ruler["verdicts"].get(str(length)) for ruler in rulers),
        )
        for length in lengths
    ]
    return [track for track in tracks if any(value is not None for value in track.values)]


def _likelihood_tracks(documents: Sequence[Document]) -> Iterator[Track]:
    """Yield the gain and the recovery of every panel that any report has; reports of older versions have none."""
    by_report = [
        {
            (panel["family"], panel["length"]): panel
            for panel in (document.get("likelihood") or {"panels": ()})["panels"]
        }
        for document in documents
    ]
    for family, length in dict.fromkeys(key for panels in by_report for key in panels):
        for measure in ("gain", "recovery"):
            found = [panels.get((family, length), {}).get(measure) for panels in by_report]
            if any(found):
                yield Track(
                    name=f"{family} {measure} at {length}",
                    values=tuple(estimate and estimate["mean"] for estimate in found),
                    intervals=tuple(estimate and estimate["interval"] for estimate in found),
                )


def _helmet_categories(document: Document) -> Categories:
    return document["helmet"]["categories"] if document["helmet"] else {}


def _category_tracks(categories: Sequence[Categories], lengths: Sequence[int]) -> list[Track]:
    """Return every category's mean over the lengths that all reports with this category have in common."""
    tracks = []
    for category in dict.fromkeys(name for by_name in categories for name in by_name):
        by_report = [by_name.get(category, {}) for by_name in categories]
        measured = [scores for scores in by_report if any(score is not None for score in scores.values())]
        common = [
            key for key in map(str, lengths) if measured and all(scores.get(key) is not None for scores in measured)
        ]
        if common:
            values = tuple(
                math.fsum(scores[key] for key in common) / len(common) if scores in measured else None
                for scores in by_report
            )
            tracks.append(Track(name=category, values=values, intervals=(None,) * len(values)))
    return tracks
