"""The reports of many checkpoints of one training run, in the order of their steps, and the page that draws them."""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longctx.fixtures.checkpoints.checkpoint import step_of
from longctx.fixtures.outside_files import read_outside
from longctx.fixtures.records.report import REPORT_SCHEMA, JsonReport, parse_report
from longctx.fixtures.records.report_parts import MeanEstimate
from longctx.fixtures.shown_text import visible, visible_data
from longctx.plugins.report.charts.lines import (
    Chart,
    chart_rows,
    level_chart,
    lowest_of,
    score_chart,
    threshold_note,
    value_chart,
)
from longctx.plugins.report.formats import short_length
from longctx.plugins.report.html.page import embedded, render, resource
from longctx.plugins.report.sections.frontier import frontier_means
from longctx.plugins.verdicts.evaluate import shown_verdict

Categories = Mapping[str, Mapping[str, Any]]
"""The mean score of every category by length; None where it was not measured."""


# A search writes it beside its comparisons.
SEARCH_RESULT = "bisect.json"
# Errors that a report of another form causes wherever its parts are used.
MALFORMED = (KeyError, TypeError, AttributeError, ValueError, IndexError, RecursionError, ArithmeticError)


class HistoryError(ValueError):
    """A directory without any report that has a training step; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One JSON report and its training step."""

    step: int
    path: Path
    document: JsonReport


@dataclass(frozen=True, slots=True, kw_only=True)
class _Track:
    """One mean score over the steps; None where a report lacks it."""

    name: str
    """A HELMET category, or `RULER mean at <tokens>`."""

    values: tuple[float | None, ...]
    intervals: tuple[Sequence[float] | None, ...]
    threshold: float | None = None
    verdicts: tuple[str | None, ...] = ()
    """The verdicts on the mean being above the threshold; empty for a mean without a threshold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _StepHistory:
    """The numbers of several reports, all in the order of the steps."""

    reports: tuple[StepReport, ...]
    lengths: tuple[int, ...]
    """The lengths that any of the reports tested, in tokens."""

    effective_lengths: tuple[int | None, ...]
    """RULER's effective lengths in tokens: 0 below the shortest tested length, None if not measured."""

    claimed_length: int | None
    """The length that the last checkpoint claims to support, in tokens."""

    means: tuple[_Track, ...]
    likelihoods: tuple[_Track, ...]
    """Gains in nats and recoveries in points over the steps, by family and length."""

    gate_values: tuple[_Track, ...]
    """The measured values of blocking gates on scores and differences, with the value that each requires."""

    gates: Mapping[str, tuple[str | None, ...]]
    """The verdicts of every blocking gate by its name; None where a report lacks the gate."""

    skipped: tuple[str, ...]
    """The files that were left out, with the reason."""

    @property
    def steps(self) -> tuple[int, ...]:
        """The training steps in ascending order."""
        return tuple(report.step for report in self.reports)


def read_reports(directory: Path) -> tuple[list[StepReport], list[str]]:
    """Return all reports of a directory and its subdirectories by step, and one line for every report left out.

    The step comes from the report itself (--step, or its checkpoint's path), or else from the file's path. Of several
    reports of one step, the one that started last counts. Raises HistoryError if there is no report with a step.
    """
    if not os.path.isdir(directory):
        raise HistoryError(f"{directory} is not a directory; name one with files written by --report-json")
    by_step: dict[int, StepReport] = {}
    skipped: list[str] = []
    for name, document in read_documents(directory):
        step = step_of(name) if document.run.step is None else document.run.step
        if step is None:
            skipped.append(f"{name}: no step in the report nor in its path; run it with --step")
            continue
        candidates = [StepReport(step=step, path=directory / name, document=document)]
        candidates += [by_step[step]] if step in by_step else []
        # Of two reports that started at the same time, the one that was read first stays.
        newest = max(reversed(candidates), key=lambda candidate: str(candidate.document.run.started))
        by_step[step] = newest
        skipped += [
            f"{candidate.path.relative_to(directory)}: another report of step {step} is newer"
            for candidate in candidates
            if candidate is not newest
        ]
    if not by_step:
        reason = skipped[0] if skipped else f"it contains no {REPORT_SCHEMA}"
        raise HistoryError(f"{directory} has no report with a step ({reason})")
    return [by_step[step] for step in sorted(by_step)], skipped


