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

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import structs

from longctx.ci.gate.comparison import compare, power_lines
from longctx.ci.gate.load import Reading
from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.cli import CommandParser, output_problem, print_line, report_wrong_use
from longctx.fixtures.outside_files import absolute
from longctx.fixtures.shown_text import shown_columns, visible_data
from longctx.plugins.report.document import RunSummary, document
from longctx.plugins.report.terminal import terminal_summary, verdict_lines
from longctx.plugins.report.texts import report_text

REPORTS = {
    "--report-html": "write a page with all changed answers", "--report-md": "write a summary for a pull request",
    "--report-json": "write the report of a run", "--junitxml": "write a test for every gate and task",
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code."""
    parser = CommandParser(prog="longctx gate", description=__doc__, allow_abbrev=False)
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
    given = parser.parse_args(arguments)
    if given.scale is not None and not 0 < given.scale < float("inf"):
        return report_wrong_use(f"--scale: {given.scale} is no best score; write a number above 0, such as 100")
    outputs: dict[str, Path | None] = {flag: getattr(given, flag) for flag in REPORTS}
    files = {flag: path for flag, path in outputs.items() if path is not None}
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
        names = {flag[2:].replace("-", "_"): path for flag, path in files.items()}
        summary = compare(given.base, given.candidate, given.policy, reading, names)
    except ValueError as error:
        return report_wrong_use(str(error).replace("--thresholds:", "--policy:"))
    for line in power_lines(summary.evaluation):
        print_line(f"power      {line}")
    if not given.plan:
        return _report(summary, files)
    for note in summary.facts.notes if summary.facts else ():
        print_line(f"files      {note}")
    return 0


def _report(summary: RunSummary, files: Mapping[str, Path]) -> int:
    """Print the verdict, write the reports, and return the exit code."""
    report = document(summary)
    shown, documents = visible_data(report), {"--report-json": report}
    columns = shown_columns(sys.stdout.isatty())
    for line, _ in terminal_summary(shown, columns):
        print_line(line)
    verdict = shown.verdict
    for flag, path in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            text = report_text(flag, summary, documents.get(flag, shown))
            write_file(path, text.encode("utf-8", errors="replace"))
            print_line(f"report     {path}")
        except OSError as error:
            text = f"cannot write {path} ({error.strerror}); name a file in a folder that can be written"
            print_line(f"{flag}: {text}", sys.stderr)
            verdict = structs.replace(verdict, word="fail", exit_code=max(1, verdict.exit_code), reasons=(text,))
    for line, _ in verdict_lines(verdict, columns):
        print_line(line)
    exit_code: int = verdict.exit_code
    return exit_code
