"""The properties of the engine that --invariance checked."""

from __future__ import annotations

from collections.abc import Sequence

from longctx.fixtures.records import PropertyFinding
from longctx.fixtures.records.report import JsonReport
from longctx.plugins.report.formats import COLUMNS, Line, markdown_text, named_line, wrapped
from longctx.plugins.report.sections.section import Section


def failed_properties(document: JsonReport) -> list[str]:
    """Return a line for every property that fails: its name, the sample, the first differing token, both answers."""
    failed = [finding for finding in document.invariance or () if finding.verdict == "fail"]
    return [f"invariance: {finding.line}" for finding in failed]


def held_properties(document: JsonReport) -> list[str]:
    """Return the number of the checked properties of the engine that hold, in words; nothing without --invariance."""
    checked = [finding for finding in document.invariance or () if finding.verdict != "skipped"]
    holding = sum(finding.verdict == "pass" for finding in checked)
    return [f"{holding} of {len(checked)} checked properties of the engine hold"] if checked else []


def invariance_lines(findings: Sequence[PropertyFinding]) -> list[Line]:
    """Return a line for every property of the engine that --invariance checked."""
    words = {"pass": ("PASS", {"green": True}), "fail": ("FAIL", {"red": True}), "skipped": ("-", {"yellow": True})}
    lines = []
    for finding in findings:
        word, markup = words[finding.verdict]
        text = finding.line.removeprefix(f"{finding.name}: {finding.verdict}: ").removeprefix(f"{finding.name}: ")
        lines += wrapped(named_line("invariance", f"{word:<5} {finding.name}: {text}", **markup), COLUMNS)
    return [*lines, ("", {})] if lines else []


def _markdown(document: JsonReport) -> str:
    """Return the properties of the engine that fail, and the number of those that hold; empty without --invariance."""
    failed = [f"- ❌ {markdown_text(line, 400)}" for line in failed_properties(document)]
    return "\n".join([*failed, *(f"- {line}" for line in held_properties(document))])


INVARIANCE_SECTION = Section(markdown=_markdown)
