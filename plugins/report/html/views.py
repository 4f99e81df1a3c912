"""The document as what templates draw: headline, charts, gates, failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from fixtures.lengths import format_length
from fixtures.records import FailureKind
from plugins.report.charts import Evidence, Line, evidence, floor_of, line, stack
from plugins.report.details import Details, Series
from plugins.report.escape import one_line, visible
from plugins.report.html.tables import Document, bounds, lengths_of, number, short_length

# From nearly right to nothing; a kind without a place here comes last.
ORDER = ("right", "incomplete", "distractor", "copied", "wrong", "refused", "unfinished thinking", "empty")
KINDS = tuple(dict.fromkeys((*ORDER, *get_args(FailureKind))))
LOWEST_CASES = 12
NAMED_GATES = 4
TITLES = {"pass": "Holds", "fail": "Fails", "open": "Undecided"}
CASE_WORDS = {"fail": "shown to be bad", "error": "without a score"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A line chart with its numbers."""

    name: str
    line: Line
    note: str
    rows: tuple[tuple[str, str, str], ...]


def headline(document: Document, details: Details) -> dict[str, Any]:
    """The verdict as the exit code has it, in one line, and the first of the gates that decided it."""
    blocking = [gate for gate in document["gates"] if gate["blocking"]]
    words = Counter(gate["verdict"] for gate in blocking)
    failing = set(details.failing)
    cases = Counter(case["verdict"] for case in document["cases"] if case["id"] in failing)
    said = [
        f"{words[name]} {name}" for name in ("fail", "error", "not measured", "inconclusive", "pass") if words[name]
    ]
    gates = f"blocking gates: {', '.join(said)}" if said else "no gate blocks this run"
    shown = [
        f"{count} {'case' if count == 1 else 'cases'} {told}"
        for word, told in CASE_WORDS.items()
        if (count := cases[word])
    ]
    deciding = [gate for gate in document["gates"] if gate["name"] in failing]
    word = "fail" if failing else "pass" if words["pass"] else "open"
    return {
        "word": word,
        "title": TITLES[word],
        "said": "; ".join((gates, *shown)),
        "because": [(visible(gate["name"]), visible(gate["reason"])) for gate in deciding[:NAMED_GATES]],
        "more": len(deciding[NAMED_GATES:]),
    }


def ladder(document: Document) -> list[dict[str, Any]]:
    """The tested lengths with RULER's verdict at each, and whether the model claims it."""
    ruler = document["ruler"]
    claimed = ruler["claimed_length"]
    return [
        {
            "label": short_length(length),
            "word": ruler["verdicts"].get(str(length), "not measured"),
            "score": number(ruler["scores"].get(str(length))),
            "claimed": claimed is None or length <= claimed,
        }
        for length in lengths_of(document)
    ]


def effective(document: Document) -> str:
    """The effective length with its sign, or why there is none."""
    label = document["ruler"]["effective_length_label"]
    if label is None:
        words = set(document["ruler"]["verdicts"].values())
        return "undecided" if words and words <= {"pass", "fail", "inconclusive"} else "not measured"
    sign = label[0] if label[0] in "<>" else ""
    return f"{sign}{short_length(int(label.removeprefix(sign)))}"


def cost(document: Document) -> dict[str, str]:
    tokens, cases = document["run"]["tokens"], document["cases"]
    samples, planned = sum(case["samples"] for case in cases), sum(case["planned"] for case in cases)
    share = "a full run"
    if samples != planned and tokens["computed"]:
        share = f"1/{tokens['full_run_equivalent'] / tokens['computed']:.1f} of a full run"
    return {
        "tokens": f"{tokens['computed']:,}",
        "share": share,
        "samples": f"{samples:,}",
        "planned": f"of {planned:,} planned",
        "reused": f"{tokens['reused']:,}",
    }


def score_charts(document: Document, details: Details) -> list[Chart]:
    """RULER's mean, then its aspects, all over the same scale."""
    ruler, lengths = document["ruler"], lengths_of(document)
    mean = Series(
        name="RULER mean",
        scores={length: ruler["scores"].get(str(length)) for length in lengths},
        intervals={length: ruler["intervals"].get(str(length)) for length in lengths},
        words={length: ruler["verdicts"].get(str(length)) for length in lengths},
        threshold=ruler["threshold"],
    )
    shown = [each for each in (mean, *details.aspects) if any(score is not None for score in each.scores.values())]
    floor = floor_of(
        value
        for each in shown
        for value in (*each.scores.values(), each.threshold, *(found[0] for found in each.intervals.values() if found))
    )
    return [_chart(each, lengths, floor) for each in shown]


