"""Propose thresholds from the reports of accepted checkpoints: `longctx thresholds REPORT...`.

With --yardstick REPORT instead: write a yardstick for `longctx run --yardstick FILE`, the scores of a reference
checkpoint that was measured on the same text as the checkpoints to come.

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

from longctx.fixtures.cli import CommandParser, print_line, report_wrong_use
from longctx.fixtures.lengths import format_length
from longctx.fixtures.outside_files import read_outside
from longctx.fixtures.records import family_of
from longctx.fixtures.records.report import JsonReport, ReportCase, parse_report
from longctx.fixtures.shown_text import one_line, visible_line
from longctx.plugins.thresholds.records import CATEGORIES
from longctx.plugins.verdicts.hypotheses import RULER

ROUNDING_POINTS = 0.5
MIN_DROP_POINTS = 1.0
MIN_REPORTS = 3
# RULER's own yardstick is a score at this length.
YARDSTICK_LENGTH = 4096
# A gate requires more than the yardstick's score, and no model has more than 100.
HIGHEST_SCORE = 99.99


class _ProposalError(ValueError):
    """Reports that allow no proposal; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fall:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScoredPanel:
    """The tasks of one family at one length that all runs have measured."""

    family: str
    length: int
    tasks: tuple[str, ...] = ()
    """Empty for the whole family; some of its tasks if the runs were narrowed by -k."""

    @property
    def name(self) -> str:
        """The name of the panel's gate, without its length."""
        if not self.tasks:
            return self.family
        return self.tasks[0] if len(self.tasks) == 1 else f"{self.tasks[0]} and {len(self.tasks) - 1} more"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Score:
    """A score with its confidence interval, all 0 to 100."""

    score: float
    low: float
    high: float


def propose(reports: Sequence[JsonReport]) -> str:
    """Return the text of a thresholds file; raise ProposalError for reports that do not fit together."""
    if len(reports) < MIN_REPORTS:
        raise _ProposalError(f"{len(reports)} reports do not show how much runs differ; give {MIN_REPORTS} or more")
    for name, subject in (("corpora", "texts"), ("prompts", "wording of prompts")):
        if len({getattr(report.run, name) for report in reports}) > 1:
            raise _ProposalError(f"the reports differ in the {subject}; measure all with the same options")
    failed = next((case for report in reports for case in report.cases if case.error), None)
    if failed is not None:
        raise _ProposalError(f"{failed.id} ended in an error ({failed.error}); give reports without one")
    scores = [_family_scores(report) | _narrowed_scores(report, reports) for report in reports]
    shared = [panel for panel in scores[0] if all(panel in run for run in scores)]
    floors = _floors(reports)
    if not shared and not floors:
        raise _ProposalError("no length was measured in all reports; give runs of the same --lengths and -k")
    names = visible_line(", ".join(Path(report.model.path).name for report in reports))
    parts = [f"# Proposed from {len(reports)} runs of accepted checkpoints: {names}.", ""]
    parts += _regression(reports, scores, shared)
    reached = [report.ruler.effective_length for report in reports]
    known = [length for length in reached if length is not None]
    if len(known) == len(reached):
        parts.append(
            f"# Reached by all: {', '.join(map(format_length, known))}.\n[[gate]]\n"
            f'name = "effective length"\nkind = "effective_length"\nabove = "reference"\n'
            f'at_least = "{format_length(min(known))}"\n'
        )
    by_panel = {panel: [run[panel] for run in scores] for panel in shared}
    parts += [_level(panel, runs) for panel, runs in by_panel.items() if _threshold_of(runs) > 0]
    parts += floors
    return "\n".join(parts)


def _regression(
    reports: Sequence[JsonReport], scores: Sequence[Mapping[_ScoredPanel, _Score]], shared: Sequence[_ScoredPanel]
) -> list[str]:
    """Return the [regression] table; comparisons sample by sample are preferred to differences of scores."""
    falls, source = _falls(reports, scores, shared)
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


def _falls(
    reports: Sequence[JsonReport], scores: Sequence[Mapping[_ScoredPanel, _Score]], shared: Sequence[_ScoredPanel]
) -> tuple[list[_Fall], str]:
    """Return the falls from run to run, and how they were measured."""
    paired = [
        _Fall(
            points=-gate.measured,
            width=gate.interval[1] - gate.interval[0],
            place=f"{gate.name}, {format_length(gate.length)}" if gate.length else gate.name,
        )
        for report in reports
        for gate in report.gates
        if gate.kind == "regression" and gate.measured is not None and gate.interval is not None
    ]
    if paired:
        return paired, "comparisons sample by sample"
    differences = [
        _Fall(
            points=before[panel].score - after[panel].score,
            width=before[panel].high - before[panel].low + after[panel].high - after[panel].low,
            place=f"{panel.name}, {format_length(panel.length)}",
        )
        for before, after in itertools.pairwise(scores)
        for panel in shared
    ]
    return differences, "the scores of one run and the next"


