"""The content of the files that a run and a comparison of finished results write alike."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import msgspec
from msgspec import Struct, structs

from longctx.fixtures.records import Case, CaseResult, Outcome
from longctx.fixtures.records.report import JsonReport
from longctx.plugins.evidence.points import to_points
from longctx.plugins.report.document import RunSummary
from longctx.plugins.report.html.page import page
from longctx.plugins.report.markdown import markdown

# The element of a test by its verdict; any other verdict is skipped.
OUTCOMES = {"pass": "", "fail": "failure", "error": "error"}


def report_text(flag: str, summary: RunSummary, document: JsonReport) -> str:
    """Return the content of the file of --report-json, --report-md, --report-html, or --junitxml without pytest.

    JSON is ASCII; raises ValueError for a number that it cannot represent.
    """
    match flag:
        case "--report-json":
            return json.dumps(msgspec.to_builtins(document), indent=1, allow_nan=False) + "\n"
        case "--junitxml":
            return _junit(document)
        case "--report-md":
            return markdown(document)
        case _:
            return page(document, summary)


def _junit(document: JsonReport) -> str:
    """Return a JUnit file with a test for every gate and case; all texts of the document must be visible."""
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", name="longctx gate", time=f"{document.run.seconds:.3f}")
    for gate in document.gates:
        word: str = "not failed" if gate.verdict == "fail" else gate.verdict
        if gate.fails and word != "error":
            word = "fail"
        _add_test(suite, f"gate[{gate.name}]", gate, OUTCOMES.get(word, "skipped"), gate.reason)
    for case in document.cases:
        outcome = OUTCOMES.get(case.verdict, "skipped") if case.fails else ""
        _add_test(suite, case.id, case, outcome, case.error or case.decided_by or "")
    counts = Counter(element.tag for element in suite.iter())
    tags = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}
    for attribute, tag in tags.items():
        suite.set(attribute, str(counts[tag]))
    return str(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True), "utf-8")


def _add_test(suite: ElementTree.Element, name: str, record: Struct, outcome: str, reason: str) -> None:
    test = ElementTree.SubElement(suite, "testcase", classname="longctx.gate", name=name)
    properties = ElementTree.SubElement(test, "properties")
    for key, value in structs.asdict(record).items():
        if isinstance(value, str | int | float):
            ElementTree.SubElement(properties, "property", name=key, value=str(value))
    if outcome:
        ElementTree.SubElement(test, outcome, message=reason)


def sample_lines(summary: RunSummary) -> Iterator[str]:
    """Yield a line of JSON for each sample that the verdicts rest on, by case and index. Scores are 0 to 100."""
    run, checkpoint = summary.run, summary.run.checkpoint
    common = {"model": checkpoint.name, "fingerprint": checkpoint.fingerprint, "seed": run.options.seed}
    for case in run.cases:
        result = summary.evaluation.measured.results.get(case.id)
        for line in _lines_of(result) if result else ():
            yield json.dumps({**common, **line}, allow_nan=False) + "\n"


def _lines_of(result: CaseResult) -> list[dict[str, Any]]:
    answers = {answer.index: answer.text for answer in result.flipped}
    scores = {}
    # The baseline may have been measured on fewer samples than the model.
    for outcome, score in zip(result.outcomes, result.baseline, strict=False):
        scores[outcome.index] = to_points(score)
    lines = []
    for outcome in sorted(result.outcomes, key=lambda outcome: outcome.index):
        line = _record(result.case, outcome)
        line["baseline_score"] = scores.get(outcome.index)
        line["baseline_answer"] = answers.get(outcome.index)
        lines.append(line)
    return lines


def _record(case: Case, outcome: Outcome) -> dict[str, Any]:
    """Return one sample; None stands for everything that is not known."""
    generation = msgspec.to_builtins(outcome.generation)
    return {
        "case": case.id,
        **{name: getattr(case, name) for name in ("suite", "category", "task", "length", "source", "version")},
        "planned": case.samples,
        "group": case.group,
        "haystack": case.haystack(outcome.index),
        "shared_text": bool(case.texts),
        "index": outcome.index,
        "score": to_points(outcome.score.value),
        "parts": dict(outcome.score.parts),
        "failure": outcome.score.failure,
        "answer": generation.pop("text"),
        "references": outcome.references,
        "depths": outcome.depths,
        "excerpt": None if outcome.excerpt is None else msgspec.to_builtins(outcome.excerpt),
        **generation,
    }
