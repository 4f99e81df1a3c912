"""The values that the page's template shows: headline, score charts, kinds of failure, HELMET, lowest cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from fixtures.records import FailureKind
from fixtures.shown_text import one_line
from plugins.report.charts.bars import shares_of
from plugins.report.charts.lines import LineChart, lowest_of, score_chart
from plugins.report.cost import counted
from plugins.report.details import Details, Series
from plugins.report.headline import deciding_gate, gated_length, partial_note, ruler_length
from plugins.report.html.tables import Document, interval_text, interval_unless_known, lengths_of, number, short_length
from plugins.report.properties import held_properties

# Kinds of failure from nearly right to no answer at all; a kind that is not in this order comes last.
ORDER = (
    "right",
    "incomplete",
    "distractor",
    "wrong instance",
    "copied",
    "wrong",
    "refused",
    "unfinished thinking",
    "empty",
)
KINDS = tuple(dict.fromkeys((*ORDER, *get_args(FailureKind))))
LOWEST_CASES = 12
NAMED_GATES = 4
TITLES = {"pass": "Passed", "fail": "Failed", "open": "Undecided"}
CASE_DESCRIPTIONS = {"fail": "shown to be bad", "error": "without a score"}
VERDICTS = ("fail", "error", "underpowered", "not measured", "inconclusive", "pass")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A line chart with its heading and its numbers."""

    name: str
    line: LineChart
    note: str
    rows: tuple[tuple[str, str, str], ...]
    """Length or step, score and interval of every point."""

    @property
    def description(self) -> str:
        """The chart as text, for screen readers."""
        return f"{self.name}: {', '.join(f'{place} {score}' for place, score, _ in self.rows)}"


def headline(document: Document) -> dict[str, Any]:
    """Return the verdict of the run, which agrees with the exit code, and the first of the gates that decided it."""
    blocking = Counter(gate["verdict"] for gate in document["gates"] if gate["blocking"])
    deciding = [gate for gate in document["gates"] if gate["fails"]]
    failed = [case for case in document["cases"] if case["fails"]]
    findings = [finding for finding in document.get("invariance") or () if finding["verdict"] != "skipped"]
    broken = [finding for finding in findings if finding["verdict"] == "fail"]
    is_check_alone = bool(findings) and not document["cases"]
    verdict = "fail" if deciding or failed or broken else "pass" if blocking["pass"] or is_check_alone else "open"
    return {
        "verdict": verdict,
        "title": "Interrupted" if document["run"].get("interrupted") and verdict == "open" else TITLES[verdict],
        "partial": partial_note(document),
        "counts": "; ".join((_gate_counts(blocking), *_case_counts(failed), *held_properties(document))),
        "reasons": [
            *((f"invariance: {finding['name']}", finding["reason"]) for finding in broken),
            *((gate["name"], gate["reason"]) for gate in deciding[:NAMED_GATES]),
        ],
        "more": len(deciding[NAMED_GATES:]),
    }


def _gate_counts(blocking: Counter[str]) -> str:
    counts = [f"{blocking[verdict]} {verdict}" for verdict in VERDICTS if blocking[verdict]]
    return f"blocking gates: {', '.join(counts)}" if counts else "this run has no blocking gate"


def _case_counts(failed: Sequence[Mapping[str, Any]]) -> list[str]:
    cases = Counter(case["verdict"] for case in failed)
    return [
        f"{count} {'case' if count == 1 else 'cases'} {description}"
        for verdict, description in CASE_DESCRIPTIONS.items()
        if (count := cases[verdict])
    ]


def ladder(document: Document) -> list[dict[str, Any]]:
    """Return the tested lengths with RULER's score and verdict, and whether the model claims to support them."""
    ruler = document["ruler"]
    claimed = ruler["claimed_length"]
    return [
        {
            "label": short_length(length),
            "verdict": ruler["verdicts"].get(str(length), "not measured"),
            "score": number(ruler["scores"].get(str(length))),
            "claimed": claimed is None or length <= claimed,
        }
        for length in lengths_of(document)
    ]


def effective_length(document: Document) -> str:
    """Return the effective length in one or two words: a gate's on its own tasks, or else RULER's."""
    gate = deciding_gate(document)
    if gate is not None:
        return gated_length(gate)
    return ruler_length(document).partition(":")[0].partition(" at ")[0]


def effective_length_note(document: Document) -> str:
    """Return what the effective length rests on."""
    ruler, gate = document["ruler"], deciding_gate(document)
    claimed, rule = f"claimed {short_length(ruler['claimed_length'])}", f"RULER mean above {ruler['threshold']:g}"
    if gate is None:
        return f"{claimed}; {rule}"
    return f"on the tasks of gate {gate['name']}; {claimed}; on all RULER tasks {ruler_length(document)} ({rule})"


def data_sources(document: Document) -> list[str]:
    """Return where the texts of the cases came from, with the number of cases of each source."""
    counts = Counter(case["source"] for case in document["cases"])
    directory = document["run"]["options"].get("data_dir")
    places = {"archive": "generated text", "published": f"published data{f' in {directory}' if directory else ''}"}
    return [
        f"{places.get(source, source)}: {count} {'case' if count == 1 else 'cases'}" for source, count in counts.items()
    ]


