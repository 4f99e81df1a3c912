"""The reports of many checkpoints: a page that draws them over steps, correlations of scores, and a ranking of models.

The rank correlations are those of HELMET's analysis (Yen et al. 2025, §3).
"""

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from longctx.fixtures.checkpoints.steps import step_of
from longctx.fixtures.cli import output_problem
from longctx.fixtures.outside_files import absolute, read_outside
from longctx.fixtures.records import family_of
from longctx.fixtures.records.report import REPORT_SCHEMA, JsonReport, ReportCase, ReportGate, parse_report
from longctx.fixtures.records.report_parts import ByLength
from longctx.fixtures.shown_text import one_line, visible, visible_data
from longctx.plugins.report.charts import Series, chart, score_charts, series_of, value_axis
from longctx.plugins.report.html.page import render
from longctx.plugins.report.sections.gates import shown_label
from longctx.plugins.report.sections.scores import TITLES
from longctx.plugins.report.sections.suites import means
from longctx.plugins.report.tables import (
    Cell,
    Row,
    Table,
    short_length,
    shown_interval,
    shown_number,
    text_row,
    verdict_cell,
)

FEWEST_CHECKPOINTS = 4
NORMAL_95 = 1.959964
SHOWN_NAME = 40

# A search writes them beside its comparisons.
SEARCH_FILES = ("bisect.json", "bisect.toml")


