"""Confirm the edge of a search by further measurements, and collect the facts for the final report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ci.bisect.bisection import Bisection
from ci.bisect.compare import Bounds, regression_gate
from ci.bisect.journal_stats import Cost, Flip, JournalStats
from ci.bisect.search import Edge, StepVerdict
from ci.checkpoint_dirs import Step
from fixtures.checkpoints.checkpoint import CheckpointError

# Measured in full is a range in which the samples at hand show at least this share of the whole loss.
HINT_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherDrop:
    """A second loss outside the edge, shown on all samples."""

    before: Step
    after: Step
    difference: float
    """Mean score of `after` minus that of `before`, in points."""
    interval: tuple[float, float]
    """Confidence interval of the difference, in points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """Everything that was measured after the search itself."""

    edge: StepVerdict
    """The first bad step compared with the last good one."""
    other_drops: tuple[OtherDrop, ...]
    flips: tuple[Flip, ...]
    """Samples that the last good and the first bad step score differently."""
    cost: Cost
    """Cost of the whole search on its own cases."""
    linear_scan: Cost
    """Estimated cost of measuring all samples of these cases on every checkpoint."""
    survey_cost: Cost | None
    """Cost of the survey that chose the cases, on samples of its own; None without a survey."""


def confirm(bisection: Bisection, edge: Edge) -> Confirmation:
    """Compare the two steps of the edge, look for other losses, and read flips and cost from the journal."""
    endpoints = bisection.endpoints
    edge_verdict = bisection.compare(edge.first_bad, edge.last_good)
    # All facts describe the same entries: those written before a comparison that confirms another drop.
    stats = JournalStats(endpoints.report, bisection.suite.samples)
    fingerprints = {position: _fingerprint(bisection, position) for position in {0, bisection.last, *edge.verdicts}}
    other_drops = _other_drops(bisection, edge, stats, fingerprints)
    flips = stats.flips(fingerprints[edge.last_good], fingerprints[edge.first_bad], endpoints.cases)
    readable = {fingerprint for fingerprint in fingerprints.values() if fingerprint}
    cost = sum((stats.cost(fingerprint, endpoints.cases) for fingerprint in readable), Cost())
    return Confirmation(
        edge=edge_verdict,
        other_drops=other_drops,
        flips=flips,
        cost=cost,
        linear_scan=_linear_scan(bisection, cost),
        survey_cost=_survey_cost(bisection, stats, fingerprints),
    )


def _other_drops(
    bisection: Bisection, edge: Edge, stats: JournalStats, fingerprints: Mapping[int, str]
) -> tuple[OtherDrop, ...]:
    """Return the losses before the last good step and behind the first bad one that all samples show.

    A search leaves too few samples to show such a loss, but enough to hint at one; only then all samples are measured.
    """
    endpoints = bisection.endpoints
    drops = []
    for before, after in ((0, edge.last_good), (edge.first_bad, bisection.last)):
        if before == after:
            continue
        hint = stats.difference(fingerprints[before], fingerprints[after], endpoints.cases)
        if hint <= -HINT_SHARE * endpoints.loss_points:
            drops.append(_measure_drop(bisection, bisection.steps[before], bisection.steps[after]))
    return tuple(drop for drop in drops if drop is not None)


def _measure_drop(bisection: Bisection, before: Step, after: Step) -> OtherDrop | None:
    """Compare two steps on all samples; return None unless the later one is shown to be worse."""
    bounds = Bounds(confidence=bisection.confidence)
    run = bisection.suite.compare(after.path, before.path, bounds, cases=bisection.endpoints.cases, full=True)
    gate = regression_gate(run.report)
    if gate is None or gate["interval"] is None or gate["interval"][1] >= 0:
        return None
    low, high = gate["interval"]
    return OtherDrop(before=before, after=after, difference=gate["measured"], interval=(low, high))


def _linear_scan(bisection: Bisection, cost: Cost) -> Cost:
    """Estimate the cost of all samples on every checkpoint, with the mean tokens of the search's samples."""
    planned = sum(case["planned"] for case in bisection.endpoints.report["cases"])
    samples = planned * len(bisection.steps)
    return Cost(samples=samples, tokens=round(samples * cost.tokens / max(1, cost.samples)))


def _survey_cost(bisection: Bisection, stats: JournalStats, fingerprints: Mapping[int, str]) -> Cost | None:
    endpoints = bisection.endpoints
    if endpoints.survey is None:
        return None
    cases = [case["id"] for case in endpoints.survey["cases"]]
    survey_stats = stats.of(endpoints.survey)
    return survey_stats.cost(fingerprints[0], cases) + survey_stats.cost(fingerprints[bisection.last], cases)


def _fingerprint(bisection: Bisection, position: int) -> str:
    """Return the fingerprint of the checkpoint's results, empty if it cannot be read or was replaced."""
    try:
        return bisection.suite.journal_fingerprint(bisection.steps[position].path)
    except CheckpointError:
        return ""
