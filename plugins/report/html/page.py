"""The page of one run: a single file with its style, script and data, which loads nothing from anywhere."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import chain, zip_longest
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup
from msgspec import structs

from longctx.fixtures.records import BaselineAnswer, Case, CaseResult, Outcome
from longctx.fixtures.records.report import JsonReport
from longctx.fixtures.shown_text import visible
from longctx.plugins.evidence.points import to_points
from longctx.plugins.report.charts import SHADES, WIDTH, chart, score_charts
from longctx.plugins.report.document import RunSummary
from longctx.plugins.report.sections.comparison import comparison_notes, difference_tables
from longctx.plugins.report.sections.engine import cost_text, invariance_table, notes_of, partial_note
from longctx.plugins.report.sections.gates import gate_table, run_verdict, seed_role, warning_texts
from longctx.plugins.report.sections.likelihood import finding_notes, likelihood_tables
from longctx.plugins.report.sections.ruler import effective_length_of, model_facts, ruler_series
from longctx.plugins.report.sections.scores import (
    at_confidence,
    depth_tables,
    failure_table,
    lowest_table,
    part_table,
    score_notes,
    score_tables,
    setting_series,
)
from longctx.plugins.report.sections.suites import frontier_notes, question_notes
from longctx.plugins.report.tables import short_length, tested_lengths

LOWEST_CASES = 12
# The samples that a page carries, within a limit of size.
BUDGET_BYTES = 5_000_000
RIGHT_PER_CASE = 3
ANSWER_CHARACTERS, BEGINNING_CHARACTERS = 600, 400
"""A longer answer is cut to its beginning and its end."""

REFERENCES = 12
REFERENCES_CHARACTERS = 480
EXCERPT_CHARACTERS = 480
# Markup could end the script element that holds the data, and older parsers take U+2028 and U+2029 for line ends.
ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}

# A sample as the page's script takes it.
SampleRow = dict[str, Any]


def page(document: JsonReport, summary: RunSummary, *, budget_bytes: int = BUDGET_BYTES) -> str:
    """Return the report as HTML. The page requests nothing, and no text of a model is markup in it.

    All texts of the document must be visible; Jinja and the SVG layer escape their markup. The samples of the page take
    `budget_bytes` at most.
    """
    measured = summary.evaluation.measured
    rows = sample_rows(measured.scope.cases, measured.results, budget_bytes)
    lengths = [short_length(length) for length in tested_lengths(document)]
    return render(
        "report.html.j2",
        script=resource("script.js"),
        title=f"{document.model.name}: long context",
        document=document,
        model_facts=model_facts(document.model),
        verdict=document.verdict or run_verdict(document),
        partial=partial_note(document),
        effective_length=effective_length_of(document),
        charts=score_charts(ruler_series(summary.evaluation), lengths),
        settings=[chart(name, group, lengths) for name, group in setting_series(document).items()],
        tables=score_tables(document),
        parts=part_table(document),
        score_notes=score_notes(document),
        at_confidence=at_confidence(document),
        depths=depth_tables(document),
        frontier=[*frontier_notes(document), *question_notes(document)],
        likelihoods=likelihood_tables(document),
        likelihood_findings=finding_notes(document),
        invariance=invariance_table(document.invariance or ()),
        gates=gate_table(document),
        server=notes_of(document),
        warnings=warning_texts(document),
        seed_role=seed_role(document),
        differences=difference_tables(document),
        comparison_notes=comparison_notes(document),
        failures=failure_table(document),
        lowest=lowest_table(document, LOWEST_CASES),
        cost=cost_text(document),
        shown_samples=len(rows),
        data=embedded({"rows": rows}),
    )


def render(template: str, *, script: str = "", **values: Any) -> str:
    """Render a template with the shared style. The page's policy allows this style, the script, and nothing else."""
    style = resource("style.css")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script) if script else 'none'}'; "
        "base-uri 'none'; form-action 'none'"
    )
    # Both come from this package, so they need no escaping.
    trusted = {"style": Markup(style), "script": Markup(script)}
    return environment().get_template(template).render(policy=policy, **trusted, **values)


