"""The page of one run: a single file with its style, script and data, which loads nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from longctx.fixtures.records.report import JsonReport
from longctx.plugins.report.charts import SHADES, Series, lines_charts, score_charts
from longctx.plugins.report.page_samples import Samples, samples_of
from longctx.plugins.report.sections.comparison import comparison_notes, difference_tables
from longctx.plugins.report.sections.cost import cost_text, partial_note
from longctx.plugins.report.sections.engine import invariance_table, notes_of
from longctx.plugins.report.sections.failures import failure_table, lowest_table
from longctx.plugins.report.sections.gates import gate_table, run_verdict, seed_role, warning_texts
from longctx.plugins.report.sections.likelihood import finding_notes, likelihood_table
from longctx.plugins.report.sections.ruler import effective_length_of, model_facts, ruler_series
from longctx.plugins.report.sections.scores import (
    all_cases,
    at_confidence,
    depth_tables,
    score_notes,
    score_tables,
    setting_series,
)
from longctx.plugins.report.sections.suites import frontier_notes, question_notes
from longctx.plugins.report.summary import RunSummary
from longctx.plugins.report.tables import Note, plural, short_length, tested_lengths

LOWEST_CASES = 12
# Markup could end the script element that holds the data, and older parsers take U+2028 and U+2029 for line ends.
ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """The values of a run that are in the page and not in the JSON document."""

    ruler: tuple[Series, ...]
    """RULER's mean and those of its aspects; empty for a run without RULER."""
    samples: Samples


def details(summary: RunSummary) -> Details:
    measured = summary.evaluation.measured
    return Details(
        ruler=ruler_series(summary.evaluation), samples=samples_of(measured.scope.cases, measured.results)
    )  # fmt: skip


def page(document: JsonReport, details: Details) -> str:
    """Return the report as HTML. The page requests nothing, and no text of a model is markup in it.

    All texts of the document must be visible; Jinja and the SVG layer escape their markup.
    """
    likelihood, regression = document.likelihood, document.regression
    lengths = [short_length(length) for length in tested_lengths(document)]
    return render(
        "report.html.j2",
        script=resource("script.js"),
        title=f"{document.model.name}: long context",
        document=document,
        model=document.model,
        model_facts=model_facts(document.model),
        run=document.run,
        ruler=document.ruler,
        verdict=document.verdict or run_verdict(document),
        partial=partial_note(document),
        effective_length=effective_length_of(document),
        charts=score_charts(details.ruler, lengths),
        settings=lines_charts(setting_series(document), lengths),
        tables=score_tables(document),
        score_notes=_texts(score_notes(document)),
        at_confidence=at_confidence(document),
        depths=depth_tables(document),
        frontier=_texts([*frontier_notes(document), *question_notes(document)]),
        likelihood=None if likelihood is None else likelihood_table(likelihood, document.cases),
        likelihood_findings=[] if likelihood is None else _texts(finding_notes(likelihood)),
        invariance=invariance_table(document.invariance or ()),
        gates=gate_table(document),
        notes=[*(f"{note[0].upper()}{note[1:]}" for note in notes_of(document)), *warning_texts(document)],
        seed_role=seed_role(document),
        regression=regression,
        differences=[] if regression is None else difference_tables(document, regression),
        comparison_notes=_texts(comparison_notes(document)),
        failures=failure_table(document),
        lowest=lowest_table(document, LOWEST_CASES),
        cases=all_cases(document),
        cost=cost_text(document),
        samples=details.samples,
        data_sources=_data_sources(document),
        data=embedded({"rows": details.samples.rows}),
    )


def _texts(notes: Sequence[Note]) -> list[str]:
    return [note.text for note in notes]


def _data_sources(document: JsonReport) -> list[str]:
    """Return how many cases read which texts."""
    directory = document.run.options.get("data_dir")
    places = {"archive": "generated text", "published": f"published data{f' in {directory}' if directory else ''}"}
    counts = Counter(case.source for case in document.cases)
    return [f"{places.get(source, source)}: {plural(count, 'case', 'cases')}" for source, count in counts.items()]


def render(template: str, *, script: str = "", **values: Any) -> str:
    """Render a template with the shared style.

    The page's policy allows this style, the script, and nothing else.
    """
    style = resource("style.css")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script) if script else 'none'}'; "
        "base-uri 'none'; form-action 'none'"
    )
    # Both come from this package, so they need no escaping.
    trusted = {"style": Markup(style), "script": Markup(script)}
    return _environment().get_template(template).render(policy=policy, **trusted, **values)


def embedded(data: Any) -> Markup:
    """Return data as JSON in ASCII without any character of markup, so that no value can end the element it is in."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(ESCAPES))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(lambda name: resource(f"templates/{name}")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["shades"] = range(0, SHADES + 1, 2)
    return environment


def resource(name: str) -> str:
    """Return the text of a style, script or template of the pages."""
    return files("longctx.plugins.report.html").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
