"""Compare the finished results of a candidate with those of a base, and gate the change.

    longctx gate base/ candidate/
    longctx gate base/samples_gsm8k_*.jsonl candidate/samples_gsm8k_*.jsonl --metric exact_match,strict-match
    longctx gate base.csv candidate.csv --policy gates.toml --report-html gate.html

BASE and CANDIDATE are files, folders or globs of one program each: samples (--samples-jsonl) or reports of longctx,
samples_*.jsonl of lm-evaluation-harness, logs of inspect_ai, results of NeMo Evaluator or HELMET, predictions of RULER,
or CSV and JSONL with the columns id, score and, where known, task, length, cluster (the text that several samples are
about), prompt, expected and answer. Scores run from 0 to 1, or to --scale. No model is needed.

The verdict is that of a run with --baseline. A policy is a file like thresholds.toml, of which [verdict], [regression]
and the gates of the kinds "regression" and "change" count.

Exit codes: 0 all blocking gates hold, 1 one does not, 4 wrong use or results that cannot be compared.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import msgspec
from msgspec import structs

from longctx.ci.gate.comparison import Comparison, compare, power_lines, summarize
from longctx.ci.gate.load import Reading
from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.cli import CommandParser, print_line, report_wrong_use
from longctx.fixtures.outside_files import absolute
from longctx.fixtures.records.report import JsonReport, ReportCase, ReportGate
from longctx.fixtures.shown_text import shown_columns, visible_data
from longctx.plugins.report.document import RunSummary, document
from longctx.plugins.report.terminal import terminal_summary, verdict_lines

FAULTS = {"fail": "failure", "error": "error"}
REPORTS = ("report_html", "report_md", "report_json", "junitxml")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code."""
    parser = CommandParser(
        prog="longctx gate", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("base", metavar="BASE", help="the accepted results: a file, a folder or a glob")
    parser.add_argument("candidate", metavar="CANDIDATE", help="the results to gate: a file, a folder or a glob")
    parser.add_argument(
        "--policy", "--thresholds", metavar="FILE", help="the allowed losses (default: 2 points of the mean)"
    )
    parser.add_argument(
        "--metric", action="append", default=[], metavar="NAME",
        help="the metric to compare; of several, each task takes the first that it has",
    )  # fmt: skip
    parser.add_argument("--scale", type=float, metavar="N", help="the best score (default: 1)")
    parser.add_argument("--lower-is-better", action="store_true", help="less is better of the metric, as of an error")
    parser.add_argument("--plan", action="store_true", help="print the pairs and the loss that they show, and end")
    parser.add_argument("--report-html", type=Path, metavar="FILE", help="write a page with all changed answers")
    parser.add_argument("--report-md", type=Path, metavar="FILE", help="write a summary for a pull request")
    parser.add_argument("--report-json", type=Path, metavar="FILE", help="write the report of a run")
    parser.add_argument("--junitxml", type=Path, metavar="FILE", help="write a test for every gate and task")
    given = parser.parse_args(list(sys.argv[1:] if arguments is None else arguments))
    if given.scale is not None and not 0 < given.scale < float("inf"):
        return report_wrong_use(f"--scale: {given.scale} is no best score; write a number above 0, such as 100")
    files = {name: absolute(path) for name in REPORTS if (path := getattr(given, name)) is not None}
    for name, path in files.items():
        if path.is_dir():
            return report_wrong_use(f"--{name.replace('_', '-')}: {path} is a directory; name a file")
        if path in (absolute(given.base), absolute(given.candidate)):
            return report_wrong_use(f"--{name.replace('_', '-')}: {path} has the results; name another file")
    reading = Reading(metrics=tuple(given.metric), scale=given.scale, lower_is_better=given.lower_is_better)
    try:
        comparison = compare(given.base, given.candidate, given.policy, reading)
    except ValueError as error:
        return report_wrong_use(str(error).replace("--thresholds:", "--policy:"))
    for line in power_lines(comparison.evaluation):
        print_line(f"power      {line}")
    if given.plan:
        for note in comparison.notes:
            print_line(f"files      {note}")
        return 0
    return _report(comparison, files)


def _report(comparison: Comparison, files: dict[str, Path]) -> int:
    """Print the verdict, write the reports, and return the exit code."""
    summary = summarize(comparison, files)
    report = document(summary)
    shown = visible_data(report)
    columns = shown_columns(sys.stdout.isatty())
    for line, _ in terminal_summary(shown, columns):
        print_line(line)
    verdict = shown.verdict
    for name, path in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, _content(name, summary, report, shown))
            print_line(f"report     {path}")
        except OSError as error:
            text = f"cannot write {path} ({error.strerror}); name a file in a folder that can be written"
            print_line(f"--{name.replace('_', '-')}: {text}", sys.stderr)
            verdict = structs.replace(verdict, word="fail", exit_code=max(1, verdict.exit_code), reasons=(text,))
    for line, _ in verdict_lines(verdict, columns):
        print_line(line)
    exit_code: int = verdict.exit_code
    return exit_code


def _content(name: str, summary: RunSummary, report: JsonReport, shown: JsonReport) -> bytes:
    """Return the content of a report."""
    match name:
        case "report_html":
            from longctx.plugins.report.html.page import page

            text = page(shown, summary)
        case "report_md":
            from longctx.plugins.report.markdown import markdown

            text = markdown(shown)
        case "report_json":
            text = json.dumps(msgspec.to_builtins(report), indent=1, allow_nan=False) + "\n"
        case _:
            return _junit(shown)
    return text.encode("utf-8", errors="replace")


def _junit(document: JsonReport) -> bytes:
    """Return a JUnit file with a test for every gate and case; all texts of the document must be visible."""
    verdict = document.verdict
    suite = ElementTree.Element("testsuite", name="longctx gate", time=f"{document.run.seconds:.3f}")
    facts = {} if verdict is None else {"run.verdict": verdict.word, "run.exit_code": verdict.exit_code}
    _add_properties(suite, {"model.name": document.model.name, **facts})
    for gate in document.gates:
        word = gate.verdict if gate.fails or gate.verdict in ("pass", "error") else "not failed"
        _add_test(suite, f"gate[{gate.name}]", "fail" if gate.fails and word != "error" else word, gate.reason, gate)
    for case in document.cases:
        word = case.verdict if case.fails else "pass"
        _add_test(suite, case.id, word, case.error or case.decided_by or "", case)
    for kind, names in (("tests", "testcase"), ("failures", "testcase/failure"), ("errors", "testcase/error")):
        suite.set(kind, str(len(suite.findall(names))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text


def _add_test(suite: ElementTree.Element, name: str, word: str, reason: str, facts: ReportGate | ReportCase) -> None:
    test = ElementTree.SubElement(suite, "testcase", classname="longctx.gate", name=name)
    values = structs.asdict(facts).items()
    _add_properties(test, {key: value for key, value in values if isinstance(value, str | int | float)})
    if word in FAULTS:
        ElementTree.SubElement(test, FAULTS[word], message=reason)
    elif word != "pass":
        ElementTree.SubElement(test, "skipped", message=reason)


def _add_properties(element: ElementTree.Element, values: dict[str, object]) -> None:
    properties = ElementTree.SubElement(element, "properties")
    for name, value in values.items():
        ElementTree.SubElement(properties, "property", name=name, value=str(value))
