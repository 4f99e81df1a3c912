"""Write a search down: one line for every step, the final lines, `bisect.html` and `bisect.json`."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from longctx.ci.bisect.measurements import Bisection, Confirmation, other_losses
from longctx.ci.bisect.posterior import Posterior
from longctx.ci.bisect.search import Edge, StepResult, Verdict
from longctx.ci.checkpoint_dirs import Step
from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.records.report_parts import Interval
from longctx.fixtures.shown_text import visible_data
from longctx.plugins.report.charts import Chart, Series, chart, value_axis
from longctx.plugins.report.html.page import render

SCHEMA = "longctx-bisect/1"
# No model of histories is as certain as its own formulas.
MOST_CERTAIN = 0.999
MOST_FLIPS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class StepVerdict:
    """One step as reports show it, under the keys of `bisect.json`: its result, and what all answers say of it."""

    step: int
    checkpoint: str
    verdict: Verdict
    """Bad if more than half of the loss has probably happened there."""
    bad_probability: float | None = None
    """Probability that more than half of the loss has happened; None for a step that answered no telling sample."""
    difference: float | None = None
    """Points lost since the good endpoint, negative for a loss; None for a skipped step."""
    interval: Interval | None = None
    """Interval of the difference, which holds it with the search's confidence; None if it is not known."""
    lost: float | None = None
    """The number of telling samples that the step has lost; a part of one counts as a part. None for a skipped step."""
    pairs: int = 0
    reason: str = ""
    """Why the step was skipped; empty if it was not."""


def step_verdict(bisection: Bisection, posterior: Posterior, position: int, result: StepResult) -> StepVerdict:
    step, reading, loss = bisection.steps[position], result.reading, bisection.endpoints.loss_points
    verdict = StepVerdict(step=step.number, checkpoint=str(step.path), verdict="skipped", reason=result.reason)
    if reading is None:
        return verdict
    mean, low, high = posterior.share(position, bisection.confidence)
    probability = float(posterior.lost[position])
    return replace(
        verdict, verdict="bad" if probability > 0.5 else "good", bad_probability=round(probability, 6),
        difference=-loss * mean, interval=(-loss * high, -loss * low), lost=sum(reading), pairs=result.pairs,
    )  # fmt: skip


def write_result(bisection: Bisection, edge: Edge, confirmation: Confirmation | None) -> list[str]:
    """Write the page and the data, and return the final lines; without a confirmation nothing is shown."""
    steps, folder = bisection.steps, bisection.suite.folder
    verdicts = [step_verdict(bisection, edge.posterior, *measured) for measured in edge.results.items()]
    document: dict[str, Any] = {
        "schema": SCHEMA, "good": str(steps[0].path), "bad": str(steps[-1].path),
        "cases": list(bisection.endpoints.cases), "loss": bisection.endpoints.loss_points,
        "confidence": bisection.confidence, "steps": [asdict(verdict) for verdict in verdicts],
        "first_bad": None, "last_good": None, "probability": None, "range": None, "most_likely": None, "found": None,
        "not_measured": len(steps) - 2 - len(verdicts),
    }  # fmt: skip
    if confirmation is None:
        surest = f"the whole series has the loss with {percent(edge.probability)}"
        lines = [f"nothing shown: {surest}, less than --confidence {bisection.confidence:g}; give more --samples"]
    else:
        lines = _final_lines(bisection, edge, confirmation)
        ends = steps[edge.last_good].number, steps[edge.first_bad].number
        compared = asdict(confirmation)
        flips = compared.pop("flips")
        document |= {
            "first_bad": ends[1],
            "last_good": ends[0],
            "probability": _stated(edge.probability),
            "range": None if edge.is_step else list(ends),
            "most_likely": steps[edge.likeliest].number,
            "found": _found(steps, edge),
            "monotone": not edge.dips,
            "dips": [[steps[position].number for position in dip] for dip in edge.dips],
            "skipped": [steps[position].number for position in edge.skipped],
            "edge": None if confirmation.difference is None else compared,
            "flips": flips,
        }
    document["words"] = lines
    page = _page(document, _chart(bisection, verdicts))
    write_file(folder / "bisect.json", f"{json.dumps(document, indent=1)}\n".encode())
    write_file(folder / "bisect.html", page.encode("utf-8", errors="replace"))
    return [*lines, f"written: {folder}/bisect.html, bisect.json"]


def _found(steps: Sequence[Step], edge: Edge) -> dict[str, Any]:
    """Return the steps at which the run may have become worse, for a watch; skipped ones are among them."""
    last_good, last = steps[edge.last_good], steps[edge.first_bad]
    return {
        "first": steps[edge.last_good + 1].number,
        "last": last.number,
        "last_path": str(last.path),
        "last_good": last_good.number,
        "last_good_path": str(last_good.path),
        "probability": _stated(edge.probability),
    }


