"""Propose thresholds from the reports of accepted checkpoints: `python -m ci.calibrate REPORT...`.

Give the JSON reports in the order of the checkpoints. A proposed level is the lowest end of their intervals: the worst
checkpoint was still shown to reach it. The allowed drop is twice the largest fall from one accepted checkpoint to the
next, since a gate fails a model that is shown to have lost more than half of its drop. A comment beside every number
gives its evidence. The output is a thresholds file.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ci.suite_process import read_report
from fixtures.cli import CommandParser, print_line, report_wrong_use
from fixtures.lengths import format_length
from plugins.gates.hypotheses import RULER

ROUNDING_POINTS = 0.5
MIN_DROP_POINTS = 1.0
MIN_REPORTS = 3
Panel = tuple[str, int]


class CalibrationError(ValueError):
    """Reports that allow no proposal; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredScore:
    """A score with its confidence interval, all 0 to 100."""

    score: float
    low: float
    high: float


def propose(reports: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a thresholds file; raise CalibrationError for reports that do not fit together."""
    _check(reports)
    scores = [_panel_scores(report) for report in reports]
    shared = [panel for panel in scores[0] if all(panel in run for run in scores)]
    floors = _floors(reports)
    if not shared and not floors:
        raise CalibrationError("no length was measured in all reports; give runs of the same --lengths and -k")
    names = ", ".join(Path(report["model"]["path"]).name for report in reports)
    parts = [f"# Proposed from {len(reports)} runs of accepted checkpoints: {names}.", ""]
    parts += [*_regression(reports, scores, shared), *_effective_length(reports)]
    parts += [_level(panel, [run[panel] for run in scores]) for panel in shared]
    parts += floors
    return "\n".join(parts)


def _check(reports: Sequence[Mapping[str, Any]]) -> None:
    if len(reports) < MIN_REPORTS:
        raise CalibrationError(f"{len(reports)} reports do not show how much runs differ; give {MIN_REPORTS} or more")
    for name, subject in (("corpora", "texts"), ("prompts", "wording of prompts")):
        if len({report["run"][name] for report in reports}) > 1:
            raise CalibrationError(f"the reports differ in the {subject}; measure all with the same options")
    failed = next((case for report in reports for case in report["cases"] if case["error"]), None)
    if failed is not None:
        raise CalibrationError(f"{failed['id']} ended in an error ({failed['error']}); give reports without one")


def _panel_scores(report: Mapping[str, Any]) -> dict[Panel, MeasuredScore]:
    """Return the scores of RULER at the lengths with all its tasks, and of HELMET's categories, by panel."""
    helmet = report.get("helmet") or {"categories": {}, "intervals": {}}
    families = {RULER: (report["ruler"]["scores"], report["ruler"]["intervals"])} | {
        category: (scores, helmet["intervals"][category]) for category, scores in helmet["categories"].items()
    }
    return {
        (family, int(length)): MeasuredScore(score=score, low=bounds[length][0], high=bounds[length][1])
        for family, (scores, bounds) in families.items()
        for length, score in scores.items()
        if score is not None and bounds[length] is not None
    }


def _regression(
    reports: Sequence[Mapping[str, Any]], scores: Sequence[Mapping[Panel, MeasuredScore]], shared: Sequence[Panel]
) -> list[str]:
    """Return the [regression] table; comparisons sample by sample are preferred to differences of scores."""
    falls = [
        (before[panel].score - after[panel].score, panel)
        for before, after in itertools.pairwise(scores)
        for panel in shared
    ]
    source = "the scores of one run and the next"
    paired = [
        (-gate["measured"], (gate["name"], gate["length"]))
        for report in reports
        for gate in report["gates"]
        if gate["kind"] == "regression" and gate["measured"] is not None
    ]
    if paired:
        falls, source = paired, "comparisons sample by sample"
    if not falls:
        return []
    fall, (family, length) = max(falls)
    drop = max(MIN_DROP_POINTS, ROUNDING_POINTS * math.ceil(2 * max(fall, 0.0) / ROUNDING_POINTS))
    return [
        f"[regression]\n# {len(falls)} falls measured ({source}), {min(falls)[0]:+.1f} to {fall:+.1f} points; "
        f"the largest: {family}, {format_length(length)}.\ndrop = {drop:g}\n"
    ]


def _effective_length(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    reached = [report["ruler"]["effective_length"] for report in reports]
    known = [length for length in reached if length is not None]
    if len(known) < len(reached):
        return []
    return [
        f"# Reached by all: {', '.join(map(format_length, known))}.\n[[gate]]\n"
        f'name = "effective length"\nkind = "effective_length"\nabove = "reference"\n'
        f'at_least = "{format_length(min(known))}"\n'
    ]


def _level(panel: Panel, scores: Sequence[MeasuredScore]) -> str:
    family, length = panel
    worst = min(scores, key=lambda score: score.low)
    kind = 'kind = "level"' if family == RULER else f'kind = "category"\ncategory = "{family}"'
    return (
        f"# {len(scores)} runs: {min(run.score for run in scores):.1f} to {max(run.score for run in scores):.1f}; "
        f"the lowest interval: {worst.low:.1f} to {worst.high:.1f}.\n[[gate]]\n"
        f'name = "{family} at {format_length(length)}, as accepted"\n{kind}\nabove = {_below(worst.low):g}\n'
        f'lengths = ["{format_length(length)}"]\n'
    )


def _floors(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the [floor] table of all tasks that were never near 0.

    A floor holds at every length, so the weakest length decides it.
    """
    lows: dict[str, list[tuple[float, int]]] = {}
    for report in reports:
        for case in report["cases"]:
            if case["interval"] is not None:
                lows.setdefault(case["task"], []).append((case["interval"][0], case["length"]))
    worst = {task: min(task_lows) for task, task_lows in lows.items()}
    lines = [
        f"{task} = {_below(low):g}  # lowest end of {len(lows[task])} intervals, at {format_length(length)}"
        for task, (low, length) in worst.items()
        if _below(low) > 0
    ]
    return ["[floor]", *lines, ""] if lines else []


def _below(value: float) -> float:
    """Round down to half a point."""
    return ROUNDING_POINTS * math.floor(value / ROUNDING_POINTS)


def main(arguments: list[str] | None = None) -> int:
    """Print the proposal and return 0, or print one line to stderr and return 4."""
    parser = CommandParser(
        prog="python -m ci.calibrate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "reports",
        nargs="+",
        type=Path,
        metavar="REPORT",
        help="files of --report-json, in the order of the checkpoints",
    )
    paths = parser.parse_args(arguments).reports
    reports = {path: read_report(path) for path in paths}
    try:
        unread = next((path for path, report in reports.items() if report is None), None)
        if unread is not None:
            raise CalibrationError(f"{unread} is not a report of the suite; give files of --report-json")
        proposal = propose([report for report in reports.values() if report is not None])
    except CalibrationError as error:
        return report_wrong_use(str(error))
    for line in proposal.splitlines():
        print_line(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