def read_documents(directory: Path) -> Iterator[tuple[str, JsonReport]]:
    """Yield all reports, with all texts visible, and their paths within the directory; other files are ignored.

    Raises HistoryError for a report whose values have not the form of one.
    """
    for path in sorted(directory.rglob("*.json")):
        # The comparisons of a search are about samples that it has chosen.
        if (path.parent / SEARCH_RESULT).exists():
            continue
        try:
            data = read_outside(path)
            content = json.loads(data)
        # A directory of results also holds files that are no reports, or that are being written.
        except (OSError, ValueError, RecursionError):
            continue
        if not isinstance(content, dict) or content.get("schema") != REPORT_SCHEMA:
            continue
        try:
            yield str(path.relative_to(directory)), visible_data(parse_report(data))
        except ValueError as error:
            raise HistoryError(
                f"{path} has not the form of a report ({error}); write it again with --report-json, or remove it"
            ) from error


def history(reports: Sequence[StepReport], skipped: Sequence[str] = ()) -> _StepHistory:
    """Return the numbers of the reports, which must be in the order of their steps."""
    documents = [report.document for report in reports]
    lengths = tuple(sorted({case.length for document in documents for case in document.cases}))
    names = dict.fromkeys(gate.name for document in documents for gate in document.gates if gate.blocking)
    verdicts = [{gate.name: gate.verdict for gate in document.gates} for document in documents]
    return _StepHistory(
        reports=tuple(reports),
        lengths=lengths,
        effective_lengths=tuple(map(_effective_length, documents)),
        claimed_length=documents[-1].ruler.claimed_length,
        means=(
            *_ruler_tracks(documents, lengths),
            *_category_tracks(
                [document.helmet.categories if document.helmet else {} for document in documents], lengths
            ),
            *_category_tracks([frontier_means(document) for document in documents], lengths),
        ),
        likelihoods=tuple(_likelihood_tracks(documents)),
        gate_values=tuple(_gate_tracks(documents, names)),
        gates={name: tuple(by_name.get(name) for by_name in verdicts) for name in names},
        skipped=tuple(skipped),
    )


def _gate_tracks(documents: Sequence[JsonReport], names: Iterable[str]) -> Iterator[_Track]:
    """Yield the measured values of every gate that has one in any report; lengths and likelihoods have own charts."""
    by_name = [{gate.name: gate for gate in document.gates} for document in documents]
    for name in names:
        gates = [gates.get(name) for gates in by_name]
        known = [gate for gate in gates if gate is not None and gate.measured is not None]
        if known and known[-1].kind not in ("effective_length", "likelihood"):
            yield _Track(
                name=name,
                values=tuple(gate.measured if gate else None for gate in gates),
                intervals=tuple(gate.interval if gate else None for gate in gates),
                threshold=known[-1].required,
                verdicts=tuple(gate.verdict if gate else None for gate in gates),
            )


def _effective_length(document: JsonReport) -> int | None:
    """Return the effective length; 0 if it lies below the shortest tested length, None if it was not measured."""
    ruler = document.ruler
    length: int | None = ruler.effective_length
    return 0 if length is None and ruler.effective_length_label is not None else length


def _ruler_tracks(documents: Sequence[JsonReport], lengths: Sequence[int]) -> list[_Track]:
    """Return RULER's mean at every length at which any report has one."""
    rulers = [document.ruler for document in documents]
    tracks = [
        _Track(
            name=f"RULER mean at {length}",
            values=tuple(ruler.scores.get(str(length)) for ruler in rulers),
            intervals=tuple(ruler.intervals.get(str(length)) for ruler in rulers),
            threshold=rulers[-1].threshold,
            verdicts=tuple(ruler.verdicts.get(str(length)) for ruler in rulers),
        )
        for length in lengths
    ]
    return [track for track in tracks if any(value is not None for value in track.values)]


