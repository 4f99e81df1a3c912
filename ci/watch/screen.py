"""Screen a checkpoint by the likelihood of gold answers, and measure it at length only if the screen sees a loss.

A screen measures the same few samples of every case for all checkpoints, and compares likelihoods and answers with the
anchor's. Likelihood moves before answers do, but it also moves without them, and some losses of answers leave it
unchanged. So a screen neither fails nor passes a checkpoint: it decides how many answers are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ci.suite_process import SuiteRun
from ci.watch.history import Measurement, Screening
from fixtures.lengths import format_length
from fixtures.records import family_of

SCREEN = "screen"
SCREEN_OPTIONS = ("--signal", "both", "--full")
# A screen sees no loss if the loss of the gold answers rose by no more than ERRORS standard errors, and if a rise of
# LARGEST_RISE nats is more than ERRORS standard errors away.
ERRORS = 2.0
LARGEST_RISE = 0.05
NOT_COMPARED = ("error", "not measured", "underpowered")

Entry = Mapping[str, Any]


def screen_options(samples: int) -> list[str]:
    """Return the pytest options of a screen over the first samples of every case."""
    return [*SCREEN_OPTIONS, "--samples", str(samples)]


def read_screening(run: SuiteRun) -> Screening:
    """Return the result of a finished screen."""
    report = run.report
    if report is None:
        return Screening(verdict="not possible", lines=(run.reason,), tokens=None)
    errors = [f"{case['id']}: {case['error']}" for case in report["cases"] if case["error"]]
    compared = [gate for gate in report["gates"] if gate["kind"] == "regression"]
    errors += [f"{gate['name']}: {gate['reason']}" for gate in compared if gate["verdict"] in NOT_COMPARED]
    changes = {(panel["family"], panel["length"]): panel["change"] for panel in report["likelihood"]["panels"]}
    panels = dict.fromkeys((family_of(case["suite"], case["category"]), case["length"]) for case in report["cases"])
    unknown = [f"{_name(panel)}: no likelihoods of both checkpoints" for panel in panels if not changes.get(panel)]
    if errors or unknown:
        return Screening(verdict="not possible", lines=(*errors, *unknown), tokens=computed_tokens(report))
    worse = [gate for gate in compared if gate["verdict"] == "fail"]
    has_loss = bool(worse) or any(has_risen(change["nll"]["mean"], change["nll_error"]) for change in changes.values())
    lines = [_line(panel, changes[panel]) for panel in panels]
    return Screening(
        verdict="loss" if has_loss else "no loss",
        lines=(*lines, *(f"{gate['name']}: {gate['reason']}" for gate in worse)),
        tokens=computed_tokens(report),
    )


def computed_tokens(report: Entry) -> int | None:
    """Return the tokens that a checkpoint computed for the answers and likelihoods in a report; None if unknown."""
    answers: int | None = report["run"]["tokens"]["computed"]
    if answers is None or report["likelihood"] is None:
        return answers
    likelihoods: int = report["likelihood"]["tokens"]["computed"]
    return answers + likelihoods


def screen_lines(screening: Screening | None) -> list[str]:
    """Return what a screen saw, and what it would have said alone."""
    if screening is None:
        return []
    return [f"screen: {screening.verdict}", *(f"screen: {line}" for line in screening.lines)]


def screen_summary(measurements: Sequence[Measurement]) -> list[str]:
    """Return what the screens of a watch saw and saved; nothing without any."""
    screened = [measurement for measurement in measurements if measurement.screen is not None]
    if not screened:
        return []
    verdicts = [measurement.screen.verdict for measurement in screened if measurement.screen is not None]
    failed = sum(
        verdict == "loss" and measurement.verdict == "fail"
        for verdict, measurement in zip(verdicts, screened, strict=True)
    )
    counts = f"{verdicts.count('no loss')} of {len(screened)} checkpoints without a loss"
    alone = f"a loss at {verdicts.count('loss')}, which answers confirmed at {failed}"
    return [f"screen: {counts}, {alone}{_saved(screened)}"]


def _saved(screened: Sequence[Measurement]) -> str:
    """Return the tokens that the screens saved, from the mean of the checkpoints that were measured at length."""
    at_length = [
        measurement.tokens
        for measurement in screened
        if measurement.verdict != "screened" and measurement.tokens is not None
    ]
    if not at_length:
        return ""
    screens = sum(measurement.screen.tokens or 0 for measurement in screened if measurement.screen is not None)
    without = len(screened) * sum(at_length) / len(at_length)
    return f"; {sum(at_length) + screens:,} tokens computed instead of about {without:,.0f}"


def has_risen(rise: float, error: float | None) -> bool:
    """Return True unless a mean rise of the loss, in nats, with this standard error is no loss."""
    return error is None or rise > ERRORS * error or rise + ERRORS * error > LARGEST_RISE


def _line(panel: tuple[str, int], change: Entry) -> str:
    error = change["nll_error"]
    margin = "" if error is None else f" ± {ERRORS * error:.3f}"
    return (
        f"{_name(panel)}: loss of the gold answers {change['nll']['mean']:+.3f}{margin} nats on {change['pairs']} pairs"
    )


def _name(panel: tuple[str, int]) -> str:
    family, length = panel
    return f"{family} {format_length(length)}"
