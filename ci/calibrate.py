"""Thresholds from evidence: `python -m ci.calibrate REPORT...` proposes gates from runs of accepted checkpoints.

Give the JSON reports in the order of the checkpoints. A level is what the worst of them was still shown
to reach: the lowest end of their intervals. The allowed drop is twice the largest fall from one accepted
checkpoint to the next, since a gate fails what is shown to have lost more than half of it. The evidence
stands beside each number, as a comment. What is printed is a thresholds file.
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
from fixtures.cli import CommandParser, report_wrong_use
from fixtures.lengths import format_length
from plugins.gates.hypotheses import RULER

STEP = 0.5
LEAST_DROP = 1.0
LEAST_REPORTS = 3
Panel = tuple[str, int]


class CalibrationError(ValueError):
    """Reports from which nothing can be proposed; one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A score with its interval, in points."""

    score: float
    low: float
    high: float


def propose(reports: Sequence[Mapping[str, Any]]) -> str:
    """A thresholds file as TOML; raises CalibrationError for reports that cannot be put together."""
    _check(reports)
    seen = [_panels(report) for report in reports]
    shared = [panel for panel in seen[0] if all(panel in each for each in seen)]
    floors = _floors(reports)
    if not shared and not floors:
        raise CalibrationError("no length was measured in all reports; give runs of the same --lengths and -k")
    names = ", ".join(Path(report["model"]["path"]).name for report in reports)
    parts = [f"# Proposed from {len(reports)} runs of accepted checkpoints: {names}.", ""]
    parts += [*_regression(reports, seen, shared), *_reach(reports)]
    parts += [_level(panel, [each[panel] for each in seen]) for panel in shared]
    parts += floors
    return "\n".join(parts)


def _check(reports: Sequence[Mapping[str, Any]]) -> None:
    if len(reports) < LEAST_REPORTS:
        raise CalibrationError(f"{len(reports)} reports say little of how runs differ; give {LEAST_REPORTS} or more")
    for name, what in (("corpora", "texts"), ("prompts", "wording of prompts")):
        if len({report["run"][name] for report in reports}) > 1:
            raise CalibrationError(f"the reports differ in the {what}; measure all with the same options")
    broken = next((case for report in reports for case in report["cases"] if case["error"]), None)
    if broken is not None:
        raise CalibrationError(f"{broken['id']} ended in an error ({broken['error']}); give reports without one")


def _panels(report: Mapping[str, Any]) -> dict[Panel, Seen]:
    """RULER at each length at which all its tasks were run, and each category of HELMET that was run."""
    helmet = report.get("helmet") or {"categories": {}, "intervals": {}}
    told = {RULER: (report["ruler"]["scores"], report["ruler"]["intervals"])} | {
        category: (scores, helmet["intervals"][category]) for category, scores in helmet["categories"].items()
    }
    return {
        (family, int(length)): Seen(score=score, low=bounds[length][0], high=bounds[length][1])
        for family, (scores, bounds) in told.items()
        for length, score in scores.items()
        if score is not None and bounds[length] is not None
    }


def _regression(
    reports: Sequence[Mapping[str, Any]], seen: Sequence[Mapping[Panel, Seen]], shared: Sequence[Panel]
) -> list[str]:
    falls = [
        (before[panel].score - after[panel].score, panel)
        for before, after in itertools.pairwise(seen)
        for panel in shared
    ]
    how = "the scores of one run and the next"
    paired = [
        (-gate["measured"], (gate["name"], gate["length"]))
        for report in reports
        for gate in report["gates"]
        if gate["kind"] == "regression" and gate["measured"] is not None
    ]
    if paired:
        falls, how = paired, "comparisons sample by sample"
    if not falls:
        return []
    fall, (family, length) = max(falls)
    drop = max(LEAST_DROP, STEP * math.ceil(2 * max(fall, 0.0) / STEP))
    return [
        f"[regression]\n# {len(falls)} falls seen ({how}), {min(falls)[0]:+.1f} to {fall:+.1f} points; the largest: "
        f"{family}, {format_length(length)}.\ndrop = {drop:g}\n"
    ]


def _reach(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    reached = [report["ruler"]["effective_length"] for report in reports]
    known = [length for length in reached if length is not None]
    if len(known) < len(reached):
        return []
    return [
        f"# Reached by all: {', '.join(map(format_length, known))}.\n[[gate]]\n"
        f'name = "effective length"\nkind = "effective_length"\nabove = "reference"\n'
        f'at_least = "{format_length(min(known))}"\n'
    ]


def _level(panel: Panel, seen: Sequence[Seen]) -> str:
    family, length = panel
    worst = min(seen, key=lambda each: each.low)
    kind = 'kind = "level"' if family == RULER else f'kind = "category"\ncategory = "{family}"'
    return (
        f"# {len(seen)} runs: {min(each.score for each in seen):.1f} to {max(each.score for each in seen):.1f}; "
        f"the lowest interval: {worst.low:.1f} to {worst.high:.1f}.\n[[gate]]\n"
        f'name = "{family} at {format_length(length)}, as accepted"\n{kind}\nabove = {_below(worst.low):g}\n'
        f'lengths = ["{format_length(length)}"]\n'
    )


def _floors(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of tasks that were never near 0; a floor holds at every length, so the weakest length sets it."""
    lows: dict[str, list[tuple[float, int]]] = {}
    for report in reports:
        for case in report["cases"]:
            if case["interval"] is not None:
                lows.setdefault(case["task"], []).append((case["interval"][0], case["length"]))
    worst = {task: min(found) for task, found in lows.items()}
    lines = [
        f"{task} = {_below(low):g}  # lowest end of {len(lows[task])} intervals, at {format_length(length)}"
        for task, (low, length) in worst.items()
        if _below(low) > 0
    ]
    return ["[floor]", *lines, ""] if lines else []


def _below(value: float) -> float:
    return STEP * math.floor(value / STEP)


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, or 4 with one line."""
    parser = CommandParser(
        prog="python -m ci.calibrate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reports", nargs="+", type=Path, metavar="REPORT", help="files of --report-json, in order")
    given = parser.parse_args(arguments)
    read = {path: read_report(path) for path in given.reports}
    try:
        unread = next((path for path, report in read.items() if report is None), None)
        if unread is not None:
            raise CalibrationError(f"{unread} is not a report of the suite; give files of --report-json")
        sys.stdout.write(propose([report for report in read.values() if report is not None]))
    except CalibrationError as error:
        return report_wrong_use(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
