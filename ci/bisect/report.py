"""Write a search down: one line for every step, the final lines, `bisect.html`, `bisect.json` and `bisect.svg`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ci.bisect.bisection import Bisection
from ci.bisect.confirm import Confirmation
from ci.bisect.journal_stats import Cost, Flip
from ci.bisect.page import bisect_page
from ci.bisect.search import Edge, StepVerdict
from ci.checkpoint_dirs import Step
from fixtures.atomic_files import write_file
from plugins.report.charts.differences import StepDifference, difference_svg

SCHEMA = "longctx-bisect/1"
MAX_FLIPS_SHOWN = 5
SHOWN_CHARACTERS = 60
CHART_CAPTION = (
    "points of difference from the good endpoint, with intervals, over training steps; "
    "dashed: half of the loss; crosses: skipped steps"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectLog:
    """The files of one search, written again after every step, so that a killed search leaves its results."""

    bisection: Bisection
    verdicts: dict[int, StepVerdict] = field(default_factory=dict)
    """Verdicts of all steps so far by position, in the order of the search."""

    def add(self, position: int, verdict: StepVerdict) -> None:
        """Record a step's verdict and write all files."""
        self.verdicts[position] = verdict
        self._write(is_finished=False)

    def finish(self, edge: Edge, confirmation: Confirmation) -> list[str]:
        """Write all files for the last time, and return the final lines for the terminal."""
        lines = final_lines(self.bisection, edge, confirmation)
        more = _final_facts(self.bisection, edge, confirmation) | {"words": lines}
        self._write(is_finished=True, edge=edge, more=more)
        return lines

    def _write(self, *, is_finished: bool, edge: Edge | None = None, more: Mapping[str, Any] | None = None) -> None:
        bisection = self.bisection
        document = {
            "schema": SCHEMA,
            "ended": is_finished,
            "good": str(bisection.steps[0].path),
            "bad": str(bisection.steps[-1].path),
            "cases": list(bisection.endpoints.cases),
            "lost": bisection.endpoints.loss_points,
            "confidence": bisection.confidence,
            "looks": [
                {"step": bisection.steps[position].number, "checkpoint": str(bisection.steps[position].path)}
                | verdict.as_json()
                for position, verdict in self.verdicts.items()
            ],
        }
        document |= dict(more or {})
        chart = _chart(bisection, self.verdicts, edge)
        texts = {
            "bisect.json": f"{json.dumps(document, indent=1)}\n",
            "bisect.svg": chart,
            "bisect.html": bisect_page(document, chart),
        }
        for name, text in texts.items():
            write_file(bisection.suite.folder / name, text.encode("utf-8", errors="replace"))


def step_line(step: Step, verdict: StepVerdict) -> str:
    """Return one step's verdict as a line."""
    if verdict.difference is None:
        return f"step {step.number:<8} skipped  {verdict.reason}"
    if verdict.rise_of_loss is not None:
        loss = f"loss of the gold answers {verdict.rise_of_loss:+.2f} nats"
        return f"step {step.number:<8} {verdict.verdict:<7} {loss}  {verdict.pairs} telling pairs"
    low, high = verdict.interval or (-100.0, 100.0)
    kind = "telling pairs" if verdict.is_screened else "pairs"
    difference = f"{verdict.difference:+6.1f} [{low:+.1f}, {high:+.1f}]"
    return f"step {step.number:<8} {verdict.verdict:<7} {difference}  {verdict.pairs} {kind}"


def final_lines(bisection: Bisection, edge: Edge, confirmation: Confirmation) -> list[str]:
    """Return the lines that end a search: its result first, then what qualifies it, then its cost."""
    return [
        _result_line(bisection, edge),
        *_dip_lines(bisection, edge),
        _edge_line(bisection, confirmation.edge),
        *_other_drop_lines(confirmation),
        *_flip_lines(confirmation.flips),
        *_skipped_lines(bisection, edge),
        *_unmeasured_lines(bisection, edge),
        *_screening_lines(bisection, edge),
        *cost_lines(confirmation),
        f"written: {bisection.suite.folder}/bisect.html, bisect.json, bisect.svg",
    ]


def _result_line(bisection: Bisection, edge: Edge) -> str:
    good, bad = bisection.steps[edge.last_good].number, bisection.steps[edge.first_bad].number
    confidence = f"{100 * bisection.confidence:g} %"
    if not edge.skipped:
        return f"first bad step {bad} (last good {good}), {confidence}"
    skipped = ", ".join(str(bisection.steps[position].number) for position in edge.skipped)
    return f"first bad step {bad}, or one of the skipped steps before it: {skipped} (last good {good}), {confidence}"


def _dip_lines(bisection: Bisection, edge: Edge) -> list[str]:
    steps = bisection.steps
    return [
        f"not monotone: bad from {steps[dip.first_bad].number} on (good at {steps[dip.last_good].number}), "
        f"good again at {steps[dip.good_again].number}; the loss of {steps[-1].name} begins later"
        for dip in edge.dips
    ]


def _edge_line(bisection: Bisection, verdict: StepVerdict) -> str:
    if verdict.difference is None or verdict.interval is None:
        return f"the two steps were not compared: {verdict.reason}"
    low, high = verdict.interval
    loss = f"{verdict.difference:+.1f} [{low:+.1f}, {high:+.1f}] over {verdict.pairs} pairs"
    return f"between them {loss}, of {-bisection.endpoints.loss_points:+.1f} between the endpoints"


