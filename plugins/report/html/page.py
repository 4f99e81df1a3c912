"""The page of one run: a single file with its style, script and data, which loads nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from longctx.fixtures.records.report import JsonReport
from longctx.plugins.report.charts.bars import score_svg, shares_svg, swatch_svg
from longctx.plugins.report.charts.colours import SHADES, shade_rules
from longctx.plugins.report.charts.evidence import evidence_svg
from longctx.plugins.report.charts.intervals import interval_svg
from longctx.plugins.report.charts.lines import line_svg
from longctx.plugins.report.formats import both_ends, short_length, shown_number
from longctx.plugins.report.layout import SECTIONS
from longctx.plugins.report.summary import Details
from longctx.plugins.verdicts.evaluate import shown_verdict

# Markup could end the script element that holds the data, and older parsers take U+2028 and U+2029 for line ends.
ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def page(document: JsonReport, details: Details) -> str:
    """Return the report as HTML. The page requests nothing, and no text of a model is markup in it.

    All texts of the document must be visible; Jinja and the SVG layer escape their markup.
    """
    values: dict[str, Any] = {}
    for section in SECTIONS:
        values |= {} if section.page is None else section.page(document, details)
    counts = Counter(case.source for case in document.cases)
    directory = document.run.options.get("data_dir")
    places = {"archive": "generated text", "published": f"published data{f' in {directory}' if directory else ''}"}
    return render(
        "report.html.j2",
        script=resource("script.js"),
        title=f"{document.model.name}: long context",
        document=document,
        model=document.model,
        run=document.run,
        ruler=document.ruler,
        **values,
        samples=details.samples,
        data_sources=[
            f"{places.get(source, source)}: {count} {'case' if count == 1 else 'cases'}"
            for source, count in counts.items()
        ],
        confidence=details.confidence,
        data=embedded({"rows": asdict(details.samples)["rows"]}),
    )


def render(template: str, *, script: str = "", chart_style: str = "", **values: Any) -> str:
    """Render a template with the shared style.

    The page's policy allows this style, the script, the style in a chart, and nothing else.
    """
    style = f"{resource('style.css')}\n{shade_rules()}"
    styles = " ".join(f"'{_hash(text)}'" for text in (style, chart_style) if text)
    policy = (
        f"default-src 'none'; style-src {styles}; script-src '{_hash(script) if script else 'none'}'; "
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
        "number": shown_number,
        "interval": both_ends,
        "length": short_length,
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
    return files("longctx.plugins.report.html").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
