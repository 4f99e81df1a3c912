"""The run as a short Markdown page, for a pull request or a job's summary."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fixtures.lengths import format_length
from fixtures.shown_text import one_line
from plugins.report.certainty import few_samples, no_votes, range_text, seed_role, two_intervals
from plugins.report.cost import counted
from plugins.report.document import FEW_SAMPLES, detectable_note, is_rough
from plugins.report.frontier_lines import frontier_findings, frontier_means, has_no_ruler
from plugins.report.headline import deciding_gate, gated_length, partial_note, ruler_length
from plugins.report.likelihood import CAPTION, MEASURES, texts
from plugins.report.properties import failed_properties, held_properties
from plugins.report.question_sets import cut_findings, question_set_means

Document = Mapping[str, Any]
# Characters that have a meaning within a line of GitHub's Markdown, in addresses and mentions, too. A backslash
# takes the meaning away.
SPECIAL_CHARACTERS = re.compile(r"([\\`*_\[\]#|~$@]|:(?=//)|(?<=www)\.)", re.IGNORECASE)
VERDICTS = {
    "fail": "❌ fail",
    "error": "⚠️ error",
    "not measured": "- not measured",
    "underpowered": "❔ underpowered",
    "inconclusive": "❔ undecided",
    "pass": "✅ pass",
}
"""How verdicts are shown, the worst first."""

LOWEST_CASES = 5
MOST_GATES = 12
MOST_DROPPED = 10


def markdown(document: Document, *, holds: bool) -> str:
    """Return the document as about 50 lines of Markdown; `holds` is True if the run succeeds."""
    ruler = document["ruler"]
    lengths = sorted({case["length"] for case in document["cases"]})
    parts = [
        _title(document, holds),
        _headline(document),
        _made_of(document),
        _invariance(document),
        _table(("", *map(_length, lengths)), _means(document, lengths)),
        _likelihood(document),
        "\n".join(f"- {plain(text, 240)}" for text in frontier_findings(document.get("frontier"))),
        "\n".join(f"- {plain(text, 240)}" for text in cut_findings(document)),
        _gates(document),
        _regression(document),
        _cases(document, lengths),
        _lowest(document),
        _notes(document),
        _cost(document),
    ]
    if ruler["effective_length_label"] is not None:
        parts.insert(-1, f"<sub>Threshold: {_threshold(ruler)}</sub>")
    return "\n\n".join(part for part in parts if part) + "\n"


def _threshold(ruler: Mapping[str, Any]) -> str:
    """Return the source of the threshold, how far it fits the run, and the effective length relative to itself."""
    source = plain(ruler["threshold_source"], 120)
    note = plain(ruler["threshold_note"], 400)
    note = f" {note[0].upper()}{note[1:]}." if note else ""
    label = ruler["relative_effective_length_label"]
    if label is None:
        return f"{source}.{note}"
    bar = f"{ruler['relative_threshold']:.1f}, 0.85 of its own score at the shortest length"
    return f"{source}.{note} Relative effective length: {plain(label, 20)} tokens (above {bar})."


def plain(text: str, most: int) -> str:
    """Return text on one line in a form that has no meaning as Markdown or HTML, first cut to `most` characters."""
    shown = one_line(text, most).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return SPECIAL_CHARACTERS.sub(r"\\\1", shown)


def _title(document: Document, holds: bool) -> str:
    step = document["run"]["step"]
    sign = "✅" if holds else "⏸️" if document["run"].get("interrupted") else "❌"
    title = f"### {sign} Long context: {plain(document['model']['name'], 80)}"
    return title if step is None else f"{title}, step {step}"


def _made_of(document: Document) -> str:
    """Return the quantization of the model, and what it was made of for this run; empty for a checkpoint as it is."""
    model = document["model"]
    parts = [f"quantization {plain(model['quantization'], 60)}"] if model["quantization"] else []
    if model["source"]:
        verb = "merged from the adapter" if model["source"]["kind"] == "adapter" else "converted from"
        parts.append(f"{verb} {plain(model['source']['path'], 120)}")
    text = "; ".join(parts)
    return text[:1].upper() + text[1:]


def _invariance(document: Document) -> str:
    """Return the properties of the engine that fail, and the number of those that hold; empty without --invariance."""
    failed = [f"- ❌ {plain(line, 400)}" for line in failed_properties(document)]
    return "\n".join([*failed, *(f"- {line}" for line in held_properties(document))])


def _headline(document: Document) -> str:
    ruler = document["ruler"]
    claimed = "unknown" if ruler["claimed_length"] is None else _length(ruler["claimed_length"])
    if has_no_ruler(document):
        return f"Claimed length **{claimed}**"
    of_ruler = plain(ruler_length(document), 120)
    gate = deciding_gate(document)
    if gate is not None:
        own = f"Effective length **{gated_length(gate)}** on the tasks of gate {plain(gate['name'], 60)}"
        return f"{own}, claimed **{claimed}**; {of_ruler} on all RULER tasks (mean above {ruler['threshold']:g})"
    if ruler["effective_length_label"] is None:
        return f"Effective length {of_ruler}; claimed **{claimed}**"
    return f"Effective length **{of_ruler}**, claimed **{claimed}** (RULER mean above {ruler['threshold']:g})"


def _means(document: Document, lengths: Sequence[int]) -> list[tuple[str, ...]]:
    """Return the rows of all means that were measured at any length."""
    helmet = document["helmet"] or {"categories": {}, "average": {}}
    rows = {
        **document["ruler"]["aspects"],
        "**RULER mean**": document["ruler"]["scores"],
        **helmet["categories"],
        "**HELMET average**": helmet["average"],
        **frontier_means(document),
        **question_set_means(document),
    }
    means = [
        (name, *(_number(scores.get(str(length))) for length in lengths))
        for name, scores in rows.items()
        if any(score is not None for score in scores.values())
    ]
    ruler = document["ruler"]
    intervals = {"RULER mean, these samples": ruler["intervals"], "RULER mean, the model": ruler["model_intervals"]}
    return means + [
        (name, *(range_text(ends[str(length)]) if ends[str(length)] else "-" for length in lengths))
        for name, ends in intervals.items()
        if any(interval is not None for interval in ends.values())
    ]


def _likelihood(document: Document) -> str:
    """Return the likelihoods of gold answers, pooled by family and length; empty without any."""
    section = document["likelihood"]
    if section is None or not section["panels"]:
        return ""
    rows = [
        (f"{panel['family']} {_length(panel['length'])}", *(value for value, _ in texts(panel)), str(panel["samples"]))
        for panel in section["panels"]
    ]
    findings = [
        f"- {panel['family']} {_length(panel['length'])}: {plain(finding, 240)}"
        for panel in section["panels"]
        for finding in panel["findings"]
    ]
    table = _table(("", *MEASURES.values(), "samples"), rows)
    return "\n\n".join((CAPTION, table, *(["\n".join(findings)] if findings else [])))


def _gates(document: Document) -> str:
    """Return a table of the blocking gates: all that fail the run, others as far as the table stays short."""
    blocking = [gate for gate in document["gates"] if gate["blocking"]]
    blocking.sort(key=lambda gate: list(VERDICTS).index(gate["verdict"]))
    most = max(MOST_GATES, sum(gate["verdict"] in ("fail", "error") for gate in blocking))
    rows = [
        (
            VERDICTS[gate["verdict"]],
            plain(gate["name"], 60),
            plain(gate["reason"] + detectable_note(gate), 160),
            plain(two_intervals(gate), 160),
        )
        for gate in blocking[:most]
    ]
    others = Counter(gate["verdict"] for gate in blocking[most:])
    rows += [(VERDICTS[verdict], f"{count} more", "", "") for verdict, count in others.items()]
    return _table(("", "blocking gate", "reason", "confidence intervals"), rows)


def _notes(document: Document) -> str:
    """Return what limits the meaning of the verdicts; empty without gates."""
    notes = [few_samples(document), seed_role(document)] if document["gates"] else []
    return "\n\n".join(f"<sub>{plain(note, 300)}</sub>" for note in notes if note)


def _regression(document: Document) -> str:
    """Return the comparison with the baseline as one sentence; empty without a baseline."""
    regression = document["regression"]
    if regression is None:
        return ""
    cases = regression["cases"]
    worse, better, pairs = (sum(case[count] for case in cases.values()) for count in ("worse", "better", "pairs"))
    dropped = [case_id for case_id, case in cases.items() if case["dropped"]]
    shown = ", ".join(plain(case_id, 60) for case_id in dropped[:MOST_DROPPED]) or "none"
    more = f" and {len(dropped) - MOST_DROPPED} more" if len(dropped) > MOST_DROPPED else ""
    counts = f"Against {plain(regression['baseline']['name'], 80)}: {worse} worse, {better} better of {pairs} pairs"
    without_vote = f"; {no_votes(document)}" if no_votes(document) else ""
    return f"{counts}; cases shown to be worse: {shown}{more}{without_vote}"


def _cases(document: Document, lengths: Sequence[int]) -> str:
    """Return the scores of all cases as a table that can be unfolded."""
    by_place = {(case["task"], case["length"]): case for case in document["cases"]}
    rows = [
        (plain(task, 40), *(_cell(by_place.get((task, length))) for length in lengths))
        for task in dict.fromkeys(case["task"] for case in document["cases"])
    ]
    table = _table(("task", *map(_length, lengths)), rows)
    if any(map(is_rough, by_place.values())):
        table += f"\n\n\\~ from fewer than {FEW_SAMPLES} samples: the verdicts needed no more"
    return f"<details><summary>All {len(document['cases'])} cases</summary>\n\n{table}\n\n</details>" if rows else ""


def _lowest(document: Document) -> str:
    """Return a table of the lowest cases with one wrong answer of each."""
    wrong = [case for case in document["cases"] if case["examples"]]
    wrong.sort(key=lambda case: (case["score"] or 0, case["length"]))
    rows = [
        (
            plain(f"{case['task']} {_length(case['length'])}", 50),
            _number(case["score"]),
            plain(", ".join(case["examples"][0]["expected"]), 40),
            plain(case["examples"][0]["got"] or "(empty)", 60),
        )
        for case in wrong[:LOWEST_CASES]
    ]
    return _table(("lowest cases", "score", "expected", "answer"), rows)


def _cost(document: Document) -> str:
    run, cases = document["run"], document["cases"]
    samples, planned = sum(case["samples"] for case in cases), sum(case["planned"] for case in cases)
    note = partial_note(document)
    partial = f"; **{note}**" if note else ""
    return f"{counted(run['tokens']['computed'])} tokens computed, {samples:,} of {planned:,} samples{partial}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; empty without rows."""
    if not rows:
        return ""
    lines = [f"| {' | '.join(head)} |", f"{'| --- ' * len(head)}|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def _cell(case: Mapping[str, Any] | None) -> str:
    if case is None:
        return "-"
    if case["verdict"] == "error":
        return "error"
    return ("\\~" if is_rough(case) else "") + _number(case["score"]) + (" ▼" if case["verdict"] == "fail" else "")


def _number(score: float | None) -> str:
    return "-" if score is None else f"{score:.1f}"


def _length(length: int) -> str:
    return format_length(length).upper()
