"""Rank several models by their reports, with ranks that their intervals can tell apart."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from longctx.fixtures.outside_files import read_outside
from longctx.fixtures.records.report import JsonReport, ReportCase, parse_report
from longctx.fixtures.shown_text import visible_data
from longctx.plugins.report.history import HELMET, RULER, HistoryError, shown_name
from longctx.plugins.report.tables import Table, short_length, shown_interval, shown_number, text_row
from longctx.plugins.thresholds.records import CATEGORIES


def read_models(files: Sequence[Path]) -> list[JsonReport]:
    """Return the reports of several models, with all texts visible; raise HistoryError that names a file."""
    documents = []
    for file in files:
        try:
            documents.append(visible_data(parse_report(read_outside(file))))
        except OSError as error:
            raise HistoryError(f"{file} cannot be read ({error.strerror}); name a file of --report-json") from error
        except ValueError as error:
            raise HistoryError(f"{file} is no report ({error}); name a file of --report-json") from error
    return documents


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A model's plain average over the lengths that all models have, with the distances to the ends of its interval."""

    average: float
    below: float
    above: float

    def is_better(self, other: Standing) -> bool:
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
        RULER: [_ruler_weights(document) for document in documents],
        HELMET: [_helmet_weights(document) for document in documents],
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


def _ruler_weights(document: JsonReport) -> CaseWeights:
    cases = [case for case in document.cases if case.suite == "ruler"]
    return _equal_weights([case for case in cases if document.ruler.scores.get(str(case.length)) is not None])


def _helmet_weights(document: JsonReport) -> CaseWeights:
    average = document.helmet.average if document.helmet else {}
    cases = [case for case in document.cases if case.suite == "helmet" and average.get(str(case.length)) is not None]
    sizes = Counter((case.length, case.category) for case in cases)
    weights: CaseWeights = {}
    for case in cases:
        weight = 1 / sizes[case.length, case.category] / len(CATEGORIES)
        weights.setdefault(case.length, []).append((weight, case))
    return weights


def _common_weights(documents: Sequence[JsonReport]) -> list[CaseWeights]:
    """Return for every model the cases that all reports have a score of."""
    scored = []
    for document in documents:
        scored.append({case.id for case in document.cases if case.score is not None})
    common = scored[0].intersection(*scored)
    return [_equal_weights([case for case in document.cases if case.id in common]) for document in documents]


def _equal_weights(cases: Sequence[ReportCase]) -> CaseWeights:
    sizes = Counter(case.length for case in cases)
    weights: CaseWeights = {}
    for case in cases:
        weights.setdefault(case.length, []).append((1 / sizes[case.length], case))
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
    """Return the models that were not asked in the way of the first: with other texts, prompts, scores or seed."""
    asked = []
    for document in documents:
        run = document.run
        asked.append((run.corpora, run.prompts, run.options.get("scoring"), run.seed))
    return [shown_name(document) for document, way in zip(documents, asked, strict=True) if way != asked[0]]
