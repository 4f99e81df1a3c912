"""Propose thresholds from the reports of accepted checkpoints: `longctx calibrate REPORT...`.

With --yardstick REPORT instead: write a yardstick for `pytest --yardstick FILE`, the scores of a reference checkpoint
that was measured on the same text as the checkpoints to come.

Give the JSON reports in the order of the checkpoints. A proposed level is the lowest end of their intervals: the worst
checkpoint was still shown to reach it. The allowed drop is twice the largest fall from one accepted checkpoint to the
next, since a gate fails a model that is shown to have lost more than half of its drop. A difference whose interval is
wider than the drop it would propose is noise, and is left out. A comment beside every number gives its evidence. The
output is a thresholds file.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ci.accepted_scores import MeasuredScore, Panel, panel_scores
from ci.own_yardstick import yardstick_text
from ci.report_form import parse_report
from fixtures.cli import CommandParser, print_line, report_wrong_use
from fixtures.lengths import format_length
from fixtures.outside_files import read_outside
from fixtures.shown_text import one_line, visible_line
from plugins.gates.hypotheses import RULER

ROUNDING_POINTS = 0.5
MIN_DROP_POINTS = 1.0
MIN_REPORTS = 3


class CalibrationError(ValueError):
    """Reports that allow no proposal; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fall:
    """The loss from one run to the next, in points; negative for a gain."""

    points: float
    width: float
    """The width of its confidence interval."""
    place: str
    """The panel it was measured on."""

    @property
    def drop(self) -> float:
        """The drop that would allow this fall."""
        return max(MIN_DROP_POINTS, ROUNDING_POINTS * math.ceil(2 * max(self.points, 0.0) / ROUNDING_POINTS))

    @property
    def is_noise(self) -> bool:
        """True if there may have been a loss, but the difference is not known to within the drop."""
        return self.width > self.drop and self.points + self.width / 2 > 0


def propose(reports: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a thresholds file; raise CalibrationError for reports that do not fit together."""
    _check(reports)
    scores = panel_scores(reports)
    shared = [panel for panel in scores[0] if all(panel in run for run in scores)]
    floors = _floors(reports)
    if not shared and not floors:
        raise CalibrationError("no length was measured in all reports; give runs of the same --lengths and -k")
    names = visible_line(", ".join(Path(report["model"]["path"]).name for report in reports))
    parts = [f"# Proposed from {len(reports)} runs of accepted checkpoints: {names}.", ""]
    parts += [*_regression(reports, scores, shared), *_effective_length(reports)]
    parts += [_level(panel, [run[panel] for run in scores]) for panel in shared if _threshold(panel, scores) > 0]
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


def _regression(
    reports: Sequence[Mapping[str, Any]], scores: Sequence[Mapping[Panel, MeasuredScore]], shared: Sequence[Panel]
) -> list[str]:
    """Return the [regression] table; comparisons sample by sample are preferred to differences of scores."""
    falls, source = _paired_falls(reports), "comparisons sample by sample"
    if not falls:
        falls, source = _score_falls(scores, shared), "the scores of one run and the next"
    if not falls:
        return []
    known = [fall for fall in falls if not fall.is_noise]
    left_out = f"{len(falls) - len(known)} of {len(falls)} differences ({source}) have intervals wider than the drop"
    if not known:
        narrowest = min(fall.width for fall in falls)
        return [
            f"# No drop is proposed: {left_out} that they would propose.\n"
            f"# The narrowest is {narrowest:.1f} points wide; measure the runs on more samples, as with --full.\n"
        ]
    largest = max(known, key=lambda fall: fall.points)
    smallest = min(fall.points for fall in known)
    note = "" if len(known) == len(falls) else f"# Left out as noise: {left_out} that they would propose.\n"
    return [
        f"[regression]\n# {len(known)} falls measured ({source}), {smallest:+.1f} to {largest.points:+.1f} points; "
        f"the largest: {largest.place}.\n{note}drop = {largest.drop:g}\n"
    ]


def _paired_falls(reports: Sequence[Mapping[str, Any]]) -> list[Fall]:
    return [
        Fall(
            points=-gate["measured"],
            width=gate["interval"][1] - gate["interval"][0],
            place=f"{gate['name']}, {format_length(gate['length'])}",
        )
        for report in reports
        for gate in report["gates"]
        if gate["kind"] == "regression" and gate["measured"] is not None and gate["interval"] is not None
    ]


def _score_falls(scores: Sequence[Mapping[Panel, MeasuredScore]], shared: Sequence[Panel]) -> list[Fall]:
    return [
        Fall(
            points=before[panel].score - after[panel].score,
            width=before[panel].high - before[panel].low + after[panel].high - after[panel].low,
            place=f"{panel.name}, {format_length(panel.length)}",
        )
        for before, after in itertools.pairwise(scores)
        for panel in shared
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
    length = format_length(panel.length)
    worst = min(scores, key=lambda score: score.low)
    kind = f'kind = "category"\ncategory = "{panel.family}"'
    if panel.tasks:
        kind = f'kind = "level"\ntasks = {json.dumps(panel.tasks)}'
    elif panel.family == RULER:
        kind = 'kind = "level"'
    return (
        f"# {len(scores)} runs: {min(run.score for run in scores):.1f} to {max(run.score for run in scores):.1f}; "
        f"the lowest interval: {worst.low:.1f} to {worst.high:.1f}.\n[[gate]]\n"
        f'name = "{panel.name} at {length}, as accepted"\n{kind}\nabove = {_threshold_of(scores):g}\n'
        f'lengths = ["{length}"]\n'
    )


def _threshold(panel: Panel, scores: Sequence[Mapping[Panel, MeasuredScore]]) -> float:
    return _threshold_of([run[panel] for run in scores])


def _threshold_of(scores: Sequence[MeasuredScore]) -> float:
    """Return the threshold that all runs reach: a score must be above it, so it is below a score that is known."""
    threshold = _below(min(score.low for score in scores))
    return threshold if threshold < min(score.score for score in scores) else threshold - ROUNDING_POINTS


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


def _read(path: Path) -> Mapping[str, Any]:
    try:
        return parse_report(read_outside(path))
    except (OSError, ValueError) as error:
        reason = one_line(getattr(error, "strerror", None) or str(error), 120)
        raise CalibrationError(
            f"{path} is not a report of the suite ({reason}); give files of --report-json"
        ) from error


def _read_all(paths: Sequence[Path]) -> list[Mapping[str, Any]]:
    return list({path: _read(path) for path in paths}.values())


def _yardstick(path: Path) -> str:
    try:
        return yardstick_text(_read(path))
    except ValueError as error:
        raise CalibrationError(f"--yardstick: {path}: {error}") from error


def main(arguments: list[str] | None = None) -> int:
    """Print the proposal and return 0, or print one line to stderr and return 4."""
    parser = CommandParser(
        prog="longctx calibrate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "reports",
        nargs="*",
        type=Path,
        metavar="REPORT",
        help="files of --report-json, in the order of the checkpoints",
    )
    parser.add_argument("--yardstick", type=Path, metavar="REPORT", help="report of a reference checkpoint")
    options = parser.parse_args(arguments)
    if (options.yardstick is None) != bool(options.reports):
        parser.error("give either reports of accepted checkpoints or --yardstick REPORT")
    try:
        text = _yardstick(options.yardstick) if options.yardstick else propose(_read_all(options.reports))
    except CalibrationError as error:
        return report_wrong_use(str(error))
    for line in text.splitlines():
        print_line(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