class HistoryError(ValueError):
    """A directory without any report that can be drawn; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    step: int
    path: Path
    document: JsonReport


Steps = Sequence[StepReport]
Values = Sequence[float]


def read_documents(directory: Path) -> tuple[dict[str, JsonReport], list[str]]:
    """Return all reports by their path within the directory, with all texts visible, and a line for every faulty one.

    JSON files of other programs are ignored. Raises HistoryError if there is no such directory.
    """
    if not os.path.isdir(directory):
        raise HistoryError(f"{directory} is not a directory; name one with files written by --report-json")
    documents: dict[str, JsonReport] = {}
    faulty: list[str] = []
    for path in sorted(directory.rglob("*.json")):
        # The comparisons of a search are about samples that it has chosen.
        if not path.is_file() or any((path.parent / name).exists() for name in SEARCH_FILES):
            continue
        name = str(path.relative_to(directory))
        try:
            data = read_outside(path)
            if b'"longctx-report/' in data:
                documents[name] = visible_data(parse_report(data))
            else:
                # A torn report may lack what marks it.
                json.loads(data)
        except (OSError, ValueError, RecursionError) as error:
            faulty.append(f"{name}: is no whole report ({error})")
    return documents, faulty


def by_step(documents: Mapping[str, JsonReport], directory: Path) -> tuple[list[StepReport], list[str]]:
    """Return the reports, given by their path within a directory, by step, and one line for every report left out.

    The step comes from the report itself (--step, or its checkpoint's path), or else from the file's path. Of several
    reports of one step, the one that started last counts.
    """
    newest: dict[int, StepReport] = {}
    skipped: list[str] = []
    for name, document in sorted(documents.items(), key=lambda item: item[1].run.started):
        step = step_of(name) if document.run.step is None else document.run.step
        if step is None:
            skipped.append(f"{name}: no step in the report nor in its path; run it with --step")
            continue
        if step in newest:
            older = newest[step].path.relative_to(directory)
            skipped.append(f"{older}: another report of step {step} is newer")
        newest[step] = StepReport(step=step, path=directory / name, document=document)
    return [newest[step] for step in sorted(newest)], skipped


def write_history(directory: Path, target: Path) -> tuple[list[StepReport], list[str]]:
    """Write the page of the reports of a directory; return those that have a step, and a line for each one left out.

    Raises OSError, and HistoryError without two checkpoints or one step.
    """
    documents, skipped = read_documents(directory)
    read = {absolute(directory / path): f"a report in {directory}" for path in documents}
    if problem := output_problem({"--out": absolute(target)}, read):
        raise HistoryError(problem)
    reports, without_step = by_step(documents, directory)
    skipped += without_step
    together = correlations([*documents.values()])
    if not reports and together is None:
        reason = skipped[0] if skipped else f"it contains no {REPORT_SCHEMA}"
        raise HistoryError(f"{directory} has no report with a step ({reason})")
    page = render(
        "history.html.j2",
        title="Long context over training steps",
        reports=_report_table(reports, target.parent),
        together=together,
        skipped=[visible(line) for line in skipped],
        **step_charts(reports),
    )
    target.write_text(page, encoding="utf-8", errors="replace")
    return reports, skipped


def mean_tracks(reports: Steps) -> list[Series]:
    """Return RULER's mean at every length, and the means of all other suites over the lengths of all reports."""
    documents = [report.document for report in reports]
    rulers = [document.ruler for document in documents]
    tracks: list[Series] = []
    for length in sorted({case.length for document in documents for case in document.cases}):
        key = str(length)
        tracks.append(Series(
            name=f"RULER mean at {short_length(length)}",
            values=tuple(ruler.scores.get(key) for ruler in rulers),
            intervals=tuple(ruler.intervals.get(key) for ruler in rulers),
            threshold=rulers[-1].threshold,
            verdicts=tuple(ruler.verdicts.get(key) for ruler in rulers),
        ))  # fmt: skip
    by_report = [_means_by_name(document) for document in documents]
    for name in _names(by_report):
        values = common_means([scores.get(name, {}) for scores in by_report])
        if not name.startswith("ruler "):
            tracks.append(Series(name=name, values=tuple(values)))
    return tracks


def _means_by_name(document: JsonReport) -> dict[str, ByLength]:
    return {f"{mean.suite} {mean.name}": mean.scores for mean in means(document)}


def gate_tracks(reports: Steps) -> list[Series]:
    """Return the values of every blocking gate but those on an effective length, with the value that it requires."""
    by_report = _blocking_gates(reports)
    tracks = []
    for name in _names(by_report):
        gates = [gates_of_step.get(name) for gates_of_step in by_report]
        last = [gate for gate in gates if gate is not None][-1]
        track = series_of(name, gates, threshold=last.required)
        if track.is_measured and last.kind != "effective_length":
            tracks.append(track)
    return tracks


def _blocking_gates(reports: Steps) -> list[dict[str, ReportGate]]:
    by_report = []
    for report in reports:
        by_report.append({gate.name: gate for gate in report.document.gates if gate.blocking})
    return by_report


def _names(by_report: Iterable[Iterable[str]]) -> list[str]:
    """Return the names that any report has, in their order there."""
    return list(dict.fromkeys(name for names in by_report for name in names))


def step_charts(reports: Steps) -> dict[str, Any]:
    """Return the charts and the table of gates of a page over steps, which a watch shows too."""
    labels = [f"{report.step:,}" for report in reports]
    by_report = _blocking_gates(reports)
    rows = []
    for name in _names(by_report):
        gates = [gates_of_step.get(name) for gates_of_step in by_report]
        cells = [Cell() if gate is None else verdict_cell(gate.verdict) for gate in gates]
        rows.append(Row(name=name, cells=tuple(cells)))
    gate_charts = []
    for track in gate_tracks(reports):
        gate_charts.append(chart(track.name, [track], labels, value_axis(track), f"requires {track.threshold:g}"))
    return {
        "steps": labels,
        "means": score_charts(mean_tracks(reports), labels),
        "gate_charts": gate_charts,
        "gates": Table(name="Blocking gates by step", corner="gate", columns=tuple(labels), rows=tuple(rows)),
    }


def _report_table(reports: Steps, folder: Path) -> Table:
    """Return the reports with links from a page in the folder to their own pages."""
    rows = []
    for report in reports:
        length = report.document.ruler.effective_length_label
        page = report.path.with_suffix(".html")
        link = os.path.relpath(page, folder) if page.is_file() else ""
        cells = (
            Cell(text=shown_label(length) if length else "-"),
            Cell(text=report.document.model.name),
            Cell(text="open" if link else "-", link=link),
        )
        rows.append(Row(name=f"{report.step:,}", cells=cells))
    columns = ("effective length", "model", "page")
    return Table(name="Reports by step", corner="step", columns=columns, rows=tuple(rows))


def common_means(by_report: Sequence[ByLength]) -> list[float | None]:
    """Return the means over the lengths that all reports with any score have in common; None for the others."""
    measured = [scores for scores in by_report if any(score is not None for score in scores.values())]
    common = []
    for length in _names(measured):
        if all(scores.get(length) is not None for scores in measured):
            common.append(length)
    values: list[float | None] = []
    for scores in by_report:
        known = [score for length in common if (score := scores.get(length)) is not None]
        values.append(fmean(known) if known else None)
    return values


def correlations(documents: Sequence[JsonReport]) -> tuple[Table, Table] | None:
    """Return the scores of all checkpoints by their latest reports, and the correlations between the scores.

    Scores are the means of suites and categories, and the data sets (HELMET, Figures 8 and 9), which all checkpoints
    have at a common length. Returns None for fewer than two checkpoints.
    """
    newest = {}
    for document in sorted(documents, key=lambda document: document.run.started):
        # The same weights with another configuration are another model.
        newest[document.model.fingerprint, str(document.run.options.get("config_override"))] = document
    latest = [*newest.values()]
    if len(latest) < 2:
        return None
    latest.sort(key=lambda document: (document.run.step is None, document.run.step or 0, document.model.name))
    by_report = [_scores_by_name(document) for document in latest]
    scores: dict[str, list[float]] = {}
    for name in _names(by_report):
        values = common_means([table.get(name, {}) for table in by_report])
        known = [value for value in values if value is not None]
        if len(known) == len(latest):
            scores[name] = known
    rows = []
    for place, document in enumerate(latest):
        rows.append(text_row(shown_name(document), *(f"{values[place]:.1f}" for values in scores.values())))
    table = Table(name="Scores by checkpoint", corner="checkpoint", columns=tuple(scores), rows=tuple(rows))
    return table, _matrix(scores, len(latest))


def _scores_by_name(document: JsonReport) -> dict[str, ByLength]:
    scores = _means_by_name(document)
    by_task: dict[str, dict[str, float | None]] = {}
    for case in document.cases:
        by_task.setdefault(case.task, {})[str(case.length)] = case.score
    return {**scores, **by_task}


def shown_name(document: JsonReport) -> str:
    step = "" if document.run.step is None else f", step {document.run.step}"
    return one_line(document.model.name, SHOWN_NAME) + step


def _matrix(scores: Mapping[str, Values], checkpoints: int) -> Table:
    """Return the correlations between all scores that vary; without rows for fewer than two, or few checkpoints."""
    varied = {name: values for name, values in scores.items() if len(set(values)) > 1}
    rows = []
    if checkpoints >= FEWEST_CHECKPOINTS and len(varied) > 1:
        for name in varied:
            cells = [Cell(text="") if other == name else _correlated(varied[name], varied[other]) for other in varied]
            rows.append(Row(name=name, cells=tuple(cells)))
    return Table(name="Rank correlations", corner="scores", columns=tuple(varied), rows=tuple(rows))


def _correlated(first: Values, second: Values) -> Cell:
    value, low, high = correlation(first, second)
    return Cell(text=f"{value:+.2f}", interval=f"{low:+.2f} to {high:+.2f}")


def correlation(first: Values, second: Values) -> tuple[float, float, float]:
    """Return Spearman's correlation of at least four pairs with the ends of its 95 % interval (Bonett and Wright 2000).

    A perfect correlation has the interval of one with two neighbours swapped, since a few pairs cannot show a
    population value of 1.
    """
    # scipy takes half a second to import, and few pages need it.
    from scipy.stats import spearmanr

    count = len(first)
    value = float(spearmanr(first, second).statistic)
    most = 1 - 12 / (count * (count**2 - 1))
    centre = math.atanh(max(-most, min(most, value)))
    spread = NORMAL_95 * math.sqrt((1 + value**2 / 2) / (count - 3))
    return value, math.tanh(centre - spread), math.tanh(centre + spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A model's average, with the distances to the ends of its interval."""

    average: float
    below: float
    above: float

    def is_better(self, other: "Standing") -> bool:
        """Return True if the interval of the difference of independent estimates shows it (Zou and Donner 2008)."""
        return self.average - other.average > math.hypot(self.below, other.above)


Standings = Mapping[int, Standing]
"""The standings of a model by length in tokens."""


def ranking(documents: Sequence[JsonReport]) -> list[Table]:
    """Return a table for each suite with the models by their plain averages over lengths (RULER, Table 3).

    The averages are over the tasks that all reports have, at the lengths that have all of them. A rank is a range where
    the intervals do not tell models apart. Raises HistoryError without a common case.
    """
    scored = []
    for document in documents:
        scored.append({case.id: case for case in document.cases if case.score is not None})
    common = [case for case_id, case in scored[0].items() if all(case_id in cases for cases in scored)]
    tables = []
    for suite in dict.fromkeys(case.suite for case in common):
        of_suite = [case for case in common if case.suite == suite]
        sizes = Counter(case.length for case in of_suite)
        # The mean of a length without some of the tasks is no mean of the suite.
        ids = [case.id for case in of_suite if sizes[case.length] == max(sizes.values())]
        by_document = [_standings([cases[case_id] for case_id in ids]) for cases in scored]
        tables.append(_ranked(TITLES.get(suite, suite), documents, by_document))
    if not tables:
        raise HistoryError("the reports have no case with a score in common; give reports of the same tasks")
    return tables


def _standings(cases: Sequence[ReportCase]) -> Standings:
    """Return the standing at every length. Families of cases weigh alike, and so do the cases of a family."""
    by_length: dict[int, dict[str, list[Standing]]] = {}
    for case in cases:
        score, (low, high) = case.score or 0.0, case.interval or (0.0, 100.0)
        standing = Standing(average=score, below=score - low, above=high - score)
        families = by_length.setdefault(case.length, {})
        families.setdefault(family_of(case.suite, case.category), []).append(standing)
    standings = {}
    for length, families in by_length.items():
        means = [_joined(family, _of_independent) for family in families.values()]
        standings[length] = _joined(means, _of_independent)
    return standings


def _joined(parts: Sequence[Standing], join: Callable[[Values], float]) -> Standing:
    """Return the standing of the mean of parts, whose distances are joined."""
    return Standing(
        average=fmean(part.average for part in parts),
        below=join([part.below for part in parts]),
        above=join([part.above for part in parts]),
    )


def _of_independent(distances: Values) -> float:
    """Return the distance of a mean of independent parts, where they add up as squares."""
    return math.hypot(*distances) / len(distances)


def _ranked(name: str, documents: Sequence[JsonReport], by_document: Sequence[Standings]) -> Table:
    lengths = sorted(by_document[0])
    # Lengths share questions and haystacks, so the distances are averaged.
    standings = [_joined([own[length] for length in lengths], fmean) for own in by_document]
    models = sorted(zip(documents, by_document, standings, strict=True), key=lambda model: -model[2].average)
    rows = []
    for document, by_length, own in models:
        scores = [shown_number(by_length[length].average) for length in lengths]
        ends = max(0.0, own.average - own.below), min(100.0, own.average + own.above)
        average = f"{own.average:.1f} ({shown_interval(ends)})"
        rows.append(text_row(shown_name(document), *scores, average, _rank(own, standings)))
    columns = (*map(short_length, lengths), "average", "rank")
    return Table(name=name, corner=name, columns=columns, rows=tuple(rows))


def _rank(own: Standing, standings: Sequence[Standing]) -> str:
    better = sum(other.is_better(own) for other in standings)
    worse = sum(own.is_better(other) for other in standings)
    first, last = 1 + better, len(standings) - worse
    return f"{first}" if first == last else f"{first} to {last}"


def differing_questions(documents: Sequence[JsonReport]) -> list[str]:
    """Return the models that were measured in another way than the first: other texts, prompts, scores or seed."""
    ways = []
    for document in documents:
        run = document.run
        ways.append((run.corpora, run.prompts, run.options.get("scoring"), run.seed))
    return [shown_name(document) for document, way in zip(documents, ways, strict=True) if way != ways[0]]
