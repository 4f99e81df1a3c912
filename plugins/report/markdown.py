"""The run as a short Markdown page, for a pull request or a job's summary."""

from __future__ import annotations

from longctx.fixtures.records.report import JsonReport
from longctx.plugins.report.formats import markdown_text
from longctx.plugins.report.layout import SECTIONS
from longctx.plugins.report.sections.ruler import effective_length_markdown


def markdown(document: JsonReport, *, holds: bool) -> str:
    """Return the document as about 50 lines of Markdown; `holds` is True if the run succeeds."""
    model, step = document.model, document.run.step
    sign = "✅" if holds else "⏸️" if document.run.interrupted else "❌"
    title = f"### {sign} Long context: {markdown_text(model.name, 80)}{'' if step is None else f', step {step}'}"
    made_of = [f"quantization {markdown_text(model.quantization, 60)}"] if model.quantization else []
    if model.source:
        verb = "merged from the adapter" if model.source.kind == "adapter" else "converted from"
        made_of.append(f"{verb} {markdown_text(model.source.path, 120)}")
    made = "; ".join(made_of)
    sections = [section.markdown(document) for section in SECTIONS if section.markdown is not None]
    parts = [title, effective_length_markdown(document), made[:1].upper() + made[1:], *sections]
    return "\n\n".join(part for part in parts if part) + "\n"
