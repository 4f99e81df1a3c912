"""Propose thresholds from the reports of accepted checkpoints: `longctx thresholds REPORT...`.

With --yardstick REPORT instead: write a yardstick for `longctx run --yardstick FILE`, the scores of a reference
checkpoint that was measured on the same text as the checkpoints to come.

A proposed level is the lowest end of the intervals of all reports: the worst checkpoint was still shown to reach it.
The allowed drop is twice the largest loss of an accepted checkpoint against its --baseline, such as the anchor of a
watch, since a gate fails a model that is shown to have lost more than half of its drop. A difference whose interval is
wider than the drop it would propose is noise, and is left out. A comment beside every number gives its evidence. The
output is a thresholds file.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from longctx.fixtures.cli import CommandParser, print_line, report_wrong_use
from longctx.fixtures.lengths import format_length
from longctx.fixtures.records import family_of
from longctx.fixtures.records.report import JsonReport, ReportFileError, read_report_file
from longctx.fixtures.shown_text import visible_line
from longctx.plugins.thresholds.records import CATEGORIES

RULER = family_of("ruler", "")
ROUNDING_POINTS = 0.5
MIN_DROP_POINTS = 1.0
MIN_REPORTS = 3
# RULER's own yardstick is a score at this length.
YARDSTICK_LENGTH = 4096
# A gate requires more than the yardstick's score, and no model has more than 100.
HIGHEST_SCORE = 99.99


class _ProposalError(ValueError):
    """Reports that allow no proposal; the message is one line."""


_Panel = tuple[str, int]
"""A family, and a length in tokens."""


class _Score(NamedTuple):
    """A score with its confidence interval, all 0 to 100."""

    score: float
    low: float
    high: float


class _Fall(NamedTuple):
    """The loss of a run against its baseline, in points; negative for a gain."""

    points: float
    width: float
    """The width of its confidence interval."""
    place: str
    """The gate it was measured by."""

    @property
    def drop(self) -> float:
        """The drop that would allow this fall."""
        return max(MIN_DROP_POINTS, -_below(-2 * self.points))

    @property
    def is_noise(self) -> bool:
        """True if there may have been a loss, but the difference is not known to within the drop."""
        return self.width > self.drop and self.points + self.width / 2 > 0


def propose(reports: Sequence[JsonReport]) -> str:
    """Return the text of a thresholds file; raise ProposalError for reports that do not fit together."""
    _check(reports)
    panels = _shared_scores(reports)
    floors = _floors(reports)
    if not panels and not floors:
        raise _ProposalError("no length was measured in all reports; give runs of the same --lengths and -k")
    names = visible_line(", ".join(Path(report.model.path).name for report in reports))
    parts = [f"# Proposed from {len(reports)} runs of accepted checkpoints: {names}.", ""]
    parts += _regression(reports)
    reached = [report.ruler.effective_length for report in reports]
    known = [length for length in reached if length is not None]
    if len(known) == len(reached):
        parts += [
            f"# Reached by all: {', '.join(map(format_length, known))}.", "[[gate]]", 'name = "effective length"',
            'kind = "effective_length"', 'above = "reference"', f'at_least = "{format_length(min(known))}"', "",
        ]  # fmt: skip
    for panel, scores in panels.items():
        parts += _level(panel, scores)
    return "\n".join([*parts, *floors])


def _check(reports: Sequence[JsonReport]) -> None:
    if len(reports) < MIN_REPORTS:
        raise _ProposalError(f"{len(reports)} reports do not show how much runs differ; give {MIN_REPORTS} or more")
    for name, subject in (("corpora", "texts"), ("prompts", "wording of prompts")):
        if len({getattr(report.run, name) for report in reports}) > 1:
            raise _ProposalError(f"the reports differ in the {subject}; measure all with the same options")
    for report in reports:
        for case in report.cases:
            if case.error:
                raise _ProposalError(f"{case.id} ended in an error ({case.error}); give reports without one")


def _shared_scores(reports: Sequence[JsonReport]) -> dict[_Panel, list[_Score]]:
    runs = [_family_scores(report) for report in reports]
    return {panel: [run[panel] for run in runs] for panel in runs[0] if all(panel in run for run in runs)}


def _family_scores(report: JsonReport) -> dict[_Panel, _Score]:
    """Return the scores of RULER at the lengths with all its tasks, and of HELMET's categories, by panel."""
    tables = {RULER: (report.ruler.scores, report.ruler.intervals)}
    if report.helmet is not None:
        for category in CATEGORIES:
            if category in report.helmet.categories:
                tables[category] = report.helmet.categories[category], report.helmet.intervals.get(category, {})
    panels: dict[_Panel, _Score] = {}
    for family, (scores, intervals) in tables.items():
        for length, score in scores.items():
            interval = intervals.get(length)
            if score is not None and interval is not None:
                panels[family, int(length)] = _Score(score, *interval)
    return panels