def _other_drop_lines(confirmation: Confirmation) -> list[str]:
    return [
        f"two drops: from step {drop.before.number} to {drop.after.number} another {drop.difference:+.1f} "
        f"[{drop.interval[0]:+.1f}, {drop.interval[1]:+.1f}]; search it with --good {drop.before.path} "
        f"--bad {drop.after.path}"
        for drop in confirmation.other_drops
    ]


def _flip_lines(flips: Sequence[Flip]) -> list[str]:
    if not flips:
        return []
    worse = [flip for flip in flips if flip.after < flip.before]
    lines = [f"flipped samples: {len(worse)} worse, {len(flips) - len(worse)} better, for example"]
    for flip in worse[:MAX_FLIPS_SHOWN]:
        depth = "" if flip.depth is None else f" at depth {flip.depth:.2f}"
        expected, answer = ", ".join(flip.expected)[:SHOWN_CHARACTERS], flip.answer_after[:SHOWN_CHARACTERS]
        lines.append(f"    {flip.case} sample {flip.index}{depth}: expected {expected!r}, now {answer!r}")
    return lines


def _skipped_lines(bisection: Bisection, edge: Edge) -> list[str]:
    return [
        f"skipped step {bisection.steps[position].number}: {verdict.reason}"
        for position, verdict in sorted(edge.verdicts.items())
        if not verdict.pairs
    ]


def _unmeasured_count(bisection: Bisection, edge: Edge) -> int:
    return len(bisection.steps) - 2 - len(edge.verdicts)


def _unmeasured_lines(bisection: Bisection, edge: Edge) -> list[str]:
    count = _unmeasured_count(bisection, edge)
    return [f"not measured: {count} of {len(bisection.steps)} steps; a dip among them goes unnoticed"] if count else []


def _screening_lines(bisection: Bisection, edge: Edge) -> list[str]:
    """Return what the screening saved, and what it would have said alone."""
    screened = [verdict.pairs for verdict in edge.verdicts.values() if verdict.is_screened]
    measured = [verdict.pairs for verdict in edge.verdicts.values() if verdict.pairs and not verdict.is_screened]
    if edge.screened is None or not screened:
        return []
    by_loss = sum(verdict.rise_of_loss is not None for verdict in edge.verdicts.values())
    by_likelihood = f", {by_loss} of them by the likelihood of gold answers" if by_loss else ""
    alone = "the same step" if edge.screened == edge.first_bad else f"step {bisection.steps[edge.screened].number}"
    saved = round(len(screened) * sum(measured) / max(1, len(measured))) - sum(screened)
    return [
        f"screened: {len(screened)} step{'s' * (len(screened) != 1)} only on samples on which the endpoints differ"
        f"{by_likelihood}, which saved about {max(0, saved)} samples; alone that would have named {alone}"
    ]


def cost_lines(confirmation: Confirmation) -> list[str]:
    """Return the cost of a search, beside that of all samples on every checkpoint."""
    cost, linear = confirmation.cost, confirmation.linear_scan
    share = f" (1/{linear.samples / cost.samples:.1f})" if cost.samples else ""
    lines = [f"cost: {_cost(cost)}; a linear scan takes {_cost(linear)}{share}"]
    if confirmation.survey_cost is not None:
        lines.append(f"      and {confirmation.survey_cost.samples} other samples of all cases, to see which lost most")
    return lines


def _cost(cost: Cost) -> str:
    """Return samples and tokens; a server need not say how many tokens it computed."""
    likelihoods = f", {cost.likelihood_tokens:,} more for likelihoods" if cost.likelihood_tokens else ""
    return f"{cost.samples:,} samples" + (f", {cost.tokens:,} tokens" if cost.tokens else "") + likelihoods


def _final_facts(bisection: Bisection, edge: Edge, confirmation: Confirmation) -> dict[str, Any]:
    """Return the keys of `bisect.json` that a finished search adds."""
    steps, edge_verdict = bisection.steps, confirmation.edge
    return {
        "first_bad": steps[edge.first_bad].number,
        "last_good": steps[edge.last_good].number,
        "screening_alone": None if edge.screened is None else steps[edge.screened].number,
        "monotone": not edge.dips,
        "dips": [[steps[position].number for position in dip] for dip in edge.dips],
        "skipped": [steps[position].number for position in edge.skipped],
        "not_looked_at": _unmeasured_count(bisection, edge),
        "edge": None if edge_verdict.difference is None else edge_verdict.as_json(),
        "flips": [asdict(flip) for flip in confirmation.flips],
        "cost": asdict(confirmation.cost),
        "linear_scan": asdict(confirmation.linear_scan),
        "survey": None if confirmation.survey_cost is None else asdict(confirmation.survey_cost),
    }


def _chart(bisection: Bisection, verdicts: Mapping[int, StepVerdict], edge: Edge | None) -> str:
    """Return the search as an SVG chart: differences from the good endpoint over the steps."""
    steps, endpoints = bisection.steps, bisection.endpoints
    first = StepDifference(step=steps[0].number, verdict="good", difference=0.0, interval=None)
    last = StepDifference(
        step=steps[-1].number, verdict="bad", difference=-endpoints.loss_points, interval=endpoints.interval
    )
    measured = [
        StepDifference(
            step=steps[position].number,
            verdict=verdict.verdict,
            difference=verdict.difference,
            interval=verdict.interval,
        )
        for position, verdict in sorted(verdicts.items())
    ]
    others = len(endpoints.cases) - 1
    return difference_svg(
        [first, *measured, last],
        title=endpoints.cases[0] + (f" and {others} more" if others else ""),
        caption=CHART_CAPTION,
        dashed=-endpoints.loss_points / 2,
        shaded_steps=None if edge is None else (steps[edge.last_good].number, steps[edge.first_bad].number),
    )