def _chart(series: Series, lengths: Sequence[int], floor: float) -> Chart:
    labels = [short_length(length) for length in lengths]
    scores = [series.scores.get(length) for length in lengths]
    intervals = [series.intervals.get(length) for length in lengths]
    words = [series.words.get(length) for length in lengths]
    return Chart(
        name=series.name,
        line=line(labels, scores, intervals, threshold=series.threshold, words=words, floor=floor),
        note="" if series.threshold is None else f"threshold {series.threshold:g}",
        rows=tuple(
            (label, number(score), bounds(interval))
            for label, score, interval in zip(labels, scores, intervals, strict=True)
        ),
    )


def failures(document: Document) -> list[dict[str, Any]]:
    """Shares of what became of the samples, by suite and length; every kind with its count."""
    found = []
    for suite in dict.fromkeys(case["suite"] for case in document["cases"]):
        for length in lengths_of(document):
            cases = [case for case in document["cases"] if (case["suite"], case["length"]) == (suite, length)]
            counts = Counter[str]()
            for case in cases:
                counts.update(case["failures"])
            total = sum(case["samples"] for case in cases)
            counts["right"] = total - counts.total()
            if total:
                parts = stack(counts, total, KINDS, 300)
                found.append(
                    {"suite": suite, "label": short_length(length), "total": total, "counts": counts, "parts": parts}
                )
    return found


def helmet_bars(document: Document) -> dict[str, Any] | None:
    """Categories at the longest length at which one has a score, with bounds, or why one has none."""
    helmet = document["helmet"]
    if helmet is None:
        return None
    measured = [
        n for n in lengths_of(document) if any(s.get(str(n)) is not None for s in helmet["categories"].values())
    ]
    if not measured:
        return None
    key = str(measured[-1])
    bars = []
    for category, scores in helmet["categories"].items():
        missing = helmet["missing"].get(category, {}).get(key, {})
        interval = helmet["intervals"].get(category, {}).get(key)
        why = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
        bars.append({"name": category, "score": scores.get(key), "interval": interval, "why": one_line(why, 160)})
    return {
        "length": short_length(measured[-1]),
        "bars": bars,
        "average": helmet["average"].get(key),
        "confidence": helmet["confidence"],
    }


def gates(document: Document, details: Details) -> list[dict[str, Any]]:
    """Gates by name, each with its verdicts by length and the charts of their evidence."""
    groups: dict[str, list[Any]] = {}
    for gate in document["gates"]:
        at = "" if gate["length"] is None else f" at {format_length(gate['length'])}"
        groups.setdefault(gate["name"].removesuffix(at), []).append(_gate(gate, details))
    failing = set(details.failing)
    first_regression = next((name for name, (first, *_) in groups.items() if first["kind"] == "regression"), None)
    return [
        {
            "name": name,
            "anchor": "regression" if name == first_regression else "",
            "verdicts": verdicts,
            "asked": verdicts[0]["asked"],
            "blocking": verdicts[0]["blocking"],
            "open": (verdicts[0]["blocking"] and name == verdicts[0]["name"])
            or any(each["name"] in failing for each in verdicts),
        }
        for name, verdicts in groups.items()
    ]


def _gate(gate: Mapping[str, Any], details: Details) -> dict[str, Any]:
    charts: list[tuple[str, Evidence, str]] = []
    for curve in details.curves.get(gate["name"], ()):
        told = "undecided" if curve.decided is None else f"decided at {curve.decided:,} of {curve.of:,}"
        charts.append((short_length(curve.length), evidence(curve), "all were compared" if curve.exact else told))
    is_length, signed = gate["kind"] == "effective_length", gate["kind"] == "regression"
    measured, required = gate["measured"], gate["required"]
    shown = short_length(int(measured)) if is_length and measured else number(measured, signed)
    asked = f"above {required:g}"
    if is_length or signed:
        asked = f"at least {short_length(int(required))}" if is_length else f"no loss of {-required:g} points"
    return {
        **gate,
        "at": "" if gate["length"] is None else short_length(gate["length"]),
        "charts": charts,
        "shown": shown,
        "asked": asked,
        "bounds": bounds(gate["interval"], signed),
        "reason": visible(gate["reason"]),
    }


def lowest(document: Document) -> list[dict[str, Any]]:
    """The cases with the lowest scores, each with its first wrong sample, for a reader without a script."""
    wrong = sorted(
        (case for case in document["cases"] if case["examples"]), key=lambda case: (case["score"] or 0, case["length"])
    )
    return [
        {
            "case": case,
            "length": short_length(case["length"]),
            "kinds": ", ".join(f"{count} {kind}" for kind, count in case["failures"].items()),
            "expected": one_line(", ".join(case["examples"][0]["expected"]), 60),
            "got": one_line(case["examples"][0]["got"], 80),
            "depth": case["examples"][0]["depth"],
        }
        for case in wrong[:LOWEST_CASES]
    ]
