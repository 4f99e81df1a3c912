"""The reports of many checkpoints: a page that draws them over steps, correlations of scores, and a ranking of models.

The rank correlations are those of HELMET's analysis (Yen et al. 2025, §3).
"""

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from longctx.fixtures.checkpoints.steps import step_of
from longctx.fixtures.cli import output_problem
from longctx.fixtures.outside_files import absolute, read_outside
from longctx.fixtures.records.report import REPORT_SCHEMA, JsonReport, ReportCase, parse_report
from longctx.fixtures.shown_text import one_line, visible, visible_data
from longctx.plugins.report.charts import (
    SCORES,
    Chart,
    Series,
    chart,
    level_axis,
    score_charts,
    series_of,
    value_axis,
)
from longctx.plugins.report.html.page import render
from longctx.plugins.report.tables import (
    Cell,
    Row,
    Table,
    shares_text,
    short_length,
    shown_interval,
    shown_number,
    text_row,
    verdict_cell,
)
from longctx.plugins.thresholds.records import CATEGORIES

RULER, HELMET = "RULER", "HELMET"
MEASURES = (RULER, HELMET, *CATEGORIES)
FEWEST_CHECKPOINTS = 4
NORMAL_95 = 1.959964
SHOWN_NAME = 40

ByLength = Mapping[str, float | None]
"""Scores by length in tokens; None where nothing was measured."""

# A search writes it beside its comparisons.
SEARCH_RESULT = "bisect.json"


