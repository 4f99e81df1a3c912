"""Read the mean scores of accepted runs from their reports, by the panels that thresholds can be about."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fixtures.records import family_of
from plugins.gates.hypotheses import RULER
from plugins.gates.thresholds import CATEGORIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
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
class MeasuredScore:
    """A score with its confidence interval, all 0 to 100."""

    score: float
    low: float
    high: float


def panel_scores(reports: Sequence[Mapping[str, Any]]) -> list[dict[Panel, MeasuredScore]]:
    """Return the scores of every report by panel."""
    return [_family_scores(report) | _narrowed_scores(report, reports) for report in reports]


def _family_scores(report: Mapping[str, Any]) -> dict[Panel, MeasuredScore]:
    """Return the scores of RULER at the lengths with all its tasks, and of HELMET's categories, by panel."""
    helmet = report.get("helmet") or {"categories": {}, "intervals": {}}
    families = {RULER: (report["ruler"]["scores"], report["ruler"]["intervals"])} | {
        category: (helmet["categories"][category], helmet["intervals"].get(category, {}))
        for category in CATEGORIES
        if category in helmet["categories"]
    }
    return {
        Panel(family=family, length=int(length)): MeasuredScore(score=score, low=interval[0], high=interval[1])
        for family, (scores, intervals) in families.items()
        for length, score in scores.items()
        if score is not None and (interval := intervals.get(length)) is not None
    }


def _narrowed_scores(report: Mapping[str, Any], reports: Sequence[Mapping[str, Any]]) -> dict[Panel, MeasuredScore]:
    """Return the mean scores over the tasks that all reports have, where no report has the score of a whole family."""
    whole = {(panel.family, panel.length) for each in reports for panel in _family_scores(each)}
    common = set.intersection(*({_place(case) for case in each["cases"] if _is_measured(case)} for each in reports))
    groups: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for case in report["cases"]:
        place = (family_of(case["suite"], case["category"]), case["length"])
        if _place(case) in common and place not in whole:
            groups.setdefault(place, []).append(case)
    return {
        Panel(family=family, length=length, tasks=tuple(sorted(case["task"] for case in cases))): MeasuredScore(
            score=_mean([case["score"] for case in cases]),
            # The interval of a mean holds if those of all cases do.
            low=_mean([_planned_interval(case)[0] for case in cases]),
            high=_mean([_planned_interval(case)[1] for case in cases]),
        )
        for (family, length), cases in groups.items()
    }


def _planned_interval(case: Mapping[str, Any]) -> tuple[float, float]:
    """Return an interval of the mean of all planned samples, which is what a level gate is about."""
    if case.get("samples") == case["planned"]:
        return case["score"], case["score"]
    return case["interval"][0], case["interval"][1]


def _place(case: Mapping[str, Any]) -> tuple[str, int]:
    return case["task"], case["length"]


def _is_measured(case: Mapping[str, Any]) -> bool:
    return case["score"] is not None and case["interval"] is not None


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
