"""The run as a short page of Markdown, for a pull request or a job's summary."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fixtures.lengths import format_length
from plugins.report.document import FEW_SAMPLES, is_rough
from plugins.report.escape import one_line

# What GitHub's Markdown gives a meaning to within a line, addresses and mentions included; a backslash takes it away.
SIGNS = re.compile(r"([\\`*_\[\]#|~$@]|:(?=//)|(?<=www)\.)", re.IGNORECASE)
WORDS = {
    "pass": "✅ pass",
    "fail": "❌ fail",
    "error": "⚠️ error",
    "inconclusive": "❔ open",
    "not measured": "- not measured",
}
LOWEST_CASES = 5
MOST_GATES = 12


def markdown(document: Mapping[str, Any], *, holds: bool) -> str:
    """The document in some 50 lines; `holds` is whether the run succeeds."""
    ruler = document["ruler"]
    lengths = sorted({case["length"] for case in document["cases"]})
    step = document["run"]["step"]
    parts = [
        f"### {'✅' if holds else '❌'} Long context: {plain(document['model']['name'], 80)}"
        + (f", step {step}" if step is not None else ""),
        _headline(document),
        _table(("", *map(_length, lengths)), _means(document, lengths)),
        _gates(document),
        _regression(document),
        _cases(document, lengths),
        _lowest(document),
        _cost(document),
    ]
    if ruler["effective_length_label"] is not None:
        parts.insert(-1, f"<sub>Yardstick: {plain(ruler['threshold_source'], 120)}</sub>")
    return "\n\n".join(part for part in parts if part) + "\n"


def plain(text: str, most: int) -> str:
    """Foreign text on one line, with no meaning as Markdown or HTML; at most so many signs before that."""
    shown = one_line(text, most).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return SIGNS.sub(r"\\\1", shown)


def _headline(document: Mapping[str, Any]) -> str:
    ruler = document["ruler"]
    claimed = "unknown" if ruler["claimed_length"] is None else _length(ruler["claimed_length"])
    label = ruler["effective_length_label"]
    if all(case["suite"] == "helmet" for case in document["cases"]):
        return f"Claimed length **{claimed}**"
    if label is None:
        return f"Effective length **not settled**, claimed **{claimed}**"
    sign = label[0] if label[0] in "<>" else ""
    shown = f"{sign}{_length(int(label.removeprefix(sign)))}".replace("<", "&lt;").replace(">", "&gt;")
    return f"Effective length **{shown}**, claimed **{claimed}** (RULER mean above {ruler['threshold']:g})"


def _means(document: Mapping[str, Any], lengths: Sequence[int]) -> list[tuple[str, ...]]:
    helmet = document["helmet"] or {"categories": {}, "average": {}}
    rows = {
        **document["ruler"]["aspects"],
        "**RULER mean**": document["ruler"]["scores"],
        **helmet["categories"],
        "**HELMET average**": helmet["average"],
    }
    return [
        (name, *(_number(scores.get(str(length))) for length in lengths))
        for name, scores in rows.items()
        if any(score is not None for score in scores.values())
    ]


def _gates(document: Mapping[str, Any]) -> str:
    shown = [gate for gate in document["gates"] if gate["blocking"]]
    # Those that fail the run are all there; of the others as many as leave the table short.
    shown.sort(key=lambda gate: ("fail", "error", "not measured", "inconclusive", "pass").index(gate["verdict"]))
    most = max(MOST_GATES, sum(gate["verdict"] in ("fail", "error") for gate in shown))
    rows = [(WORDS[gate["verdict"]], plain(gate["name"], 60), plain(gate["reason"], 160)) for gate in shown[:most]]
    more = Counter(gate["verdict"] for gate in shown[most:])
    rows += [(WORDS[word], f"{count} more", "") for word, count in more.items()]
    return _table(("", "blocking gate", "because"), rows)


def _regression(document: Mapping[str, Any]) -> str:
    found = document["regression"]
    if found is None:
        return ""
    dropped = [name for name, case in found["cases"].items() if case["dropped"]]
    worse = sum(case["worse"] for case in found["cases"].values())
    better = sum(case["better"] for case in found["cases"].values())
    pairs = sum(case["pairs"] for case in found["cases"].values())
    told = f"Against {plain(found['baseline']['name'], 80)}: {worse} worse, {better} better of {pairs} pairs"
    return f"{told}; cases shown to be worse: {', '.join(plain(name, 60) for name in dropped[:10]) or 'none'}" + (
        f" and {len(dropped) - 10} more" if len(dropped) > 10 else ""
    )


def _cases(document: Mapping[str, Any], lengths: Sequence[int]) -> str:
    cells = {(case["task"], case["length"]): case for case in document["cases"]}
    rows = [
        (plain(task, 40), *(_cell(cells.get((task, length))) for length in lengths))
        for task in dict.fromkeys(case["task"] for case in document["cases"])
    ]
    table = _table(("task", *map(_length, lengths)), rows)
    if any(map(is_rough, cells.values())):
        table += f"\n\n\\~ from fewer than {FEW_SAMPLES} samples: the verdicts needed no more"
    return f"<details><summary>All {len(document['cases'])} cases</summary>\n\n{table}\n\n</details>" if rows else ""


def _lowest(document: Mapping[str, Any]) -> str:
    wrong = [case for case in document["cases"] if case["examples"]]
    wrong.sort(key=lambda case: (case["score"] or 0, case["length"]))
    rows = [
        (
            plain(f"{case['task']} {_length(case['length'])}", 50),
            _number(case["score"]),
            plain(", ".join(case["examples"][0]["expected"]), 40),
            plain(case["examples"][0]["got"] or "(nothing)", 60),
        )
        for case in wrong[:LOWEST_CASES]
    ]
    return _table(("lowest cases", "score", "expected", "got"), rows)


def _cost(document: Mapping[str, Any]) -> str:
    run, cases = document["run"], document["cases"]
    samples, planned = sum(case["samples"] for case in cases), sum(case["planned"] for case in cases)
    partial = "; **partial**: cases were left out or lost" if run["partial"] else ""
    return f"{run['tokens']['computed']:,} tokens computed, {samples:,} of {planned:,} samples{partial}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
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
