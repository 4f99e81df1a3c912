"""The summary in the terminal: verdict, scores, gates, errors, examples of wrong answers, and the cost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fixtures.lengths import format_length
from plugins.gates.findings import shown_label, shown_verdict
from plugins.report.certainty import correlation_text, few_samples, no_votes, seed_role, two_intervals
from plugins.report.cost import counted
from plugins.report.document import FEW_SAMPLES, detectable_note, is_rough
from plugins.report.frontier_lines import frontier_findings, frontier_means, has_no_ruler
from plugins.report.headline import (
    deciding_gate,
    failing_ids,
    gated_length,
    missing_effective_length,
    partial_note,
    ruler_length,
)
from plugins.report.likelihood import has_no_answers
from plugins.report.likelihood_lines import likelihood_lines
from plugins.report.question_sets import cut_findings, question_set_means
from plugins.report.terminal_lines import COLUMNS, Line, Markup, named_line, wrapped
from plugins.report.threshold_notes import gate_warning, threshold_notes

Document = Mapping[str, Any]
Row = tuple[str, list[str], Markup]
"""A table row: its name, its cells by length, and its markup."""

NAME_WIDTH, LONGEST_NAME = 22, 40
CELL_WIDTH = 8
SHOWN_CASES = 5
INTERVALS = ("these samples", "the model")
INTERVALS_MEAN = "intervals of the mean over the planned samples, and over unlimited ones"
TEXT_WIDTH = 28
VERDICT_MARKUP = {"pass": {"green": True}, "not measured": {"yellow": True}}


def summary_lines(document: Document, columns: int = COLUMNS) -> list[Line]:
    """Return the summary as lines of at most `columns` columns."""
    parts = (
        _headline(document),
        _table(document, columns),
        likelihood_lines(document["likelihood"]),
        [
            named_line("frontier" * (not number), text)
            for number, text in enumerate(frontier_findings(document.get("frontier")))
        ],
        [named_line("questions" * (not number), text) for number, text in enumerate(cut_findings(document))],
        _gates(document),
        _errors(document),
        _failures(document),
    )
    lines = [line for part in parts if part for line in (*part, ("", {}))]
    return [short_line for line in (*lines, *_cost(document)) for short_line in wrapped(line, columns)]


def short(text: str) -> str:
    """Return the text of a model as a quoted, printable string that fits a line."""
    words = " ".join(text.split())
    shown = "".join(character if character.isprintable() else "?" for character in words)
    return repr(shown if len(shown) <= TEXT_WIDTH else f"{shown[: TEXT_WIDTH - 3]}...")


def _headline(document: Document) -> list[Line]:
    model, ruler = document["model"], document["ruler"]
    chat = "chat template" if model["chat_template"] else "no chat template"
    made = model["source"] and ("merged adapter" if model["source"]["kind"] == "adapter" else "converted")
    known = (model["architecture"], model["quantization"], made, model["dtype"], model["attention"], chat)
    facts = ", ".join(fact for fact in known if fact)
    warning = gate_warning(document)
    lines = [named_line("no gate", warning, yellow=True)] if warning else []
    lines.append(named_line("model", f"{_tail(model['name'], 40)} ({facts})"))
    claimed = f"claimed {_length(ruler['claimed_length'])}"
    if document["regression"] is not None:
        lines.append(named_line("baseline", _tail(document["regression"]["baseline"]["name"], 60)))
    gate = deciding_gate(document)
    if has_no_ruler(document):
        lines.append(named_line("claimed", _length(ruler["claimed_length"])))
    elif gate is not None:
        lines += _gated_length(document, gate, claimed)
    elif ruler["effective_length_label"] is None:
        lines.append(named_line("effective", f"{missing_effective_length(document)}; {claimed}", bold=True))
    else:
        lines += _effective_length(ruler, claimed)
    if model["calibration"]:
        lines.append(named_line("calibrated", "solves the tasks marked * by construction, and no other task"))
    return lines


def _gated_length(document: Document, gate: Mapping[str, Any], claimed: str) -> list[Line]:
    """Return the effective length that a blocking gate measured on its own tasks, then RULER's."""
    return [
        named_line("effective", f"{gated_length(gate)} on the tasks of gate {gate['name']!r}, {claimed}", bold=True),
        named_line("", f"{ruler_length(document)} on all RULER tasks (mean above {document['ruler']['threshold']:g})"),
    ]