def embedded(data: Any) -> Markup:
    """Return data as JSON in ASCII without any character of markup, so that no value can end the element it is in."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(ESCAPES))


@cache
def environment() -> Environment:
    loaded = Environment(
        loader=FunctionLoader(lambda name: resource(f"templates/{name}")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    loaded.globals |= {"shades": range(0, SHADES + 1, 2), "plot_width": WIDTH}
    return loaded


def resource(name: str) -> str:
    return files("longctx.plugins.report.html").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def sample_rows(cases: Sequence[Case], results: Mapping[str, CaseResult], budget_bytes: int) -> list[SampleRow]:
    """Return the rows that fit into the budget: wrong samples before right ones, then by case and index.

    The cases take turns, so every case gets its share of the budget.
    """
    by_case = [_rows_by_importance(results[case.id]) for case in cases if case.id in results]
    rows: list[SampleRow] = []
    size = 0
    for row in filter(None, chain.from_iterable(zip_longest(*by_case))):
        size += _size(row)
        if size > budget_bytes:
            break
        rows.append(row)
    order = {(case.task, case.length): index for index, case in enumerate(cases)}
    rows.sort(key=lambda row: (row["score"] == 100, order[row["task"], row["length"]], row["index"]))
    return rows


def _size(row: SampleRow) -> int:
    """Return the bytes of a row in the page with the comma after it. A character of markup takes six bytes."""
    text = json.dumps(row, separators=(",", ":"))
    markup = sum(text.count(character) for character in "<>&")
    return len(text) + 5 * markup + 1


def _rows_by_importance(result: CaseResult) -> list[SampleRow]:
    """Return the flipped samples, then the other wrong ones, then a few right ones, best with an excerpt."""
    answers = {answer.index: answer for answer in result.flipped}
    flipped, wrong, right = list[SampleRow](), list[SampleRow](), list[Outcome]()
    # The baseline may have been measured on fewer samples than the model.
    for outcome, baseline in zip_longest(result.outcomes, result.baseline[: len(result.outcomes)]):
        score = outcome.score.value
        if baseline is not None and baseline != score:
            row = _row(result.case, outcome)
            row["flip"] = _flip(baseline, answers.get(outcome.index))
            flipped.append(row)
        elif score < 1:
            wrong.append(_row(result.case, outcome))
        else:
            right.append(outcome)
    right.sort(key=lambda outcome: outcome.excerpt is None)
    for outcome in right[:RIGHT_PER_CASE]:
        wrong.append(_row(result.case, outcome))
    return [*flipped, *wrong]


def _row(case: Case, outcome: Outcome) -> SampleRow:
    """Return a sample in the form that the page's script takes. Scores are 0 to 100; absent values have no key.

    `credits` are the references' parts of the score, -1 where a reference has none; `more_references` counts those
    that are left out. `_answer` describes the keys of an answer.
    """
    score, references = outcome.score, outcome.references[:REFERENCES]
    longest = REFERENCES_CHARACTERS // max(1, len(references))
    row: SampleRow = {
        "task": case.task,
        "length": case.length,
        "index": outcome.index,
        "score": round(to_points(score.value), 2),
        "expected": [visible(reference, longest) for reference in references],
        "credits": [round(score.parts.get(reference, -1.0), 3) for reference in references],
        **_answer(outcome.generation.text),
    }
    if depths := [round(depth, 3) for depth in outcome.depths[:REFERENCES]]:
        row["depth"] = depths[0]
        if len(outcome.depths) > 1:
            row["depths"] = depths
    if len(outcome.references) > REFERENCES:
        row["more_references"] = len(outcome.references) - REFERENCES
    if score.failure:
        row["failure"] = score.failure
    if outcome.excerpt is not None:
        texts = structs.asdict(outcome.excerpt).items()
        row["excerpt"] = {name: visible(text, EXCERPT_CHARACTERS) for name, text in texts if text}
    return row


def _flip(score: float, answer: BaselineAnswer | None) -> SampleRow:
    """Return the baseline's score, and its answer if the journal has it."""
    flip: SampleRow = {"score": round(to_points(score), 2)}
    return flip if answer is None else flip | {**_answer(answer.text), "failure": answer.failure}


def _answer(text: str) -> dict[str, Any]:
    """Return an answer; of a long one the beginning, the `ending`, and how many characters are `omitted` between."""
    if len(text) <= ANSWER_CHARACTERS:
        return {"answer": visible(text)}
    # A model that thinks aloud answers at the end.
    ending = text[BEGINNING_CHARACTERS - ANSWER_CHARACTERS :]
    parts = {"answer": visible(text, BEGINNING_CHARACTERS), "ending": visible(ending, len(ending))}
    return parts | {"omitted": len(text) - ANSWER_CHARACTERS}
