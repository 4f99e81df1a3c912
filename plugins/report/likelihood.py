"""The likelihoods of gold answers in the document, and the texts that all reports show of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from plugins.gates.clusters import ESTIMATE_ALPHA
from plugins.gates.evaluation import Evaluation
from plugins.gates.likelihood import (
    DIFFERENCE_CLIP,
    LEAST_EVIDENCE_GAIN,
    NLL_CLIP,
    Estimate,
    LikelihoodChange,
    LikelihoodEstimates,
)
from plugins.gates.likelihood_results import PanelLikelihood
from plugins.gates.points import to_points

# A smaller change against the baseline, in nats, is no finding: rounding alone causes as much.
LEAST_CHANGE = 0.05
CAPTION = "Likelihood of gold answers, in nats per token. It screens; answers decide."
MEASURES: Mapping[str, str] = {
    "nll": "nll",
    "gain": "gain",
    "recovery": "recovery",
    "evidence": "evidence",
    "greedy": "greedy",
    "margin": "gold - foil",
}
"""The measures that every report shows, by their key in the document, with their heading."""


def likelihood(evaluation: Evaluation) -> dict[str, Any] | None:
    """Return the likelihoods of all panels; None for a run that measured answers only."""
    scope = evaluation.measured.scope
    if scope.signal == "answers":
        return None
    measured = evaluation.measured.likelihoods.values()
    return {
        "signal": scope.signal,
        "confidence": 1 - ESTIMATE_ALPHA,
        "nll_clip": NLL_CLIP,
        "difference_clip": DIFFERENCE_CLIP,
        "least_evidence_gain": LEAST_EVIDENCE_GAIN,
        "tokens": {
            "computed": sum(item.computed_tokens for item in measured),
            "reused": sum(item.reused_tokens for item in measured),
        },
        "panels": [_panel(panel) for panel in evaluation.likelihood],
        "cases": {
            case_id: _estimates(result) for panel in evaluation.likelihood for case_id, result in panel.cases.items()
        },
    }


def has_no_answers(document: Mapping[str, Any]) -> bool:
    """Return True for a run that measured nothing but likelihoods."""
    return bool(document["likelihood"] and document["likelihood"]["signal"] == "likelihood")


def texts(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return value and interval of every measure of a panel or case as texts; a hyphen for what is undefined."""
    return [_text(key, entry[key]) for key in MEASURES]


def _text(key: str, estimate: Mapping[str, Any] | None) -> tuple[str, str]:
    if estimate is None:
        return "-", ""
    form = "{:.1f}" if key in ("recovery", "greedy") else "{:+.2f}" if key == "margin" else "{:.2f}"
    end_form = "{:.0f}" if key in ("recovery", "greedy") else "{:.2f}"
    low, high = (end_form.format(end) for end in estimate["interval"])
    return form.format(estimate["mean"]), f"{low} to {high}"


def _panel(panel: PanelLikelihood) -> dict[str, Any]:
    return {
        "family": panel.family,
        "length": panel.length,
        **_estimates(panel.pooled),
        "change": None if panel.change is None else _change(panel.change),
        "findings": _findings(panel),
    }


def _estimates(result: LikelihoodEstimates) -> dict[str, Any]:
    return {
        "samples": result.samples,
        "planned": result.planned,
        "clipped": result.clipped,
        "nll": _estimate(result.nll),
        "nll_after_first": _estimate(result.nll_after_first),
        "query": _estimate(result.query),
        "evidence": _estimate(result.evidence),
        "gain": _estimate(result.gain),
        "gain_after_first": _estimate(result.gain_after_first),
        "recovery": None if result.recovery is None else _points(result.recovery),
        "greedy": _points(result.greedy),
        "margin": None if result.margin is None else _estimate(result.margin),
    }


def _change(change: LikelihoodChange) -> dict[str, Any]:
    differences = {name: _estimate(getattr(change, name)) for name in ("nll", "gain", "evidence")}
    return {"pairs": change.pairs, **differences, "nll_error": change.nll_error}


def _findings(panel: PanelLikelihood) -> list[str]:
    """Return what the numbers alone do not say, one sentence each."""
    lines, change, margin = [], panel.change, panel.pooled.margin
    if margin is not None and margin.low <= 0:
        lines.append("gold answers are not told from distractors, so a gain may be fluency and not retrieval")
    if change is not None and change.evidence.low > LEAST_CHANGE:
        lines.append(
            f"short contexts have suffered: the loss on the evidence alone rose by {change.evidence.mean:.2f} nats, "
            "so a rise of recovery means nothing"
        )
    if change is not None and (change.nll.low > LEAST_CHANGE or change.nll.high < -LEAST_CHANGE):
        lines.append(
            f"the loss of the gold answers changed by {change.nll.mean:+.2f} nats against the baseline, "
            "by calibration, format or retrieval: answers decide which"
        )
    return lines


def _points(estimate: Estimate) -> dict[str, Any]:
    return _estimate(Estimate(*map(to_points, astuple(estimate))))


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {
        "mean": estimate.mean,
        "interval": [estimate.low, estimate.high],
        "model_interval": [estimate.model_low, estimate.model_high],
    }