def _likelihood_tracks(documents: Sequence[JsonReport]) -> Iterator[_Track]:
    """Yield the gain and the recovery of every panel that any report has; reports of older versions have none."""
    by_report = [
        {(panel.family, panel.length): panel for panel in document.likelihood.panels} if document.likelihood else {}
        for document in documents
    ]
    for family, length in dict.fromkeys(key for panels in by_report for key in panels):
        for measure in ("gain", "recovery"):
            estimates: list[MeanEstimate | None] = [
                getattr(panels.get((family, length)), measure, None) for panels in by_report
            ]
            if any(estimates):
                yield _Track(
                    name=f"{family} {measure} at {length}",
                    values=tuple(estimate.mean if estimate else None for estimate in estimates),
                    intervals=tuple(estimate.interval if estimate else None for estimate in estimates),
                )


def _category_tracks(categories: Sequence[Categories], lengths: Sequence[int]) -> list[_Track]:
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
            tracks.append(_Track(name=category, values=values, intervals=(None,) * len(values)))
    return tracks


BUDGET_BYTES = 5_000_000
"""The most bytes of samples on the page; every report gets an equal share."""

DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)
Row = dict[str, Any]
"""A row as the page's script takes it; `run` names its step."""


def _page_of(report: StepReport) -> Path | None:
    """Return the HTML page of a report, which has the same name; None if there is none."""
    page = report.path.with_suffix(".html")
    return page if page.is_file() else None


def samples_of_runs(
    reports: Sequence[StepReport], labels: Sequence[str], budget_bytes: int = BUDGET_BYTES
) -> list[Row]:
    """Return samples of every report, wrong ones first: those of its page, or else the examples of the report."""
    share = budget_bytes // max(1, len(reports))
    rows: list[Row] = []
    for report, label in zip(reports, labels, strict=True):
        left = share
        for row in _rows(report):
            labelled = {**row, "run": f"step {label}"}
            left -= len(json.dumps(labelled))
            if left < 0:
                break
            rows.append(labelled)
    return sorted(rows, key=_is_right)


def _is_right(row: Row) -> bool:
    score = row.get("score")
    return score is not None and score >= 100


def _is_row(row: Any) -> bool:
    if not isinstance(row, dict) or not isinstance(row.get("task"), str):
        return False
    numbers = all(isinstance(row.get(name), int) for name in ("length", "index"))
    lists = all(isinstance(row.get(name), list) for name in ("expected", "credits"))
    return numbers and lists and isinstance(row.get("score"), int | float | None) and isinstance(row.get("answer"), str)


def _rows(report: StepReport) -> list[Row]:
    """Return the rows that the page of a report carries; without such a page, the wrong samples of the report.

    The report has neither their scores nor their questions.
    """
    page, rows = _page_of(report), None
    try:
        match = DATA.search(read_outside(page).decode("utf-8", errors="replace")) if page is not None else None
        rows = visible_data(json.loads(match[1]))["rows"] if match else None
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        pass
    if rows and isinstance(rows, list) and all(map(_is_row, rows)):
        return rows
    examples: list[Row] = []
    for case in report.document.cases:
        for example in case.examples:
            row: Row = {"task": case.task, "length": case.length, "index": example.index, "score": None}
            row |= {"expected": example.expected, "credits": [-1] * len(example.expected)}
            row |= {"answer": example.got, "failure": example.failure}
            examples.append(row if example.depth is None else row | {"depth": example.depth})
    return examples


def write_history(directory: Path, target: Path) -> tuple[list[StepReport], list[str]]:
    """Write the page of the reports of a directory; return them, and one line for every report left out.

    Raises OSError, and HistoryError that names the report which has not the form of one.
    """
    reports, skipped = read_reports(directory)
    target.write_text(_page(reports, skipped, target.parent), encoding="utf-8", errors="replace")
    return reports, skipped


def _page(reports: Sequence[StepReport], skipped: Sequence[str], folder: Path) -> str:
    try:
        return steps_page(history(reports, skipped), folder)
    except MALFORMED as problem:
        for report in reports:
            try:
                steps_page(history([report]))
            except MALFORMED as error:
                raise HistoryError(
                    f"{report.path} has not the form of a report ({type(error).__name__}: {error}); "
                    "write it again with --report-json, or remove it"
                ) from error
        raise HistoryError(
            f"the reports do not fit together ({type(problem).__name__}: {problem}); "
            "remove those that this version has not written"
        ) from problem