def _level(panel: _ScoredPanel, scores: Sequence[_Score]) -> str:
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


def _threshold_of(scores: Sequence[_Score]) -> float:
    """Return the threshold that all runs reach: a score must be above it, so it is below a score that is known."""
    threshold = _below(min(score.low for score in scores))
    return threshold if threshold < min(score.score for score in scores) else threshold - ROUNDING_POINTS


def _floors(reports: Sequence[JsonReport]) -> list[str]:
    """Return the [floor] table of all tasks that were never near 0.

    A floor holds at every length, so the weakest length decides it.
    """
    lows: dict[str, list[tuple[float, int]]] = {}
    for report in reports:
        for case in report.cases:
            if case.interval is not None:
                lows.setdefault(case.task, []).append((case.interval[0], case.length))
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


def _read(path: Path) -> JsonReport:
    try:
        return parse_report(read_outside(path))
    except (OSError, ValueError) as error:
        reason = one_line(getattr(error, "strerror", None) or str(error), 120)
        raise _ProposalError(f"{path} is not a report of the suite ({reason}); give files of --report-json") from error


def _yardstick_text(path: Path) -> str:
    """Return the text of a yardstick file: RULER's mean and aspects at 4K, or at the shortest length with all tasks.

    Raises ProposalError for a report without such a length.
    """
    report = _read(path)
    ruler = report.ruler
    scores = {int(length): score for length, score in ruler.scores.items() if score is not None}
    if not scores:
        raise _ProposalError(
            f"--yardstick: {path}: the report has no length with all tasks of RULER; "
            "measure the reference checkpoint without -k"
        )
    length = YARDSTICK_LENGTH if YARDSTICK_LENGTH in scores else min(scores)
    aspects = {aspect: by_length[str(length)] for aspect, by_length in ruler.aspects.items()}
    texts = f"{report.run.corpora}.{report.run.prompts}"
    source = f"{report.model.name} at {format_length(length)}, seed {report.run.seed}"
    return "\n".join(
        (
            "# For --yardstick: a run with other texts or prompts refuses this file.",
            "[yardstick]",
            f"source = {json.dumps(source)}",
            f"samples = {json.dumps(texts)}",
            *(
                f"{name} = {min(score, HIGHEST_SCORE):.2f}"
                for name, score in {"mean": scores[length], **aspects}.items()
                if score is not None
            ),
        )
    )


def _family_scores(report: JsonReport) -> dict[_ScoredPanel, _Score]:
    """Return the scores of RULER at the lengths with all its tasks, and of HELMET's categories, by panel."""
    families = {RULER: (report.ruler.scores, report.ruler.intervals)} | {
        category: (report.helmet.categories[category], report.helmet.intervals.get(category, {}))
        for category in CATEGORIES
        if report.helmet is not None and category in report.helmet.categories
    }
    return {
        _ScoredPanel(family=family, length=int(length)): _Score(score=score, low=interval[0], high=interval[1])
        for family, (scores, intervals) in families.items()
        for length, score in scores.items()
        if score is not None and (interval := intervals.get(length)) is not None
    }


def _narrowed_scores(report: JsonReport, reports: Sequence[JsonReport]) -> dict[_ScoredPanel, _Score]:
    """Return the mean scores over the tasks that all reports have, where no report has the score of a whole family."""
    whole = {(panel.family, panel.length) for accepted in reports for panel in _family_scores(accepted)}
    common = set.intersection(
        *({(case.task, case.length) for case in accepted.cases if _measured(case)} for accepted in reports)
    )
    groups: dict[tuple[str, int], dict[str, _Score]] = {}
    for case in report.cases:
        place = (family_of(case.suite, case.category), case.length)
        if (case.task, case.length) in common and place not in whole and (measured := _measured(case)) is not None:
            groups.setdefault(place, {})[case.task] = measured
    return {
        _ScoredPanel(family=family, length=length, tasks=tuple(sorted(cases))): _Score(
            score=_mean([case.score for case in cases.values()]),
            # The interval of a mean holds if those of all cases do.
            low=_mean([case.low for case in cases.values()]),
            high=_mean([case.high for case in cases.values()]),
        )
        for (family, length), cases in groups.items()
    }


def _measured(case: ReportCase) -> _Score | None:
    """Return a score with the interval of the mean of all planned samples, which is what a level gate is about."""
    if case.score is None or case.interval is None:
        return None
    low, high = (case.score, case.score) if case.samples == case.planned else case.interval
    return _Score(score=case.score, low=low, high=high)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def main(arguments: list[str] | None = None) -> int:
    """Print the proposal and return 0, or print one line to stderr and return 4."""
    parser = CommandParser(
        prog="longctx thresholds", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
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
        if options.yardstick:
            text = _yardstick_text(options.yardstick)
        else:
            text = propose(list({path: _read(path) for path in options.reports}.values()))
    except _ProposalError as error:
        return report_wrong_use(str(error))
    for line in text.splitlines():
        print_line(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