def step_line(verdict: StepVerdict) -> str:
    if verdict.bad_probability is None:
        return f"step {verdict.step:<8} skipped  {verdict.reason}"
    probability = max(verdict.bad_probability, 1 - verdict.bad_probability)
    return (
        f"step {verdict.step:<8} {verdict.verdict:<7} {percent(probability):>6}  lost {verdict.lost:g} of "
        f"{verdict.pairs} telling pairs"
    )


def _stated(probability: float) -> float:
    """Return a probability as it is stated: rounded down, and never as more certain than the model can be."""
    return min(MOST_CERTAIN, math.floor(10_000 * probability + 1e-6) / 10_000)


def percent(probability: float) -> str:
    """Return a stated probability in percent, rounded down, so that 99 % is not shown for less."""
    return f"{math.floor(1000 * _stated(probability) + 1e-9) / 10:g} %"


def _final_lines(bisection: Bisection, edge: Edge, confirmation: Confirmation) -> list[str]:
    steps, difference = bisection.steps, confirmation.difference
    lines = [_result_line(bisection, edge)]
    for dip in edge.dips:
        good, bad, again = (steps[position].number for position in dip)
        later = f"good again at {again}; the loss of {steps[-1].name} begins later"
        lines.append(f"not monotone: bad from {bad} on (good at {good}), {later}")
    if difference is None or confirmation.interval is None:
        lines.append(f"the two steps were not compared: {confirmation.reason}")
    else:
        low, high = confirmation.interval
        measured = f"{difference:+.1f} [{low:+.1f}, {high:+.1f}] over {confirmation.pairs} pairs"
        lines.append(f"between them {measured}, of {-bisection.endpoints.loss_points:+.1f} between the endpoints")
    for before, after, probability in other_losses(bisection, edge):
        place = f"another one from step {before.number} to {after.number}, {percent(probability)}"
        lines.append(f"perhaps two losses: {place}; search it with --good {before.path} --bad {after.path}")
    flips = confirmation.flips
    if flips:
        worse = sum(flip.after < flip.before for flip in flips)
        lines.append(f"flipped samples: {worse} worse, {len(flips) - worse} better")
    for position, result in sorted(edge.results.items()):
        if result.reason:
            lines.append(f"skipped step {steps[position].number}: {result.reason}")
    unmeasured = len(steps) - 2 - len(edge.results)
    if unmeasured:
        lines.append(f"not measured: {unmeasured} of {len(steps)} steps; a dip among them goes unnoticed")
    return lines


def _result_line(bisection: Bisection, edge: Edge) -> str:
    """Return the line that says at which step the loss began, and with which probability."""
    steps = bisection.steps
    good, bad = steps[edge.last_good].number, steps[edge.first_bad].number
    if edge.is_step:
        skipped = ", ".join(str(steps[position].number) for position in edge.skipped)
        doubt = f", or one of the skipped steps before it: {skipped}" if skipped else ""
        return f"first bad step {bad}{doubt} (last good {good}), {percent(edge.probability)}"
    first = steps[edge.last_good + 1].number
    likeliest = f"most likely {steps[edge.likeliest].number}"
    return f"first bad step between {first} and {bad} (last good {good}), {percent(edge.probability)}; {likeliest}"


def _chart(bisection: Bisection, verdicts: Sequence[StepVerdict]) -> Chart:
    steps, endpoints = bisection.steps, bisection.endpoints
    good, bad, loss = steps[0], steps[-1], endpoints.loss_points
    shown = [
        StepVerdict(step=good.number, checkpoint=str(good.path), verdict="good", difference=0.0),
        *sorted(verdicts, key=lambda verdict: verdict.step),
        StepVerdict(
            step=bad.number, checkpoint=str(bad.path), verdict="bad", difference=-loss, interval=endpoints.interval
        ),
    ]
    series = Series(
        name="points of difference from the good endpoint",
        values=tuple(verdict.difference for verdict in shown),
        intervals=tuple(verdict.interval for verdict in shown),
        threshold=-loss / 2,
        verdicts=tuple("fail" if verdict.verdict == "bad" else "pass" for verdict in shown),
    )
    labels = [str(verdict.step) for verdict in shown]
    return chart(series.name, [series], labels, value_axis(series))


def _page(document: Mapping[str, Any], chart: Chart) -> str:
    search = visible_data(document)
    first_bad = search.get("first_bad")
    marks = {}
    if first_bad is not None:
        names = ("last good", "first bad") if search["range"] is None else ("good", "bad")
        marks = dict(zip((search["last_good"], first_bad), names, strict=True))
    return render(
        "bisect.html.j2", title=f"Bisection: {search['cases'][0]}", search=search, chart=chart, marks=marks,
        percent=percent, most_flips=MOST_FLIPS,
    )  # fmt: skip