def _regression(reports: Sequence[JsonReport]) -> list[str]:
    falls = _falls(reports)
    if not falls:
        return ["# No drop is proposed: no run compares with a --baseline, as those of a watch do.", ""]
    known = sorted(fall for fall in falls if not fall.is_noise)
    noise = (
        f"{len(falls) - len(known)} of {len(falls)} differences have intervals wider than the drop they would propose"
    )
    if not known:
        return [f"# No drop is proposed: {noise}; measure the runs on more samples, as with --full.", ""]
    smallest, largest = known[0], known[-1]
    measured = f"{len(known)} falls measured, {smallest.points:+.1f} to {largest.points:+.1f} points"
    lines = ["[regression]", f"# {measured}; the largest: {largest.place}."]
    if len(known) < len(falls):
        lines.append(f"# Left out as noise: {noise}.")
    return [*lines, f"drop = {largest.drop:g}", ""]


def _falls(reports: Sequence[JsonReport]) -> list[_Fall]:
    falls = []
    for gate in (gate for report in reports for gate in report.gates):
        is_whole = gate.kind == "regression" and gate.name.startswith("regression")
        if is_whole and gate.measured is not None and gate.interval is not None:
            low, high = gate.interval
            place = f"{gate.name}, {format_length(gate.length)}" if gate.length else gate.name
            falls.append(_Fall(-gate.measured, high - low, place))
    return falls


def _level(panel: _Panel, scores: Sequence[_Score]) -> list[str]:
    """Return the gate whose threshold all runs reach; nothing if that is 0."""
    family, length = panel[0], format_length(panel[1])
    lowest, highest = min(score.score for score in scores), max(score.score for score in scores)
    worst = min(scores, key=lambda score: score.low)
    threshold = _below(worst.low)
    if threshold >= lowest:
        # A score must be above it.
        threshold -= ROUNDING_POINTS
    if threshold <= 0:
        return []
    kinds = ['kind = "level"'] if family == RULER else ['kind = "category"', f'category = "{family}"']
    evidence = f"{lowest:.1f} to {highest:.1f}; the lowest interval: {worst.low:.1f} to {worst.high:.1f}"
    return [
        f"# {len(scores)} runs: {evidence}.", "[[gate]]", f'name = "{family} at {length}, as accepted"', *kinds,
        f"above = {threshold:g}", f'lengths = ["{length}"]', "",
    ]  # fmt: skip


def _floors(reports: Sequence[JsonReport]) -> list[str]:
    """Return the [floor] table of tasks that were never near 0; a floor holds at all lengths: the weakest decides."""
    lows: dict[str, list[tuple[float, int]]] = {}
    for case in (case for report in reports for case in report.cases):
        if case.interval is not None:
            lows.setdefault(case.task, []).append((case.interval[0], case.length))
    lines = []
    for task, of_task in lows.items():
        low, length = min(of_task)
        if _below(low) > 0:
            evidence = f"lowest end of {len(of_task)} intervals, at {format_length(length)}"
            lines.append(f"{task} = {_below(low):g}  # {evidence}")
    return ["[floor]", *lines, ""] if lines else []


def _below(value: float) -> float:
    """Round down to half a point."""
    return ROUNDING_POINTS * math.floor(value / ROUNDING_POINTS)


def _yardstick_text(path: Path) -> str:
    """Return the text of a yardstick file: RULER's mean and aspects at 4K, or at the shortest length with all tasks.

    Raises ReportFileError, and ProposalError for a report without such a length.
    """
    report = read_report_file(path)
    means = {int(length): score for length, score in report.ruler.scores.items() if score is not None}
    if not means:
        raise _ProposalError(
            f"--yardstick: {path}: the report has no length with all tasks of RULER; "
            "measure the reference checkpoint without -k"
        )
    length = YARDSTICK_LENGTH if YARDSTICK_LENGTH in means else min(means)
    scores = {"mean": means[length]}
    for aspect, by_length in report.ruler.aspects.items():
        score = by_length[str(length)]
        if score is not None:
            scores[aspect] = score
    source = f"{report.model.name} at {format_length(length)}, seed {report.run.seed}"
    texts = f"{report.run.corpora}.{report.run.prompts}"
    lines = [
        "# For --yardstick: a run with other texts or prompts refuses this file.",
        "[yardstick]",
        f"source = {json.dumps(source)}",
        f"samples = {json.dumps(texts)}",
    ]
    lines += [f"{name} = {min(score, HIGHEST_SCORE):.2f}" for name, score in scores.items()]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Print the proposal and return 0, or print one line to stderr and return 4."""
    parser = CommandParser(prog="longctx thresholds", description=__doc__)
    parser.add_argument("reports", nargs="*", type=Path, metavar="REPORT", help="files of --report-json")
    parser.add_argument("--yardstick", type=Path, metavar="REPORT", help="report of a reference checkpoint")
    options = parser.parse_args(arguments)
    if (options.yardstick is None) != bool(options.reports):
        parser.error("give either reports of accepted checkpoints or --yardstick REPORT")
    try:
        if options.yardstick:
            text = _yardstick_text(options.yardstick)
        else:
            # Overlapping patterns name a file twice.
            text = propose([read_report_file(path) for path in dict.fromkeys(options.reports)])
    except (ReportFileError, _ProposalError) as error:
        return report_wrong_use(str(error))
    for line in text.splitlines():
        print_line(line)
    return 0
