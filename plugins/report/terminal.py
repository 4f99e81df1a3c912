"""The summary in the terminal: verdict, scores, gates, errors, examples of wrong answers, and the cost."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fixtures.invariance import Finding
from fixtures.lengths import format_length
from fixtures.preflight import Inspection
from fixtures.shown_text import visible_line
from plugins.report.certainty import correlation_text, few_samples, no_votes, seed_role, two_intervals
from plugins.report.cost import counted
from plugins.report.document import FEW_SAMPLES, detectable_note, is_rough
from plugins.report.frontier import frontier_means, has_no_ruler
from plugins.report.likelihood import has_no_answers
from plugins.report.likelihood_lines import likelihood_lines

Document = Mapping[str, Any]
Markup = dict[str, bool]
Line = tuple[str, Markup]
"""A line's text and its markup, as pytest's terminal takes it."""

Row = tuple[str, list[str], Markup]
"""A table row: its name, its cells by length, and its markup."""

COLUMNS = 100
INDENT = 11
NAME_WIDTH, LONGEST_NAME = 22, 40
CELL_WIDTH = 8
SHOWN_CASES = 5
SHOWN_PROBLEMS = 3
TEXT_WIDTH = 28
VERDICT_MARKUP = {"pass": {"green": True}, "not measured": {"yellow": True}}


def summary_lines(document: Document) -> list[Line]:
    """Return the summary as lines of at most 100 columns."""
    parts = (
        _headline(document),
        _table(document),
        likelihood_lines(document["likelihood"]),
        _gates(document),
        _errors(document),
        _failures(document),
    )
    lines = [line for part in parts if part for line in (*part, ("", {}))]
    return [short_line for line in (*lines, *_cost(document)) for short_line in _wrapped(line)]


def inspection_lines(inspections: Sequence[Inspection]) -> list[Line]:
    """Return the results of --preflight: one line for all cases, and the first problems of every broken case."""
    if not inspections:
        return []
    broken = [inspection for inspection in inspections if inspection.problems]
    samples = sum(inspection.samples for inspection in inspections)
    least = min(inspection.min_fill for inspection in inspections)
    mean = sum(inspection.mean_fill for inspection in inspections) / len(inspections)
    head = f"{len(inspections)} cases, {samples} samples: {len(broken) or 'no'} cases with problems"
    problems = [(inspection.case.id, text) for inspection in broken for text in inspection.problems[:SHOWN_PROBLEMS]]
    return [
        _line("preflight", head, red=bool(broken), green=not broken, bold=True),
        _line("fill", f"at least {least:.3f} of the length, {mean:.3f} on average"),
        *(_line("", f"{case_id}: {text}", red=True) for case_id, text in problems),
    ]


def invariance_lines(findings: Sequence[Finding]) -> list[Line]:
    """Return a line for every property of the engine that --invariance checked."""
    words = {"pass": ("PASS", {"green": True}), "fail": ("FAIL", {"red": True}), "skipped": ("-", {"yellow": True})}
    lines = []
    for finding in findings:
        word, markup = words[finding.verdict]
        text = finding.line.removeprefix(f"{finding.name}: {finding.verdict}: ").removeprefix(f"{finding.name}: ")
        lines += _wrapped(_line("invariance", f"{word:<5} {finding.name}: {text}", **markup))
    return [*lines, ("", {})] if lines else []


def short(text: str) -> str:
    """Return the text of a model as a quoted, printable string that fits a line."""
    words = " ".join(text.split())
    shown = "".join(character if character.isprintable() else "?" for character in words)
    return repr(shown if len(shown) <= TEXT_WIDTH else f"{shown[: TEXT_WIDTH - 3]}...")


def _headline(document: Document) -> list[Line]:
    model, ruler = document["model"], document["ruler"]
    chat = "chat template" if model["chat_template"] else "no chat template"
    facts = ", ".join(fact for fact in (model["architecture"], model["dtype"], model["attention"], chat) if fact)
    lines = [_line("model", f"{_tail(model['name'], 40)} ({facts})")]
    claimed = f"claimed {_length(ruler['claimed_length'])}"
    if has_no_ruler(document):
        lines.append(_line("claimed", _length(ruler["claimed_length"])))
    elif ruler["effective_length_label"] is None:
        lines.append(_line("effective", f"{_missing_effective_length(document)}; {claimed}", bold=True))
    else:
        lines += _effective_length(ruler, claimed)
    if model["calibration"]:
        lines.append(_line("calibrated", "solves the tasks marked * by construction, and no other task"))
    return lines


def _missing_effective_length(document: Document) -> str:
    """Return the reason why there is no effective length."""
    ruler = document["ruler"]
    if has_no_answers(document):
        return "not measured: --signal likelihood generates no answers"
    undecided = [length for length, verdict in ruler["verdicts"].items() if verdict == "inconclusive"]
    if undecided and set(ruler["verdicts"].values()) <= {"pass", "fail", "inconclusive"}:
        return f"undecided at {', '.join(_length(int(length)) for length in undecided)}"
    return "not measured: it needs all RULER tasks at every length"


def _effective_length(ruler: Mapping[str, Any], claimed: str) -> list[Line]:
    effective = _label(ruler["effective_length_label"])
    lines = [
        _line("effective", f"{effective}, {claimed}   (RULER mean above {ruler['threshold']:g})", bold=True),
        _line("", f"threshold: {ruler['threshold_source']}"),
    ]
    if ruler["contiguous_effective_length"] != ruler["effective_length"]:
        contiguous = _length(ruler["contiguous_effective_length"] or None, missing="none")
        lines.append(_line("", f"not monotone: all lengths pass only up to {contiguous}", yellow=True))
    return lines


def _table(document: Document) -> list[Line]:
    """Return the scores by task and length; lengths that do not fit beside the others follow in a table below."""
    if has_no_answers(document):
        return []
    cases, ruler = document["cases"], document["ruler"]
    lengths = sorted({case["length"] for case in cases})
    rows = [*_task_rows(document, lengths), *_mean_rows(document, lengths)]
    width = min(LONGEST_NAME, max((NAME_WIDTH, *(len(name) + 1 for name, _, _ in rows))))
    most = (COLUMNS - width) // CELL_WIDTH
    lines = []
    for first in range(0, len(lengths), most):
        shown = slice(first, first + most)
        lines.append((_row("score", [_length(length) for length in lengths[shown]], width), {"bold": True}))
        lines += [(_row(name, cells[shown], width), markup) for name, cells, markup in rows]
    if ruler["wavg_inc"] is not None:
        lines.append((f"{'= wAvg':<{width}}inc {ruler['wavg_inc']:.1f}, dec {ruler['wavg_dec']:.1f}", {}))
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
    categories = (*ruler["aspects"].items(), *helmet["categories"].items(), *frontier_means(document).items())
    means: list[tuple[str, Mapping[str, float | None], Markup]] = [
        *((name, scores, {}) for name, scores in categories),
        ("HELMET", helmet["average"], {"bold": True}),
        ("mean", ruler["scores"], {"bold": True}),
    ]
    rows: list[Row] = [
        (f"= {name}", [_cell(scores[str(length)]) for length in lengths], markup)
        for name, scores, markup in means
        if any(score is not None for score in scores.values())
    ]
    intervals = {"  these samples": ruler["intervals"], "  the model": ruler["model_intervals"]}
    rows += [
        (name, [_range_cell(ends[str(length)]) for length in lengths], {})
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
            text = f"{gate['verdict'].upper():<5} {gate['name']}: {gate['reason']}{detectable_note(gate)}"
            lines.append(_line("gate", text, **markup))
            about = ", ".join(part for part in (two_intervals(gate), correlation_text(gate)) if part)
            lines += [_line("", about)] if about else []
    reported = Counter(gate["verdict"] for gate in document["gates"] if not gate["blocking"])
    if reported:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in reported.items())
        lines.append(_line("", f"reported only: {counts}"))
    notes = (no_votes(document), few_samples(document), seed_role(document) if document["gates"] else "")
    return [*lines, *(_line("", note, yellow=note == notes[1]) for note in notes if note)]


def _errors(document: Document) -> list[Line]:
    """Return a line for every distinct error, with the first of its cases."""
    cases: dict[str, list[str]] = {}
    for case in document["cases"]:
        if case["verdict"] == "error":
            cases.setdefault(case["error"], []).append(_short_id(case))
    return [
        _line("error", f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {text}", red=True)
        for text, names in cases.items()
    ]


def _failures(document: Document) -> list[Line]:
    """Return an example of the lowest cases; cases that a calibration checkpoint should have solved come first."""
    solved = (document["model"]["calibration"] or {}).get("solves", ())
    failed = [case for case in document["cases"] if case["failures"]]
    failed.sort(key=lambda case: (case["task"] not in solved, case["score"] or 0, case["length"]))
    if not failed:
        return []
    lines = [_line("below 100", f"{len(failed)} of {len(document['cases'])} cases, for example")]
    for case in failed[:SHOWN_CASES]:
        kinds = ", ".join(f"{count} {kind}" for kind, count in case["failures"].items())
        example = case["examples"][0]
        depth = "" if example["depth"] is None else f" at depth {example['depth']:.2f}"
        expected, answer = short(", ".join(example["expected"])), short(example["got"])
        lines.append(_line("", f"{_short_id(case)}: {kinds} of {case['samples']}"))
        lines.append(_line("", f"    sample {example['index']}: expected {expected}{depth}, got {answer}"))
    return lines


def _cost(document: Document) -> list[Line]:
    run = document["run"]
    tokens, cases = run["tokens"], document["cases"]
    samples, planned = sum(case["samples"] for case in cases), sum(case["planned"] for case in cases)
    share = f" (1/{tokens['full_run_equivalent'] / tokens['computed']:.1f} of a full run)" if tokens["computed"] else ""
    if samples == planned:
        share = " (a full run)"
    lines = [
        _line("cost", f"{counted(tokens['computed'])} tokens computed{share}, {samples:,} of {planned:,} samples"),
        _line("", f"{run['computed_samples']:,} samples answered in this run, {run['seconds']:.0f} s"),
    ]
    if run["partial"]:
        lines.append(_line("", "partial: cases were left out or returned no result", yellow=True))
    return lines


def _wrapped(line: Line) -> list[Line]:
    text, markup = line
    if len(text) <= COLUMNS:
        return [line]
    return [(part, markup) for part in textwrap.wrap(text, COLUMNS, subsequent_indent=" " * INDENT)]


def _line(name: str, text: str, **markup: bool) -> Line:
    # A line break within a text could otherwise pass for a line of the summary.
    return visible_line(f"{name:<{INDENT}}{text}"), markup


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


def _label(label: str) -> str:
    """Return an effective length's label with a short length: `<1024` is `<1K`."""
    sign = label[0] if label[0] in "<>" else ""
    return f"{sign}{_length(int(label.removeprefix(sign)))}"


def _tail(text: str, width: int) -> str:
    """Return the text, cut at its start if it is longer than the width."""
    return text if len(text) <= width else f"...{text[3 - width :]}"
