"""The terminal output: the summary of a run, and the results of --preflight."""

from __future__ import annotations

from collections.abc import Sequence

from longctx.fixtures.records import Inspection
from longctx.fixtures.records.report import JsonReport
from longctx.plugins.report.formats import (
    COLUMNS,
    Line,
    cut_start,
    named_line,
    wrapped,
)
from longctx.plugins.report.layout import SECTIONS
from longctx.plugins.report.sections.gates import NO_GATE
from longctx.plugins.report.sections.ruler import effective_length_lines
from longctx.plugins.report.sections.scores import score_table_lines


def terminal_summary(document: JsonReport, columns: int = COLUMNS) -> list[Line]:
    """Return the summary as lines of at most `columns` columns."""
    model = document.model
    chat = "chat template" if model.chat_template else "no chat template"
    made = model.source and ("merged adapter" if model.source.kind == "adapter" else "converted")
    thinks = model.thought and f"thinks in {model.thought}"
    known = (model.architecture, model.quantization, made, model.dtype, model.attention, chat, thinks)
    facts = ", ".join(fact for fact in known if fact)
    has_gate = any(gate.blocking and gate.verdict != "not measured" for gate in document.gates)
    has_floor = any(case.floor is not None for case in document.cases)
    warning = "" if has_gate or has_floor or document.invariance else NO_GATE
    head = [named_line("no gate", warning, yellow=True)] if warning else []
    head.append(named_line("model", f"{cut_start(model.name, 40)} ({facts})"))
    if document.regression is not None:
        head.append(named_line("baseline", cut_start(document.regression.baseline.name, 60)))
    head += effective_length_lines(document)
    if model.calibration:
        head.append(named_line("calibrated", "solves the tasks marked * by construction, and no other task"))
    shown = [section.terminal(document) for section in SECTIONS if section.terminal is not None]
    parts = [part for part in (head, score_table_lines(document, columns), *shown) if part]
    # An empty line stands between two parts.
    separator: list[Line] = [("", {})]
    lines = [line for number, part in enumerate(parts) for line in (*separator * bool(number), *part)]
    return [short_line for line in lines for short_line in wrapped(line, columns)]


SHOWN_PROBLEMS = 3


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
        named_line("preflight", head, red=bool(broken), green=not broken, bold=True),
        named_line("fill", f"at least {least:.3f} of the length, {mean:.3f} on average"),
        *(named_line("", f"{case_id}: {text}", red=True) for case_id, text in problems),
    ]
