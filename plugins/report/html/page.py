"""The page of one run: a single file with its style, script and data, which loads nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from plugins.gates.findings import shown_verdict
from plugins.report.certainty import few_samples, seed_role
from plugins.report.charts.bars import score_svg, shares_svg, swatch_svg
from plugins.report.charts.colours import SHADES, shade_rules
from plugins.report.charts.evidence import evidence_svg
from plugins.report.charts.intervals import interval_svg
from plugins.report.charts.lines import line_svg
from plugins.report.details import Details
from plugins.report.document import FEW_SAMPLES, is_rough
from plugins.report.frontier_lines import frontier_findings
from plugins.report.html import tables, views
from plugins.report.html.gates import gates
from plugins.report.html.likelihood import likelihood_section

# Markup could end the script element that holds the data, and older parsers take U+2028 and U+2029 for line ends.
ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def page(document: Mapping[str, Any], details: Details) -> str:
    """Return the report as HTML. The page requests nothing, and no text of a model is markup in it.

    All texts of the document must be visible; Jinja and the SVG layer escape their markup.
    """
    failures = views.failures(document)
    return render(
        "report.html.j2",
        script=resource("script.js"),
        title=f"{document['model']['name']}: long context",
        document=document,
        model=document["model"],
        run=document["run"],
        ruler=document["ruler"],
        headline=views.headline(document),
        ladder=views.ladder(document),
        effective_length=views.effective_length(document),
        effective_length_note=views.effective_length_note(document),
        cost=views.cost(document),
        charts=views.score_charts(document, details),
        tables=tables.task_tables(document),
        few_samples=FEW_SAMPLES if any(map(is_rough, document["cases"])) else None,
        depths=tables.depth_tables(document),
        failures=failures,
        kinds=[kind for kind in views.KINDS if any(row["counts"][kind] for row in failures)],
        helmet=views.helmet_bars(document),
        frontier=frontier_findings(document.get("frontier")),
        gates=gates(document, details),
        notes=[note for note in (few_samples(document), seed_role(document)) if note],
        comparison=tables.comparison(document),
        likelihood=likelihood_section(document),
        lowest_cases=views.lowest_cases(document),
        samples=details.samples,
        data_sources=views.data_sources(document),
        confidence=details.confidence,
        data=embedded({"rows": asdict(details.samples)["rows"]}),
    )


def render(template: str, *, script: str = "", **values: Any) -> str:
    """Render a template with the shared style; the page's policy allows this style and script and nothing else."""
    style = f"{resource('style.css')}\n{shade_rules()}"
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
    environment.filters |= {
        "number": tables.number,
        "interval": tables.interval_text,
        "length": tables.short_length,
        "shown_verdict": shown_verdict,
    }
    environment.globals |= {
        "line_svg": line_svg,
        "evidence_svg": evidence_svg,
        "interval_svg": interval_svg,
        "shares_svg": shares_svg,
        "score_svg": score_svg,
        "swatch_svg": swatch_svg,
        "shades": range(0, SHADES + 1, 2),
    }
    return environment


def resource(name: str) -> str:
    """Return the text of a style, script or template of the pages."""
    return files("plugins.report.html").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
