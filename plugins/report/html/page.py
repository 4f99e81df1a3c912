"""One file that holds everything: style and script by their hashes, data as text, no address to load from."""

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

from plugins.report.charts import shade_rules
from plugins.report.details import Details
from plugins.report.document import FEW_SAMPLES, is_rough
from plugins.report.escape import visible
from plugins.report.html import tables, views

# What could end the block, or an old parser's line.
ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def page(document: Mapping[str, Any], details: Details) -> str:
    """The report as HTML: no request leaves it, and nothing that a model said is markup in it."""
    samples = asdict(details.samples)
    return render(
        "report.html.j2",
        script=_part("script.js"),
        title=f"{visible(document['model']['name'])}: long context",
        document=document,
        model=document["model"],
        run=document["run"],
        ruler=document["ruler"],
        headline=views.headline(document, details),
        ladder=views.ladder(document),
        effective=views.effective(document),
        cost=views.cost(document),
        charts=views.score_charts(document, details),
        tables=tables.task_tables(document),
        rough=FEW_SAMPLES if any(map(is_rough, document["cases"])) else None,
        depths=tables.depth_tables(document),
        failures=(failures := views.failures(document)),
        kinds=[kind for kind in views.KINDS if any(each["counts"][kind] for each in failures)],
        helmet=views.helmet_bars(document),
        gates=views.gates(document, details),
        comparison=tables.comparison(document),
        lowest=views.lowest(document),
        samples=details.samples,
        confidence=details.confidence,
        data=embedded({"rows": samples["rows"]}),
    )


def render(template: str, *, script: str = "", **values: Any) -> str:
    """A template with the shared style; its policy allows this style and this script and nothing else."""
    style = f"{_part('style.css')}\n{shade_rules()}"
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script) if script else 'none'}'; "
        "base-uri 'none'; form-action 'none'"
    )
    # Both are our own files.
    parts = {"style": Markup(style), "script": Markup(script)}
    return _environment().get_template(template).render(policy=policy, **parts, **values)


def embedded(data: Any) -> Markup:
    """JSON that nothing can break out of, whatever it says: ASCII, without the signs of markup."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(ESCAPES))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(lambda name: _part(f"templates/{name}")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": tables.number,
        "bounds": tables.bounds,
        "length": tables.short_length,
        "visible": visible,
        "kind": lambda name: f"k-{name.replace(' ', '-')}",
    }
    return environment


def _part(name: str) -> str:
    return files("plugins.report.html").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