class HistoryError(ValueError):
    """A directory without any report that can be drawn; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    step: int
    path: Path
    document: JsonReport


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
        if not path.is_file() or (path.parent / SEARCH_RESULT).exists():
            continue
        name = str(path.relative_to(directory))
        try:
            data = read_outside(path)
            if _is_report(data):
                documents[name] = visible_data(parse_report(data))
        except OSError as error:
            faulty.append(f"{name}: cannot be read ({error.strerror})")
        except ValueError as error:
            faulty.append(f"{name}: is no whole report ({error})")
    return documents, faulty


def _is_report(data: bytes) -> bool:
    """Return False for the JSON of another program; raise ValueError for a text that is no JSON, such as a torn one."""
    try:
        content = json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return isinstance(content, dict) and str(content.get("schema")).startswith("longctx-report/")


def by_step(documents: Mapping[str, JsonReport], directory: Path) -> tuple[list[StepReport], list[str]]:
    """Return the reports, given by their path within a directory, by step, and one line for every report left out.

    The step comes from the report itself (--step, or its checkpoint's path), or else from the file's path. Of several
    reports of one step, the one that started last counts.
    """
    newest: dict[int, StepReport] = {}
    skipped: list[str] = []
    for name, document in documents.items():
        step = step_of(name) if document.run.step is None else document.run.step
        if step is None:
            skipped.append(f"{name}: no step in the report nor in its path; run it with --step")
            continue
        report = StepReport(step=step, path=directory / name, document=document)
        known = newest.get(step)
        if known is not None and str(known.document.run.started) >= str(document.run.started):
            report, known = known, report
        newest[step] = report
        if known is not None:
            skipped.append(f"{known.path.relative_to(directory)}: another report of step {step} is newer")
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
    page = steps_page(reports, target.parent, skipped=skipped, together=together)
    target.write_text(page, encoding="utf-8", errors="replace")
    return reports, skipped


def mean_tracks(reports: Sequence[StepReport]) -> list[Series]:
    """Return RULER's mean at every length, and the means of HELMET's categories and of the frontier tasks."""
    documents = [report.document for report in reports]
    rulers = [document.ruler for document in documents]
    tracks: list[Series] = []
    for length in _lengths(documents):
        key = str(length)
        tracks.append(Series(
            name=f"RULER mean at {short_length(length)}",
            values=tuple(ruler.scores.get(key) for ruler in rulers),
            intervals=tuple(ruler.intervals.get(key) for ruler in rulers),
            threshold=rulers[-1].threshold,
            verdicts=tuple(ruler.verdicts.get(key) for ruler in rulers),
        ))  # fmt: skip
    helmets = [document.helmet.categories if document.helmet else {} for document in documents]
    frontiers = [document.frontier.categories if document.frontier else {} for document in documents]
    for family, tables in (("HELMET ", helmets), ("", frontiers)):
        for name in dict.fromkeys(name for table in tables for name in table):
            means = tuple(common_means([table.get(name, {}) for table in tables]))
            tracks.append(Series(name=f"{family}{name}", values=means, intervals=(None,) * len(means)))
    return _measured(tracks)


def gate_tracks(reports: Sequence[StepReport]) -> list[Series]:
    """Return the values of every blocking gate that has no chart of another kind, with the value that it requires."""
    by_name = [{gate.name: gate for gate in report.document.gates if gate.blocking} for report in reports]
    tracks = []
    for name in dict.fromkeys(name for gates in by_name for name in gates):
        gates = [gates_of_step.get(name) for gates_of_step in by_name]
        last = [gate for gate in gates if gate is not None][-1]
        if last.kind not in ("effective_length", "likelihood"):
            tracks.append(series_of(name, gates, threshold=last.required))
    return _measured(tracks)


def likelihood_tracks(reports: Sequence[StepReport]) -> list[Series]:
    """Return the gain in nats and the recovery in points of every family at every length."""
    by_report = []
    for report in reports:
        likelihood = report.document.likelihood
        by_report.append({(panel.family, panel.length): panel for panel in (likelihood.panels if likelihood else ())})
    tracks = []
    for family, length in dict.fromkeys(key for panels in by_report for key in panels):
        panels = [panels_of_step.get((family, length)) for panels_of_step in by_report]
        for measure in ("gain", "recovery"):
            estimates = [getattr(panel, measure, None) for panel in panels]
            tracks.append(series_of(f"{family} {measure} at {short_length(length)}", estimates, "mean"))
    return _measured(tracks)


def _measured(tracks: Sequence[Series]) -> list[Series]:
    return [track for track in tracks if track.is_measured]


def _lengths(documents: Sequence[JsonReport]) -> list[int]:
    return sorted({case.length for document in documents for case in document.cases})


def _effective_length(report: StepReport) -> int | None:
    """Return RULER's effective length: 0 below the shortest tested length, None where it was not measured."""
    ruler = report.document.ruler
    is_below = ruler.effective_length is None and ruler.effective_length_label is not None
    return 0 if is_below else ruler.effective_length


def steps_page(
    reports: Sequence[StepReport],
    folder: Path | None = None,
    *,
    skipped: Sequence[str] = (),
    together: "Correlations | None" = None,
) -> str:
    """Return the page as HTML; `folder` is the directory it is written to, from which it links to other pages."""
    return render(
        "history.html.j2",
        title="Long context over training steps",
        reports=_report_table(reports, folder),
        together=together,
        skipped=[visible(line) for line in skipped],
        **step_charts(reports),
    )


def step_charts(reports: Sequence[StepReport]) -> dict[str, Any]:
    """Return the charts and the table of gates of a page over steps, which a watch shows too."""
    labels = [_short_step(report.step) for report in reports]
    by_step = [{gate.name: gate.verdict for gate in report.document.gates if gate.blocking} for report in reports]
    rows = []
    for name in dict.fromkeys(name for verdicts in by_step for name in verdicts):
        rows.append(Row(name=name, cells=tuple(verdict_cell(verdicts.get(name)) for verdicts in by_step)))
    likelihoods, gate_charts = list[Chart](), list[Chart]()
    for track in likelihood_tracks(reports):
        note = "in nats per token" if " gain at " in track.name else "0 to 100; it screens, answers decide"
        likelihoods.append(chart(track.name, [track], labels, value_axis(track), note))
    for track in gate_tracks(reports):
        is_loss = track.threshold is not None and track.threshold < 0
        axis = value_axis(track) if is_loss else SCORES
        gate_charts.append(chart(track.name, [track], labels, axis, f"requires {track.threshold:g}"))
    return {
        "steps": labels,
        "effective_lengths": _effective_length_chart(reports, labels),
        "means": score_charts(mean_tracks(reports), labels),
        "likelihoods": likelihoods,
        "gate_charts": gate_charts,
        "gates": Table(name="Blocking gates by step", corner="gate", columns=tuple(labels), rows=tuple(rows)),
    }


def _report_table(reports: Sequence[StepReport], folder: Path | None) -> Table:
    rows = []
    for report in reports:
        verdicts = Counter(gate.verdict for gate in report.document.gates if gate.blocking)
        page = report.path.with_suffix(".html")
        link = os.path.relpath(page, folder) if folder is not None and page.is_file() else ""
        texts = (
            _length_text(_effective_length(report)),
            shares_text(verdicts.items()) or "-",
            report.document.model.name,
        )
        cells = (*(Cell(text=text) for text in texts), Cell(text="open" if link else "-", link=link))
        rows.append(Row(name=f"{report.step:,}", cells=cells))
    columns = ("effective length", "blocking gates", "model", "page")
    return Table(name="Reports by step", corner="step", columns=columns, rows=tuple(rows))


def _effective_length_chart(reports: Sequence[StepReport], labels: list[str]) -> Chart | None:
    """Return the chart with one level for each tested length, and one below them; None if nothing was measured."""
    lengths = [_effective_length(report) for report in reports]
    if all(length is None for length in lengths):
        return None
    tested = _lengths([report.document for report in reports])
    levels = {length: level for level, length in enumerate((0, *tested))}
    claimed = reports[-1].document.ruler.claimed_length or 0
    within = [length for length in tested if length <= claimed]
    series = Series(
        name="Effective length",
        values=tuple(None if length is None else levels.get(length) for length in lengths),
        intervals=(None,) * len(lengths),
        threshold=levels[within[-1]] if within else None,
    )
    names = [_length_text(length) for length in levels]
    return chart(series.name, [series], labels, level_axis(names), "dashed: longest tested length within the claim")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlation:
    """Spearman's rank correlation, with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlations:
    scores: Table
    """The scores of every checkpoint."""
    missing: str
    """The measures that not all checkpoints have at a common length; empty if none is missing."""
    matrix: Table
    """The correlations between the means of RULER, HELMET and its categories, and the data sets that every checkpoint
    has (HELMET, Figures 8 and 9); without rows for few checkpoints."""


def common_means(by_report: Sequence[ByLength]) -> list[float | None]:
    """Return the means over the lengths that all reports with any score have in common; None for the others."""
    measured = [scores for scores in by_report if any(score is not None for score in scores.values())]
    lengths = dict.fromkeys(length for scores in measured for length in scores)
    common = [length for length in lengths if all(scores.get(length) is not None for scores in measured)]
    means: list[float | None] = []
    for scores in by_report:
        known = [score for length in common if (score := scores.get(length)) is not None]
        means.append(math.fsum(known) / len(known) if known else None)
    return means


def correlations(documents: Sequence[JsonReport]) -> Correlations | None:
    """Return the correlations over the latest reports of all checkpoints; None for fewer than two checkpoints."""
    by_age = sorted(documents, key=lambda document: str(document.run.started))
    newest = {}
    for document in by_age:
        # The same weights with another configuration are another model.
        newest[document.model.fingerprint, str(document.run.options.get("config_override"))] = document
    latest = [*newest.values()]
    if len(latest) < 2:
        return None
    latest.sort(key=lambda document: (document.run.step is None, document.run.step or 0, document.model.name))
    tables, data_sets = list[dict[str, ByLength]](), list[dict[str, dict[str, float | None]]]()
    for document in latest:
        helmet = document.helmet
        of_helmet = {HELMET: helmet.average, **helmet.categories} if helmet else {}
        tables.append({RULER: document.ruler.scores, **of_helmet})
        data_sets.append({})
        for case in document.cases:
            data_sets[-1].setdefault(case.task, {})[str(case.length)] = case.score
    scores = {name: values for name, values in _known_means(tables, MEASURES).items() if values}
    rows = []
    for place, document in enumerate(latest):
        rows.append(text_row(shown_name(document), *(f"{values[place]:.1f}" for values in scores.values())))
    return Correlations(
        scores=Table(name="Scores by checkpoint", corner="checkpoint", columns=tuple(scores), rows=tuple(rows)),
        missing=", ".join(name for name in MEASURES if name not in scores),
        matrix=_matrix({f"{name} mean": scores[name] for name in scores} | _known_means(data_sets, data_sets[0])),
    )


def shown_name(document: JsonReport) -> str:
    step = "" if document.run.step is None else f", step {document.run.step}"
    return one_line(document.model.name, SHOWN_NAME) + step


def _known_means(tables: Sequence[Mapping[str, ByLength]], names: Iterable[str]) -> dict[str, list[float]]:
    """Return by name the mean of every table over the lengths that all have; nothing where a table has none."""
    by_name = {}
    for name in names:
        means = common_means([table.get(name, {}) for table in tables])
        known = [mean for mean in means if mean is not None]
        by_name[name] = known if len(known) == len(means) else []
    return by_name


def _matrix(scores: Mapping[str, Sequence[float]]) -> Table:
    """Return the correlations between all scores that vary; without rows for fewer than two, or few checkpoints."""
    varied = {key: values for key, values in scores.items() if len(set(values)) > 1}
    rows = []
    for key, values in varied.items() if len(varied) > 1 else ():
        cells = []
        for other in varied:
            result = None if other == key else correlation(values, varied[other])
            text = "" if result is None else f"{result.value:+.2f}"
            interval = "" if result is None else f"{result.low:+.2f} to {result.high:+.2f}"
            cells.append(Cell(text=text, interval=interval))
        if any(cell.text for cell in cells):
            rows.append(Row(name=key, cells=tuple(cells)))
    return Table(name="Rank correlations", corner="scores", columns=tuple(varied), rows=tuple(rows))


def correlation(first: Sequence[float], second: Sequence[float]) -> Correlation | None:
    """Return Spearman's correlation with its 95 % interval (Bonett and Wright 2000).

    It is None for fewer than four pairs, or if one side is constant. A perfect correlation has the interval of one with
    two neighbours swapped, since a few pairs cannot show a population value of 1.
    """
    # scipy takes half a second to import, and few pages need it.
    from scipy.stats import spearmanr

    count = len(first)
    if count < FEWEST_CHECKPOINTS or len(set(first)) == 1 or len(set(second)) == 1:
        return None
    value = float(spearmanr(first, second).statistic)
    most = 1 - 12 / (count * (count**2 - 1))
    centre = math.atanh(max(-most, min(most, value)))
    spread = NORMAL_95 * math.sqrt((1 + value**2 / 2) / (count - 3))
    return Correlation(value=value, low=math.tanh(centre - spread), high=math.tanh(centre + spread))


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A model's plain average over the lengths that all models have, with the distances to the ends of its interval."""

    average: float
    below: float
    above: float

    def is_better(self, other: "Standing") -> bool:
        """Return True if the intervals show it: by the interval of the difference of two independent estimates.

        Its distances are the roots of the sums of squares (Zou and Donner 2008, "Construction of confidence limits").
        """
        return self.average - other.average > math.hypot(self.below, other.above)


CaseWeights = dict[int, list[tuple[float, ReportCase]]]
"""The cases of a mean at every length where it is known, each with its weight."""


def ranking(documents: Sequence[JsonReport]) -> list[Table]:
    """Return the models by their plain averages over lengths (RULER, Table 3; HELMET, Table 9).

    A rank is a range where the intervals do not tell models apart. Without RULER's and HELMET's means the average is
    over the cases that all reports have. Raises HistoryError without a common case.
    """
    measures = {
        RULER: [_suite_weights(one, "ruler", one.ruler.scores) for one in documents],
        HELMET: [_suite_weights(one, "helmet", one.helmet.average if one.helmet else {}) for one in documents],
    }
    known = {name: weights for name, weights in measures.items() if _common_lengths(weights)}
    known = known or {"common cases": _common_weights(documents)}
    tables = [_ranked(name, documents, weights) for name, weights in known.items() if _common_lengths(weights)]
    if not tables:
        raise HistoryError(
            "the reports have no case with a score in common; give reports of the same tasks and lengths"
        )
    return tables


def _common_lengths(weights: Sequence[CaseWeights]) -> list[int]:
    return sorted(frozenset.intersection(*map(frozenset, weights)))


def _suite_weights(document: JsonReport, suite: str, means: ByLength) -> CaseWeights:
    cases = [case for case in document.cases if case.suite == suite and means.get(str(case.length)) is not None]
    return _equal_weights(cases, by_category=suite == "helmet")


def _common_weights(documents: Sequence[JsonReport]) -> list[CaseWeights]:
    scored = []
    for document in documents:
        scored.append({case.id for case in document.cases if case.score is not None})
    common = scored[0].intersection(*scored)
    return [_equal_weights([case for case in document.cases if case.id in common]) for document in documents]


def _equal_weights(cases: Sequence[ReportCase], *, by_category: bool = False) -> CaseWeights:
    """Return the cases with equal weights, or with equal ones within categories of equal weight."""
    groups = [(case.length, case.category if by_category else "") for case in cases]
    sizes, weights = Counter(groups), CaseWeights()
    for case, group in zip(cases, groups, strict=True):
        weight = 1 / sizes[group] / (len(CATEGORIES) if by_category else 1)
        weights.setdefault(case.length, []).append((weight, case))
    return weights


def _ranked(name: str, documents: Sequence[JsonReport], weights: Sequence[CaseWeights]) -> Table:
    lengths = _common_lengths(weights)
    standings = [_standing([own[length] for length in lengths]) for own in weights]
    rows = []
    for place in sorted(range(len(documents)), key=lambda place: -standings[place].average):
        own = standings[place]
        first = 1 + sum(other.is_better(own) for other in standings)
        last = len(standings) - sum(own.is_better(other) for other in standings)
        scores = [shown_number(_standing([weights[place][length]]).average) for length in lengths]
        interval = shown_interval((max(0.0, own.average - own.below), min(100.0, own.average + own.above)))
        rank = f"{first}" if first == last else f"{first} to {last}"
        rows.append(text_row(shown_name(documents[place]), *scores, f"{own.average:.1f} ({interval})", rank))
    columns = (*map(short_length, lengths), "average", "rank")
    return Table(name=name, corner=name, columns=columns, rows=tuple(rows))


def _standing(by_length: Sequence[Sequence[tuple[float, ReportCase]]]) -> Standing:
    """Return the average over lengths.

    Tasks are independent at one length, so their distances add up as squares. Lengths share questions and haystacks, so
    there the distances are averaged.
    """
    averages, below, above = list[float](), list[float](), list[float]()
    for cases in by_length:
        average, squares_below, squares_above = 0.0, 0.0, 0.0
        for weight, case in cases:
            score, (low, high) = case.score or 0.0, case.interval or (0.0, 100.0)
            average += weight * score
            squares_below += (weight * (score - low)) ** 2
            squares_above += (weight * (high - score)) ** 2
        averages.append(average)
        below.append(math.sqrt(squares_below))
        above.append(math.sqrt(squares_above))
    return Standing(average=fmean(averages), below=fmean(below), above=fmean(above))


def differing_questions(documents: Sequence[JsonReport]) -> list[str]:
    """Return the models that were measured in another way than the first: other texts, prompts, scores or seed."""
    ways = []
    for document in documents:
        run = document.run
        ways.append((run.corpora, run.prompts, run.options.get("scoring"), run.seed))
    return [shown_name(document) for document, way in zip(documents, ways, strict=True) if way != ways[0]]
