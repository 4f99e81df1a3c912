"""The summary a person reads in ten seconds: verdict, table, what failed and how."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from fixtures.lengths import format_length
from fixtures.preflight import Inspection
from plugins.report.document import FEW_SAMPLES, is_rough

Document = dict[str, Any]
Line = tuple[str, dict[str, bool]]
COLUMNS = 100
INDENT = 11
NAME_WIDTH, LONGEST_NAME = 22, 40
CELL_WIDTH = 8
SHOWN_CASES = 5
TEXT_WIDTH = 28
WORD_MARKUP = {"pass": {"green": True}, "not measured": {"yellow": True}}


def summary_lines(document: Document) -> list[Line]:
    """The document as lines with their markup, at most 100 columns wide."""
    parts = (_headline(document), _table(document), _gates(document), _errors(document), _failures(document))
    lines = [line for part in parts if part for line in (*part, ("", {}))]
    return [short_line for line in (*lines, *_cost(document)) for short_line in _wrapped(line)]


def inspection_lines(inspections: Sequence[Inspection]) -> list[Line]:
    """What --preflight found: one line for all cases, and the first problems of each broken one."""
    if not inspections:
        return []
    broken = [found for found in inspections if found.problems]
    samples = sum(found.samples for found in inspections)
    least = min(found.min_fill for found in inspections)
    mean = sum(found.mean_fill for found in inspections) / len(inspections)
    head = f"{len(inspections)} cases, {samples} samples: {len(broken) or 'no'} cases with problems"
    return [
        _line("preflight", head, red=bool(broken), green=not broken, bold=True),
        _line("fill", f"at least {least:.3f} of the length, {mean:.3f} on average"),
        *(_line("", f"{found.case.id}: {text}", red=True) for found in broken for text in found.problems[:3]),
    ]


def _headline(document: Document) -> list[Line]:
    model, ruler = document["model"], document["ruler"]
    chat = "chat template" if model["chat_template"] else "no chat template"
    how = ", ".join(part for part in (model["architecture"], model["dtype"], model["attention"], chat) if part)
    lines = [_line("model", f"{_tail(model['name'], 40)} ({how})")]
    claimed = f"claimed {_tokens(ruler['claimed_length'])}"
    if all(case["suite"] == "helmet" for case in document["cases"]):
        lines.append(_line("claimed", _tokens(ruler["claimed_length"])))
    elif ruler["effective_length_label"] is None:
        open_at = [length for length, word in ruler["verdicts"].items() if word == "inconclusive"]
        why = "not measured: it needs all RULER tasks at every length"
        if len(open_at) and set(ruler["verdicts"].values()) <= {"pass", "fail", "inconclusive"}:
            why = f"undecided at {', '.join(format_length(int(length)).upper() for length in open_at)}"
        lines.append(_line("effective", f"{why}; {claimed}", bold=True))
    else:
        effective = _label(ruler["effective_length_label"])
        lines.append(
            _line("effective", f"{effective}, {claimed}   (RULER mean above {ruler['threshold']:g})", bold=True)
        )
        lines.append(_line("", f"yardstick: {ruler['threshold_source']}"))
        if ruler["contiguous_effective_length"] != ruler["effective_length"]:
            contiguous = _tokens(ruler["contiguous_effective_length"] or None, missing="none")
            lines.append(_line("", f"not monotone: every length passes up to {contiguous} only", yellow=True))
    if model["calibration"]:
        lines.append(_line("calibrated", "solves by construction the tasks marked *, and no other"))
    return lines


def _table(document: Document) -> list[Line]:
    """Every score under its length; where a line has no room for all lengths, in parts one below the other."""
    cases, ruler = document["cases"], document["ruler"]
    lengths = sorted({case["length"] for case in cases})
    rows = _rows(document, lengths)
    width = min(LONGEST_NAME, max((NAME_WIDTH, *(len(name) + 1 for name, _, _ in rows))))
    most = (COLUMNS - width) // CELL_WIDTH
    lines = []
    for first in range(0, len(lengths), most):
        shown = slice(first, first + most)
        head = [format_length(length).upper() for length in lengths[shown]]
        lines.append((_row("score", head, width), {"bold": True}))
        lines += [(_row(name, cells[shown], width), markup) for name, cells, markup in rows]
    if ruler["wavg_inc"] is not None:
        lines.append((f"{'= wAvg':<{width}}inc {ruler['wavg_inc']:.1f}, dec {ruler['wavg_dec']:.1f}", {}))
    if any(map(is_rough, cases)):
        lines.append((f"~ from fewer than {FEW_SAMPLES} samples: the verdicts needed no more; --full measures all", {}))
    return lines


def _rows(document: Document, lengths: Sequence[int]) -> list[tuple[str, list[str], dict[str, bool]]]:
    """Each row's name, its cells by length and its markup: the tasks, then the means that were measured."""
    cases, ruler = document["cases"], document["ruler"]
    solves = (document["model"]["calibration"] or {}).get("solves", ())
    cells = {(case["task"], case["length"]): _case_cell(case) for case in cases}
    rows: list[tuple[str, list[str], dict[str, bool]]] = []
    for task in dict.fromkeys(case["task"] for case in cases):
        name = f"{task} *" if task in solves else task
        rows.append((name, [cells.get((task, length), "-") for length in lengths], {}))
    helmet = document["helmet"] or {"categories": {}, "average": {}}
    means: list[tuple[str, dict[str, float | None], dict[str, bool]]] = []
    means += [(name, scores, {}) for name, scores in (*ruler["aspects"].items(), *helmet["categories"].items())]
    means += [("HELMET", helmet["average"], {"bold": True}), ("mean", ruler["scores"], {"bold": True})]
    for name, scores, markup in means:
        if any(score is not None for score in scores.values()):
            rows.append((f"= {name}", [_cell(scores[str(length)]) for length in lengths], markup))
    return rows