def cost(document: Document) -> dict[str, str]:
    """Return the numbers of tokens and samples."""
    tokens, cases = document["run"]["tokens"], document["cases"]
    samples, planned = sum(case["samples"] for case in cases), sum(case["planned"] for case in cases)
    share = "a full run" if samples == planned else "part of a full run"
    if samples != planned and tokens["computed"]:
        share = f"1/{tokens['full_run_equivalent'] / tokens['computed']:.1f} of a full run"
    return {
        "tokens": counted(tokens["computed"]),
        "share": share,
        "samples": f"{samples:,}",
        "planned": f"of {planned:,} planned",
        "reused": counted(tokens["reused"]),
    }


def score_charts(document: Document, details: Details) -> list[Chart]:
    """Return charts of RULER's mean and of its aspects, all with the same scale."""
    ruler, lengths = document["ruler"], lengths_of(document)
    mean = Series(
        name="RULER mean",
        scores={length: ruler["scores"].get(str(length)) for length in lengths},
        intervals={length: ruler["intervals"].get(str(length)) for length in lengths},
        verdicts={length: ruler["verdicts"].get(str(length)) for length in lengths},
        threshold=ruler["threshold"],
    )
    measured = [
        series for series in (mean, *details.aspects) if any(score is not None for score in series.scores.values())
    ]
    lowest = lowest_of(value for series in measured for value in _drawn_values(series))
    return [_score_chart(series, lengths, lowest) for series in measured]


def _drawn_values(series: Series) -> list[float | None]:
    lower_ends = [interval[0] for interval in series.intervals.values() if interval]
    return [*series.scores.values(), series.threshold, *lower_ends]


def _score_chart(series: Series, lengths: Sequence[int], lowest: float) -> Chart:
    labels = [short_length(length) for length in lengths]
    scores = [series.scores.get(length) for length in lengths]
    intervals = [series.intervals.get(length) for length in lengths]
    verdicts = [series.verdicts.get(length) for length in lengths]
    return Chart(
        name=series.name,
        line=score_chart(labels, scores, intervals, threshold=series.threshold, verdicts=verdicts, lowest=lowest),
        note=threshold_note(series.threshold),
        rows=chart_rows(labels, scores, intervals),
    )


def threshold_note(threshold: float | None) -> str:
    """Return the note beside a chart's heading; empty without a threshold."""
    return "" if threshold is None else f"threshold {threshold:g}"


def chart_rows(
    labels: Sequence[str], scores: Sequence[float | None], intervals: Sequence[Sequence[float] | None]
) -> tuple[tuple[str, str, str], ...]:
    """Return the numbers of a chart as text."""
    return tuple(
        (label, number(score), interval_text(interval))
        for label, score, interval in zip(labels, scores, intervals, strict=True)
    )


def failures(document: Document) -> list[dict[str, Any]]:
    """Return how many samples of every suite and length failed, by kind of failure, and the shares of the bar."""
    rows = []
    for suite in dict.fromkeys(case["suite"] for case in document["cases"]):
        for length in lengths_of(document):
            cases = [case for case in document["cases"] if (case["suite"], case["length"]) == (suite, length)]
            counts = Counter[str]()
            for case in cases:
                counts.update(case["failures"])
            total = sum(case["samples"] for case in cases)
            counts["right"] = total - counts.total()
            if total:
                rows.append(
                    {
                        "name": f"{suite} {short_length(length)}",
                        "total": total,
                        "counts": counts,
                        "shares": shares_of(counts, total, KINDS),
                    }
                )
    return rows


def helmet_bars(document: Document) -> dict[str, Any] | None:
    """Return HELMET's categories at the longest measured length; None if no category was measured at any length."""
    helmet = document["helmet"]
    categories = helmet["categories"] if helmet else {}
    measured = [
        length
        for length in lengths_of(document)
        if any(scores.get(str(length)) is not None for scores in categories.values())
    ]
    if not measured:
        return None
    key = str(measured[-1])
    return {
        "length": short_length(measured[-1]),
        "bars": [_helmet_bar(helmet, category, key) for category in categories],
        "average": helmet["average"].get(key),
        "confidence": helmet["confidence"],
    }


def _helmet_bar(helmet: Mapping[str, Any], category: str, key: str) -> dict[str, Any]:
    """Return a category's score and interval, or the reasons why it has no score."""
    missing = helmet["missing"].get(category, {}).get(key, {})
    score = helmet["categories"][category].get(key)
    interval = None if score is None else helmet["intervals"].get(category, {}).get(key)
    return {
        "name": category,
        "score": score,
        "interval": interval,
        "interval_text": interval_unless_known(interval),
        "missing": one_line("; ".join(f"{dataset}: {reason}" for dataset, reason in missing.items()), 160),
    }


def lowest_cases(document: Document) -> list[dict[str, Any]]:
    """Return the cases with the lowest scores and their first wrong sample, for a page without its script."""
    wrong = [case for case in document["cases"] if case["examples"]]
    wrong.sort(key=lambda case: (case["score"] or 0, case["length"]))
    return [
        {
            "name": f"{case['task']} {short_length(case['length'])}",
            "score": case["score"],
            "failures": ", ".join(f"{count} {kind}" for kind, count in case["failures"].items()),
            "expected": one_line(", ".join(case["examples"][0]["expected"]), 60),
            "answer": one_line(case["examples"][0]["got"], 80),
        }
        for case in wrong[:LOWEST_CASES]
    ]