def _effective_length(ruler: Mapping[str, Any], claimed: str) -> list[Line]:
    effective = shown_label(ruler["effective_length_label"])
    lines = [
        named_line("effective", f"{effective}, {claimed}   (RULER mean above {ruler['threshold']:g})", bold=True),
        *(named_line("", note) for note in threshold_notes(ruler)),
    ]
    if ruler["contiguous_effective_length"] != ruler["effective_length"]:
        contiguous = _length(ruler["contiguous_effective_length"] or None, missing="none")
        lines.append(named_line("", f"not monotone: all lengths pass only up to {contiguous}", yellow=True))
    return lines


def _table(document: Document, columns: int) -> list[Line]:
    """Return the scores by task and length; lengths that do not fit beside the others follow in a table below."""
    if has_no_answers(document):
        return []
    cases, ruler = document["cases"], document["ruler"]
    lengths = sorted({case["length"] for case in cases})
    rows = [*_task_rows(document, lengths), *_mean_rows(document, lengths)]
    width = min(LONGEST_NAME, max((NAME_WIDTH, *(len(name) + 1 for name, _, _ in rows))))
    most = max(1, (columns - width) // CELL_WIDTH)
    lines = []
    for first in range(0, len(lengths), most):
        shown = slice(first, first + most)
        lines.append((_row("score", [_length(length) for length in lengths[shown]], width), {"bold": True}))
        lines += [(_row(name, cells[shown], width), markup) for name, cells, markup in rows]
    if ruler["wavg_inc"] is not None:
        lines.append((f"{'= wAvg':<{width}}inc {ruler['wavg_inc']:.1f}, dec {ruler['wavg_dec']:.1f}", {}))
    if any(name.strip() in INTERVALS for name, _, _ in rows):
        lines.append((f"{' and '.join(INTERVALS)}: {INTERVALS_MEAN}", {}))
    if any(map(is_rough, cases)):
        lines.append((f"~ from fewer than {FEW_SAMPLES} samples: the verdicts needed no more; --full measures all", {}))
    return lines


def _task_rows(document: Document, lengths: Sequence[int]) -> list[Row]:
    """Return a row for every task; an asterisk marks those that a calibration checkpoint solves."""
    solved = (document["model"]["calibration"] or {}).get("solves", ())
    cells = {(case["task"], case["length"]): _case_cell(case) for case in document["cases"]}
    return [
        (f"{task} *" if task in solved else task, [cells.get((task, length), "-") for length in lengths], {})
        for task in dict.fromkeys(case["task"] for case in document["cases"])
    ]


def _mean_rows(document: Document, lengths: Sequence[int]) -> list[Row]:
    """Return a row for every mean that was measured at any length."""
    ruler, helmet = document["ruler"], document["helmet"] or {"categories": {}, "average": {}}
    categories = (
        *ruler["aspects"].items(),
        *helmet["categories"].items(),
        *frontier_means(document).items(),
        *question_set_means(document).items(),
    )
    means: list[tuple[str, Mapping[str, float | None], Markup]] = [
        *((name, scores, {}) for name, scores in categories),
        ("HELMET", helmet["average"], {"bold": True}),
        ("mean", ruler["scores"], {"bold": True}),
    ]
    baseline = (document["regression"] or {}).get("scores", {})
    families = {"mean": "ruler", **{category: category for category in helmet["categories"]}}
    rows: list[Row] = []
    for name, scores, markup in means:
        if any(score is not None for score in scores.values()):
            rows.append((f"= {name}", [_cell(scores[str(length)]) for length in lengths], markup))
        if known := baseline.get(families.get(name)):
            rows.append(("  baseline", [_cell(known.get(str(length))) for length in lengths], {}))
    intervals = dict(zip(INTERVALS, (ruler["intervals"], ruler["model_intervals"]), strict=True))
    rows += [
        (f"  {name}", [_range_cell(ends[str(length)]) for length in lengths], {})
        for name, ends in intervals.items()
        if any(interval is not None for interval in ends.values())
    ]
    return rows


def _gates(document: Document) -> list[Line]:
    """Return a line for every blocking gate, and the counts of the others."""
    lines = []
    for gate in document["gates"]:
        if gate["blocking"]:
            markup = VERDICT_MARKUP.get(gate["verdict"], {"red": True})
            word = shown_verdict(gate["verdict"]).upper()
            text = f"{word:<5} {gate['name']}: {gate['reason']}{detectable_note(gate)}"
            lines.append(named_line("gate", text, **markup))
            about = ", ".join(part for part in (two_intervals(gate), correlation_text(gate)) if part)
            lines += [named_line("", about)] if about else []
    reported = Counter(gate["verdict"] for gate in document["gates"] if not gate["blocking"])
    if reported:
        counts = ", ".join(f"{count} {shown_verdict(verdict)}" for verdict, count in reported.items())
        lines.append(named_line("", f"reported only: {counts}"))
    notes = (no_votes(document), few_samples(document), seed_role(document) if document["gates"] else "")
    ids = [named_line("" if place else "id", text) for place, text in enumerate(failing_ids(document))]
    return [*lines, *(named_line("", note, yellow=note == notes[1]) for note in notes if note), *ids]


def _errors(document: Document) -> list[Line]:
    """Return a line for every distinct error, with the first of its cases."""
    cases: dict[str, list[str]] = {}
    for case in document["cases"]:
        if case["verdict"] == "error":
            cases.setdefault(case["error"], []).append(_short_id(case))
    return [
        named_line("error", f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {text}", red=True)
        for text, names in cases.items()
    ]


def _failures(document: Document) -> list[Line]:
    """Return an example of the lowest cases; cases that a calibration checkpoint should have solved come first."""
    solved = (document["model"]["calibration"] or {}).get("solves", ())
    failed = [case for case in document["cases"] if case["failures"]]
    failed.sort(key=lambda case: (case["task"] not in solved, case["score"] or 0, case["length"]))
    if not failed:
        return []
    lines = [named_line("below 100", f"{len(failed)} of {len(document['cases'])} cases, for example")]
    for case in failed[:SHOWN_CASES]:
        kinds = ", ".join(f"{count} {kind}" for kind, count in case["failures"].items())
        example = case["examples"][0]
        depth = "" if example["depth"] is None else f" at depth {example['depth']:.2f}"
        expected, answer = short(", ".join(example["expected"])), short(example["got"]) if example["got"] else "nothing"
        lines.append(named_line("", f"{_short_id(case)}: {kinds} of {case['samples']}"))
        lines.append(named_line("", f"    sample {example['index']}: expected {expected}{depth}, got {answer}"))
    return lines


def _cost(document: Document) -> list[Line]:
    run = document["run"]
    tokens, cases = run["tokens"], document["cases"]
    samples, planned = sum(case["samples"] for case in cases), sum(case["planned"] for case in cases)
    share = f" (1/{tokens['full_run_equivalent'] / tokens['computed']:.1f} of a full run)" if tokens["computed"] else ""
    if samples == planned:
        share = " (a full run)"
    lines = [
        named_line("cost", f"{counted(tokens['computed'])} tokens computed{share}, {samples:,} of {planned:,} samples"),
        named_line("", f"{run['computed_samples']:,} samples answered in this run, {run['seconds']:.0f} s"),
    ]
    if note := partial_note(document):
        lines.append(named_line("", note, yellow=True))
    return lines


def _row(name: str, cells: Sequence[str], width: int) -> str:
    return f"{_tail(name, width - 1):<{width}}" + "".join(f"{cell:>{CELL_WIDTH}}" for cell in cells)


def _short_id(case: Mapping[str, Any]) -> str:
    return f"{case['task']}-{format_length(case['length'])}"


def _case_cell(case: Mapping[str, Any]) -> str:
    return "error" if case["verdict"] == "error" else f"{'~' if is_rough(case) else ''}{_cell(case['score'])}"


def _cell(score: float | None) -> str:
    return "-" if score is None else f"{score:.1f}"


def _range_cell(interval: Sequence[float] | None) -> str:
    """Return an interval in whole points, rounded outwards, so that it fits a cell."""
    if interval is None:
        return "-"
    low, high = math.floor(interval[0]), math.ceil(interval[1])
    return f"{low}-{high}"


def _length(length: int | None, *, missing: str = "unknown") -> str:
    return missing if length is None else format_length(length).upper()


def _tail(text: str, width: int) -> str:
    """Return the text, cut at its start if it is longer than the width."""
    return text if len(text) <= width else f"...{text[3 - width :]}"
