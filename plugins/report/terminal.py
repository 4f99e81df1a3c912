"""The summary a person reads in ten seconds: verdict, table, what failed and how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fixtures.lengths import format_length
from fixtures.preflight import Inspection

Line = tuple[str, dict[str, bool]]
NAME_WIDTH = 16
CELL_WIDTH = 8
SHOWN_FAILURES = 6
TEXT_WIDTH = 36


def summary_lines(document: dict[str, Any]) -> list[Line]:
    """The document as lines with their markup, at most 100 columns wide."""
    return [
        *_headline(document),
        ("", {}),
        *_table(document),
        ("", {}),
        *_gates(document),
        *_failures(document),
        *_cost(document),
    ]


def inspection_lines(inspections: Sequence[Inspection]) -> list[Line]:
    """What --preflight found: a row for each case with a problem, else one line for all."""
    if not inspections:
        return []
    broken = [found for found in inspections if found.problems]
    samples = sum(found.samples for found in inspections)
    least, mean = min(found.least_fill for found in inspections), [found.mean_fill for found in inspections]
    head = f"preflight  {len(inspections)} cases, {samples} samples: {len(broken) or 'no'} case(s) with problems"
    lines: list[Line] = [(head, {"red" if broken else "green": True, "bold": True})]
    lines.append((f"fill       least {least:.3f}, mean {sum(mean) / len(mean):.3f} of the length", {}))
    lines += [(f"           {found.case.id}: {line}", {"red": True}) for found in broken for line in found.problems[:3]]
    return lines


def _headline(document: dict[str, Any]) -> list[Line]:
    model, ruler = document["model"], document["ruler"]
    how = [model["architecture"], model["dtype"], model["attention"], "chat template" if model["chat_template"] else "no chat template"]
    lines: list[Line] = [(f"model      {model['name']} ({', '.join(part for part in how if part)})", {})]
    claimed = _tokens(ruler["claimed_length"])
    effective = ruler["effective_length_label"]
    if effective is None:
        lines.append((f"effective  not measured (needs all RULER tasks at every length); claimed {claimed}", {"bold": True}))
    else:
        measured = f"effective  {_label(effective)} of {claimed} claimed: RULER mean above {ruler['threshold']:g}"
        lines.append((measured, {"bold": True}))
        lines.append((f"           {ruler['threshold_source']}", {}))
        if ruler["contiguous_effective_length"] != ruler["effective_length"]:
            lines.append((f"           not monotone: all lengths pass only up to {_tokens(ruler['contiguous_effective_length'])}", {"yellow": True}))
    calibration = model["calibration"]
    if calibration:
        lines.append((f"calibrated solves by construction: {', '.join(calibration['solves'])}", {}))
        lines.append((f"           does not solve: {', '.join(calibration['unsolved'])}", {}))
    return lines


def _table(document: dict[str, Any]) -> list[Line]:
    cases = document["cases"]
    lengths = sorted({case["length"] for case in cases})
    scores = {(case["task"], case["length"]): "error" if case["verdict"] == "error" else f"{case['score']:.1f}" for case in cases}
    header = "".join(f"{format_length(length):>{CELL_WIDTH}}" for length in lengths)
    lines: list[Line] = [(f"{'score':<{NAME_WIDTH}}{header}", {"bold": True})]
    for task in dict.fromkeys(case["task"] for case in document["cases"]):
        lines.append(_row(task, [scores.get((task, length), "-") for length in lengths]))
    ruler = document["ruler"]
    for aspect, values in ruler["aspects"].items():
        if any(value is not None for value in values.values()):
            lines.append(_row(f"  {aspect}", [_cell(values[str(length)]) for length in lengths]))
    if any(value is not None for value in ruler["scores"].values()):
        name, markup = _row("RULER mean", [_cell(ruler["scores"][str(length)]) for length in lengths])
        averages = f"   wAvg inc {_cell(ruler['wavg_inc'])} dec {_cell(ruler['wavg_dec'])}"
        lines.append((name + averages, {"bold": True, **markup}))
    return lines


def _gates(document: dict[str, Any]) -> list[Line]:
    lines: list[Line] = []
    for gate in document["gates"]:
        if gate["blocking"] or gate["verdict"] == "error":
            word = gate["verdict"].upper()
            line = f"gate       {word:<5} {gate['name']}: {gate['reason']}"
            lines.append((line, {"pass": {"green": True}, "not measured": {"yellow": True}}.get(gate["verdict"], {"red": True})))
    told = [gate for gate in document["gates"] if not gate["blocking"]]
    if told:
        passed = sum(gate["verdict"] == "pass" for gate in told)
        lines.append((f"           and {len(told)} gates that are only reported: {passed} pass", {}))
    return lines


def _failures(document: dict[str, Any]) -> list[Line]:
    cases = document["cases"]
    lines: list[Line] = []
    for case in cases:
        if case["verdict"] == "error":
            lines.append((f"error      {case['id']}: {case['error']}", {"red": True}))
    failed = sorted((case for case in cases if case["failures"]), key=lambda case: (case["score"], case["length"]))
    if failed:
        lines.append(("", {}))
        lines.append((f"below 100  {len(failed)} of {len(cases)} cases; the lowest:", {}))
    for case in failed[:SHOWN_FAILURES]:
        kinds = ", ".join(f"{count} {kind}" for kind, count in case["failures"].items())
        lines.append((f"           {parameter(case)}: {kinds}", {}))
        example = case["examples"][0]
        depth = "" if example["depth"] is None else f", depth {example['depth']:.2f}"
        expected = short(", ".join(example["expected"]))
        lines.append((f"             #{example['index']}: expected {expected}, got {short(example['got'])}{depth}", {}))
    return lines


def _cost(document: dict[str, Any]) -> list[Line]:
    run = document["run"]
    tokens = run["tokens"]
    partial = "   partial: not every planned case was run" if run["partial"] else ""
    return [
        ("", {}),
        (
            f"cost       {tokens['prompt']:,} prompt tokens, {tokens['generated']:,} generated, "
            f"{tokens['computed']:,} computed; {run['seconds']:.0f} s{partial}",
            {},
        ),
    ]


def parameter(case: dict[str, Any]) -> str:
    """`niah_single_1-8k`."""
    return f"{case['task']}-{format_length(case['length'])}"


def short(text: str) -> str:
    """A model's text as one quoted, printable piece that fits a line."""
    shown = repr(" ".join(text.split()))
    shown = "".join(character if character.isprintable() and ord(character) < 0x2000 else "?" for character in shown)
    return shown if len(shown) <= TEXT_WIDTH else f"{shown[: TEXT_WIDTH - 4]}...'"


def _row(name: str, cells: Sequence[str]) -> Line:
    return f"{name:<{NAME_WIDTH}}" + "".join(f"{cell:>{CELL_WIDTH}}" for cell in cells), {}


def _cell(score: float | None) -> str:
    return "-" if score is None else f"{score:.1f}"


def _tokens(length: int | None) -> str:
    return "unknown" if length is None else format_length(length).upper()


def _label(label: str) -> str:
    sign, digits = (label[0], label[1:]) if label[0] in "<>" else ("", label)
    return f"{sign}{_tokens(int(digits))}"