def _gates(document: Document) -> list[Line]:
    lines = []
    for gate in document["gates"]:
        if gate["blocking"]:
            markup = WORD_MARKUP.get(gate["verdict"], {"red": True})
            lines.append(_line("gate", f"{gate['verdict'].upper():<5} {gate['name']}: {gate['reason']}", **markup))
    told = [gate for gate in document["gates"] if not gate["blocking"]]
    if told:
        words = Counter(gate["verdict"] for gate in told)
        counted = ", ".join(f"{count} {word}" for word, count in words.items())
        lines.append(_line("", f"reported only: {counted}"))
    return lines


def _errors(document: Document) -> list[Line]:
    found: dict[str, list[str]] = {}
    for case in document["cases"]:
        if case["verdict"] == "error":
            found.setdefault(case["error"], []).append(_short_id(case))
    return [
        _line("error", f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {text}", red=True)
        for text, names in found.items()
    ]


def _failures(document: Document) -> list[Line]:
    """The lowest cases, those first that a calibration checkpoint should have solved."""
    solves = (document["model"]["calibration"] or {}).get("solves", ())
    failed = [case for case in document["cases"] if case["failures"]]
    failed.sort(key=lambda case: (case["task"] not in solves, case["score"] or 0, case["length"]))
    lines = []
    for case in failed[:SHOWN_CASES]:
        kinds = ", ".join(f"{count} {kind}" for kind, count in case["failures"].items())
        example = case["examples"][0]
        depth = "" if example["depth"] is None else f" at depth {example['depth']:.2f}"
        expected, got = short(", ".join(example["expected"])), short(example["got"])
        lines.append(_line("", f"{_short_id(case)}: {kinds} of {case['samples']}"))
        lines.append(_line("", f"    sample {example['index']}: expected {expected}{depth}, got {got}"))
    if lines:
        lines.insert(0, _line("below 100", f"{len(failed)} of {len(document['cases'])} cases, for example"))
    return lines


def _cost(document: Document) -> list[Line]:
    run = document["run"]
    tokens, cases = run["tokens"], document["cases"]
    samples, planned = sum(case["samples"] for case in cases), sum(case["planned"] for case in cases)
    share = f" (1/{tokens['full_run_equivalent'] / tokens['computed']:.1f} of a full run)" if tokens["computed"] else ""
    if samples == planned:
        share = " (a full run)"
    lines = [
        _line("cost", f"{tokens['computed']:,} tokens computed{share}, {samples:,} of {planned:,} samples"),
        _line("", f"{run['computed_samples']:,} samples answered in this run, {run['seconds']:.0f} s"),
    ]
    if run["partial"]:
        lines.append(_line("", "partial: cases were left out or lost", yellow=True))
    return lines


def short(text: str) -> str:
    """A model's text as one quoted, printable piece that fits a line."""
    words = " ".join(text.split())
    shown = "".join(character if character.isprintable() else "?" for character in words)
    return repr(shown if len(shown) <= TEXT_WIDTH else f"{shown[: TEXT_WIDTH - 3]}...")


def _wrapped(line: Line) -> list[Line]:
    text, markup = line
    if len(text) <= COLUMNS:
        return [line]
    return [(part, markup) for part in textwrap.wrap(text, COLUMNS, subsequent_indent=" " * INDENT)]


def _line(name: str, text: str, **markup: bool) -> Line:
    return f"{name:<{INDENT}}{text}", markup


def _row(name: str, cells: Sequence[str], width: int) -> str:
    return f"{_tail(name, width - 1):<{width}}" + "".join(f"{cell:>{CELL_WIDTH}}" for cell in cells)


def _short_id(case: dict[str, Any]) -> str:
    return f"{case['task']}-{format_length(case['length'])}"


def _case_cell(case: dict[str, Any]) -> str:
    return "error" if case["verdict"] == "error" else f"{'~' if is_rough(case) else ''}{_cell(case['score'])}"


def _cell(score: float | None) -> str:
    return "-" if score is None else f"{score:.1f}"


def _tokens(length: int | None, *, missing: str = "unknown") -> str:
    return missing if length is None else format_length(length).upper()


def _label(label: str) -> str:
    sign = label[0] if label[0] in "<>" else ""
    return f"{sign}{_tokens(int(label.removeprefix(sign)))}"


def _tail(text: str, width: int) -> str:
    return text if len(text) <= width else f"...{text[3 - width :]}"
