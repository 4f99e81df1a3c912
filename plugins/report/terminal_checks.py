"""The results of --preflight and --invariance in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from fixtures.invariance import Finding
from fixtures.preflight import Inspection
from plugins.report.terminal_lines import COLUMNS, Line, named_line, wrapped

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


def invariance_lines(findings: Sequence[Finding]) -> list[Line]:
    """Return a line for every property of the engine that --invariance checked."""
    words = {"pass": ("PASS", {"green": True}), "fail": ("FAIL", {"red": True}), "skipped": ("-", {"yellow": True})}
    lines = []
    for finding in findings:
        word, markup = words[finding.verdict]
        text = finding.line.removeprefix(f"{finding.name}: {finding.verdict}: ").removeprefix(f"{finding.name}: ")
        lines += wrapped(named_line("invariance", f"{word:<5} {finding.name}: {text}", **markup), COLUMNS)
    return [*lines, ("", {})] if lines else []