def steps_page(history: _StepHistory, folder: Path | None = None) -> str:
    """Return the page as HTML; `folder` is the directory it is written to, from which it links to other pages."""
    labels = [_short_step(step) for step in history.steps]
    samples = samples_of_runs(history.reports, labels)
    drawn: list[float | None] = []
    for track in history.means:
        drawn += [*track.values, track.threshold, *(interval[0] for interval in track.intervals if interval)]
    lowest = lowest_of(drawn)
    reports = []
    for report, length in zip(history.reports, history.effective_lengths, strict=True):
        verdicts = Counter(shown_verdict(gate.verdict) for gate in report.document.gates if gate.blocking)
        page = _page_of(report)
        reports.append(
            {
                "step": f"{report.step:,}",
                "name": report.document.model.name,
                "effective_length": _length_text(length),
                "gates": ", ".join(f"{count} {word}" for word, count in verdicts.items()) or "-",
                "link": None if page is None or folder is None else os.path.relpath(page, folder),
            }
        )
    return render(
        "history.html.j2",
        title="Long context over training steps",
        steps=labels,
        reports=reports,
        effective_lengths=_effective_length_chart(history, labels),
        charts=[_mean_chart(track, labels, lowest) for track in history.means],
        likelihoods=[_likelihood_chart(track, labels) for track in history.likelihoods],
        gate_charts=[_gate_chart(track, labels) for track in history.gate_values],
        gates=history.gates,
        samples=samples,
        has_flips=any("flip" in row for row in samples),
        script=resource("script.js") if samples else "",
        data=embedded({"rows": samples}),
        skipped=[visible(line) for line in history.skipped],
    )


def _gate_chart(track: _Track, labels: list[str]) -> Chart:
    is_difference = track.threshold is not None and track.threshold < 0
    chart = value_chart if is_difference else score_chart
    return Chart(
        name=track.name,
        line=chart(labels, track.values, track.intervals, threshold=track.threshold, verdicts=track.verdicts),
        note=f"requires {track.threshold:g}",
        rows=chart_rows(labels, track.values, track.intervals),
    )


def _mean_chart(track: _Track, labels: list[str], lowest: float) -> Chart:
    name, at, length = track.name.partition(" at ")
    return Chart(
        name=f"{name} at {short_length(int(length))}" if at else f"HELMET {name}",
        line=score_chart(
            labels, track.values, track.intervals, threshold=track.threshold, verdicts=track.verdicts, lowest=lowest
        ),
        note=threshold_note(track.threshold),
        rows=chart_rows(labels, track.values, track.intervals),
    )


def _likelihood_chart(track: _Track, labels: list[str]) -> Chart:
    name, _, length = track.name.partition(" at ")
    return Chart(
        name=f"{name} at {short_length(int(length))}",
        line=value_chart(labels, track.values, track.intervals),
        note="in nats per token" if name.endswith("gain") else "0 to 100; it screens, answers decide",
        rows=tuple(
            (
                label,
                "-" if value is None else f"{value:.2f}",
                "-" if ends is None else f"{ends[0]:.2f} to {ends[1]:.2f}",
            )
            for label, value, ends in zip(labels, track.values, track.intervals, strict=True)
        ),
    )


def _effective_length_chart(history: _StepHistory, labels: list[str]) -> Chart | None:
    """Return the chart with one level for each tested length, and one below them; None if nothing was measured."""
    if all(length is None for length in history.effective_lengths):
        return None
    levels = {length: level for level, length in enumerate((0, *history.lengths))}
    tested_claim = max((length for length in history.lengths if length <= (history.claimed_length or 0)), default=None)
    line = level_chart(
        labels,
        [None if length is None else levels.get(length) for length in history.effective_lengths],
        [_length_text(length) for length in levels],
        threshold=None if tested_claim is None else levels[tested_claim],
    )
    rows = tuple(
        (label, _length_text(length), "-") for label, length in zip(labels, history.effective_lengths, strict=True)
    )
    return Chart(name="Effective length", line=line, note="dashed: longest tested length within the claim", rows=rows)


def _length_text(length: int | None) -> str:
    if length is None:
        return "-"
    return short_length(length) if length else "none"


def _short_step(step: int) -> str:
    """Return a step with a unit where that is exact: 1000 is 1k, 1500 is 1.5k, 1234 stays."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if step >= size and step * 10 % size == 0:
            return f"{step / size:g}{unit}"
    return str(step)
