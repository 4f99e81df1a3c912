"""Write a search down: one line for every step, the final lines, `bisect.html` and `bisect.json`."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from longctx.ci.bisect.journal_stats import Flip
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
MAX_FLIPS_SHOWN = 5
# No model of histories is as certain as its own formulas.
MOST_CERTAIN = 0.999
SHOWN_CHARACTERS = 60


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


def _verdicts(bisection: Bisection, results: Mapping[int, StepResult], posterior: Posterior) -> dict[int, StepVerdict]:
    verdicts, loss = {}, bisection.endpoints.loss_points
    for position, result in results.items():
        step = bisection.steps[position]
        verdict = StepVerdict(step=step.number, checkpoint=str(step.path), verdict="skipped", reason=result.reason)
        if result.reading is not None:
            mean, low, high = posterior.share(position, bisection.confidence)
            probability = float(posterior.lost[position])
            verdict = replace(
                verdict, verdict="bad" if probability > 0.5 else "good", bad_probability=round(probability, 6),
                difference=-loss * mean, interval=(-loss * high, -loss * low), lost=sum(result.reading.losses),
                pairs=result.pairs,
            )  # fmt: skip
        verdicts[position] = verdict
    return verdicts


def write_round(
    bisection: Bisection, results: Mapping[int, StepResult], posterior: Posterior
) -> dict[int, StepVerdict]:
    """Write all files after a round, so that a killed search leaves its results; return the verdicts by position."""
    verdicts = _verdicts(bisection, results, posterior)
    _write(bisection, verdicts, {"ended": False})
    return verdicts


def write_result(bisection: Bisection, edge: Edge, confirmation: Confirmation | None) -> list[str]:
    """Write all files for the last time, and return the final lines; without a confirmation nothing is shown."""
    steps = bisection.steps
    more: dict[str, Any] = {
        "ended": True, "first_bad": None, "last_good": None, "probability": None, "range": None, "most_likely": None,
        "found": None, "not_measured": _unmeasured_count(bisection, edge),
    }  # fmt: skip
    if confirmation is None:
        surest = f"the whole series has the loss with {_percent(edge.probability)}"
        lines = [
            f"nothing shown: {surest}, less than --confidence {bisection.confidence:g}; give more --samples",
            f"written: {_files(bisection)}",
        ]
    else:
        lines = _final_lines(bisection, edge, confirmation)
        ends = steps[edge.last_good].number, steps[edge.first_bad].number
        more |= {
            "first_bad": ends[1],
            "last_good": ends[0],
            "probability": _stated(edge.probability),
            "range": None if edge.is_step else list(ends),
            "most_likely": steps[edge.likeliest].number,
            "found": _found(steps, edge),
            "monotone": not edge.dips,
            "dips": [[steps[position].number for position in dip] for dip in edge.dips],
            "skipped": [steps[position].number for position in edge.skipped],
            "edge": None if confirmation.edge.difference is None else asdict(confirmation.edge),
            "flips": [asdict(flip) for flip in confirmation.flips],
        }
    _write(bisection, _verdicts(bisection, edge.results, edge.posterior), more | {"words": lines})
    return lines


def _write(bisection: Bisection, verdicts: Mapping[int, StepVerdict], more: Mapping[str, Any]) -> None:
    document = {
        "schema": SCHEMA,
        "good": str(bisection.steps[0].path),
        "bad": str(bisection.steps[-1].path),
        "cases": list(bisection.endpoints.cases),
        "loss": bisection.endpoints.loss_points,
        "confidence": bisection.confidence,
        "steps": [asdict(verdict) for verdict in verdicts.values()],
        **more,
    }
    page = _page(document, _chart(bisection, verdicts))
    write_file(bisection.suite.folder / "bisect.json", f"{json.dumps(document, indent=1)}\n".encode())
    write_file(bisection.suite.folder / "bisect.html", page.encode("utf-8", errors="replace"))


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
        f"step {verdict.step:<8} {verdict.verdict:<7} {_percent(probability):>6}  lost {verdict.lost:g} of "
        f"{verdict.pairs} telling pairs"
    )


def _stated(probability: float) -> float:
    """Return a probability as it is stated: rounded down, and never as more certain than the model can be."""
    return min(MOST_CERTAIN, math.floor(10_000 * probability + 1e-6) / 10_000)


def _percent(probability: float) -> str:
    """Return a stated probability in percent, rounded down, so that 99 % is not shown for less."""
    return f"{math.floor(1000 * _stated(probability) + 1e-9) / 10:g} %"


def _files(bisection: Bisection) -> str:
    return f"{bisection.suite.folder}/bisect.html, bisect.json"


def _final_lines(bisection: Bisection, edge: Edge, confirmation: Confirmation) -> list[str]:
    steps, verdict = bisection.steps, confirmation.edge
    lines = [_result_line(bisection, edge)]
    for dip in edge.dips:
        lines.append(
            f"not monotone: bad from {steps[dip.first_bad].number} on (good at {steps[dip.last_good].number}), "
            f"good again at {steps[dip.good_again].number}; the loss of {steps[-1].name} begins later"
        )
    if verdict.difference is None or verdict.interval is None:
        lines.append(f"the two steps were not compared: {verdict.reason}")
    else:
        low, high = verdict.interval
        found = f"{verdict.difference:+.1f} [{low:+.1f}, {high:+.1f}] over {verdict.pairs} pairs"
        lines.append(f"between them {found}, of {-bisection.endpoints.loss_points:+.1f} between the endpoints")
    for before, after, probability in other_losses(bisection, edge):
        lines.append(
            f"perhaps two losses: another one from step {before.number} to {after.number}, "
            f"{_percent(probability)}; search it with --good {before.path} --bad {after.path}"
        )
    lines += _flip_lines(confirmation.flips)
    for position, result in sorted(edge.results.items()):
        if result.reason:
            lines.append(f"skipped step {steps[position].number}: {result.reason}")
    unmeasured = _unmeasured_count(bisection, edge)
    if unmeasured:
        lines.append(f"not measured: {unmeasured} of {len(steps)} steps; a dip among them goes unnoticed")
    lines.append(f"written: {_files(bisection)}")
    return lines


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


def _unmeasured_count(bisection: Bisection, edge: Edge) -> int:
    return len(bisection.steps) - 2 - len(edge.results)


def _result_line(bisection: Bisection, edge: Edge) -> str:
    """Return the line that says at which step the loss began, and with which probability."""
    steps = bisection.steps
    good, bad = steps[edge.last_good].number, steps[edge.first_bad].number
    if edge.is_step:
        skipped = ", ".join(str(steps[position].number) for position in edge.skipped)
        doubt = f", or one of the skipped steps before it: {skipped}" if skipped else ""
        return f"first bad step {bad}{doubt} (last good {good}), {_percent(edge.probability)}"
    first = steps[edge.last_good + 1].number
    likeliest = f"most likely {steps[edge.likeliest].number}"
    return f"first bad step between {first} and {bad} (last good {good}), {_percent(edge.probability)}; {likeliest}"


def _chart(bisection: Bisection, verdicts: Mapping[int, StepVerdict]) -> Chart:
    loss = bisection.endpoints.loss_points
    shown: dict[int, tuple[Verdict, float | None, Interval | None]] = {0: ("good", 0.0, None)}
    for position, verdict in sorted(verdicts.items()):
        shown[position] = verdict.verdict, verdict.difference, verdict.interval
    shown[bisection.last] = "bad", -loss, bisection.endpoints.interval
    series = Series(
        name="points of difference from the good endpoint",
        values=tuple(difference for _, difference, _ in shown.values()),
        intervals=tuple(interval for _, _, interval in shown.values()),
        threshold=-loss / 2,
        verdicts=tuple("fail" if verdict == "bad" else "pass" for verdict, _, _ in shown.values()),
    )
    labels = [str(bisection.steps[position].number) for position in shown]
    return chart(series.name, [series], labels, value_axis(series))


MOST_FLIPS = 200
LEFT_OUT = ("    ", "flipped samples", "written: ")
"""The beginnings of lines for the terminal that the page shows in another way."""


def _page(document: Mapping[str, Any], chart: Chart) -> str:
    search = visible_data(document)
    first_bad, last_good = search.get("first_bad"), search.get("last_good")
    is_step = search.get("range") is None
    names = ("last good", "first bad") if is_step else ("good", "bad")
    marks = {} if first_bad is None else dict(zip((last_good, first_bad), names, strict=True))
    rows = []
    for step in sorted(search["steps"], key=lambda step: step["step"]):
        low, high = step["interval"] or (None, None)
        bad = step["bad_probability"]
        rows.append(
            {
                "step": step["step"],
                "mark": marks.get(step["step"], ""),
                "verdict": step["verdict"],
                "probability": "-" if bad is None else _percent(max(bad, 1 - bad)),
                "difference": "-" if step["difference"] is None else f"{step['difference']:+.1f}",
                "interval": "-" if low is None else f"{low:+.1f} to {high:+.1f}",
                "pairs": step["pairs"],
                "note": step["reason"] or step["checkpoint"],
            }
        )
    return render(
        "bisect.html.j2",
        title=f"Bisection: {search['cases'][0]}",
        search=search,
        is_finished=bool(marks),
        is_shown=not search["ended"] or bool(marks),
        probability="" if not marks else _percent(search["probability"]),
        lines=[line for line in search.get("words", ()) if not line.startswith(LEFT_OUT)],
        chart=chart,
        steps=rows,
        flips=[
            {
                "name": f"{flip['case']} sample {flip['index']}",
                "direction": "worse" if flip["after"] < flip["before"] else "better",
                "expected": ", ".join(flip["expected"]),
                "before": flip["answer_before"] or "(empty)",
                "after": flip["answer_after"] or "(empty)",
            }
            for flip in search.get("flips", ())[:MOST_FLIPS]
        ],
        more_flips=max(0, len(search.get("flips", ())) - MOST_FLIPS),
    )
