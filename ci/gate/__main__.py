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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from longctx.ci.gate.comparison import Comparison, compare, power_lines, summarize
from longctx.ci.gate.load import Reading
from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.cli import CommandParser, output_problem, print_line, report_wrong_use
from longctx.fixtures.outside_files import absolute
from longctx.fixtures.records.report import JsonReport, ReportCase, ReportGate
from longctx.fixtures.shown_text import shown_columns, visible_data
from longctx.plugins.report.document import RunSummary, document
from longctx.plugins.report.terminal import terminal_summary, verdict_lines

# The element of a test by its verdict; any other verdict is skipped.
OUTCOMES = {"pass": "", "fail": "failure", "error": "error"}
REPORTS = {
    "--report-html": "write a page with all changed answers", "--report-md": "write a summary for a pull request",
    "--report-json": "write the report of a run", "--junitxml": "write a test for every gate and task",
}  # fmt: skip


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
    for flag, text in REPORTS.items():
        parser.add_argument(flag, dest=flag, type=absolute, metavar="FILE", help=text)
    given = parser.parse_args(list(sys.argv[1:] if arguments is None else arguments))
    if given.scale is not None and not 0 < given.scale < float("inf"):
        return report_wrong_use(f"--scale: {given.scale} is no best score; write a number above 0, such as 100")
    files: dict[str, Path] = {flag: path for flag, path in vars(given).items() if flag in REPORTS and path is not None}
    for flag, path in files.items():
        if path.is_dir():
            return report_wrong_use(f"{flag}: {path} is a directory; name a file")
    read = {absolute(given.base): "BASE", absolute(given.candidate): "CANDIDATE"}
    if given.policy is not None:
        read[absolute(given.policy)] = "--policy"
    if problem := output_problem(files, read):
        return report_wrong_use(problem)
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
    summary = summarize(comparison, {flag[2:].replace("-", "_"): path for flag, path in files.items()})
    report = document(summary)
    shown = visible_data(report)
    columns = shown_columns(sys.stdout.isatty())
    for line, _ in terminal_summary(shown, columns):
        print_line(line)
    verdict = shown.verdict
    for flag, path in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, _content(flag, summary, report, shown).encode("utf-8", errors="replace"))
            print_line(f"report     {path}")
        except OSError as error:
            text = f"cannot write {path} ({error.strerror}); name a file in a folder that can be written"
            print_line(f"{flag}: {text}", sys.stderr)
            verdict = structs.replace(verdict, word="fail", exit_code=max(1, verdict.exit_code), reasons=(text,))
    for line, _ in verdict_lines(verdict, columns):
        print_line(line)
    exit_code: int = verdict.exit_code
    return exit_code


def _content(flag: str, summary: RunSummary, report: JsonReport, shown: JsonReport) -> str:
    """Return the content of a report."""
    match flag:
        case "--report-html":
            from longctx.plugins.report.html.page import page

            return page(shown, summary)
        case "--report-md":
            from longctx.plugins.report.markdown import markdown

            return markdown(shown)
        case "--report-json":
            return json.dumps(msgspec.to_builtins(report), indent=1, allow_nan=False) + "\n"
        case _:
            return _junit(shown)


def _junit(document: JsonReport) -> str:
    """Return a JUnit file with a test for every gate and case; all texts of the document must be visible."""
    from xml.etree import ElementTree

    def add(parent: Any, tag: str, values: Mapping[str, object], **attributes: str) -> Any:
        element = ElementTree.SubElement(parent, tag, attributes)
        properties = ElementTree.SubElement(element, "properties")
        for key, value in values.items():
            if isinstance(value, str | int | float):
                ElementTree.SubElement(properties, "property", name=key, value=str(value))
        return element

    root, verdict = ElementTree.Element("testsuites"), document.verdict
    facts: dict[str, object] = {"model.name": document.model.name}
    if verdict is not None:
        facts |= {"run.verdict": verdict.word, "run.exit_code": verdict.exit_code}
    suite = add(root, "testsuite", facts, name="longctx gate", time=f"{document.run.seconds:.3f}")
    tests: list[tuple[str, str, str, ReportGate | ReportCase]] = []
    for gate in document.gates:
        word = "fail" if gate.fails else "pass" if gate.verdict == "pass" else "not failed"
        tests.append((f"gate[{gate.name}]", "error" if gate.verdict == "error" else word, gate.reason, gate))
    for case in document.cases:
        tests.append((case.id, case.verdict if case.fails else "pass", case.error or case.decided_by or "", case))
    for name, word, reason, record in tests:
        test = add(suite, "testcase", structs.asdict(record), classname="longctx.gate", name=name)
        if outcome := OUTCOMES.get(word, "skipped"):
            ElementTree.SubElement(test, outcome, message=reason)
    suite.set("tests", str(len(tests)))
    for outcome, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{outcome}"))))
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text.decode()
