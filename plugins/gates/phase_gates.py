"""Gates on the worst phase: the largest difference between scores by the residue of the needle's position."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fixtures.lengths import format_length
from fixtures.records import PHASES, Verdict, VerdictWord
from plugins.gates.evaluate import gate_verdict
from plugins.gates.findings import extent
from plugins.gates.hypotheses import hypothesis_of, lengths_of, threshold_of, verdict_name
from plugins.gates.phases import Spread, spread
from plugins.gates.points import to_points
from plugins.gates.thresholds import Gate

if TYPE_CHECKING:
    from plugins.gates.evaluate import GateEvaluator

KIND = "worst_phase"


def phase_verdicts(evaluator: GateEvaluator) -> tuple[Verdict, ...]:
    """Return the verdicts of all gates on the worst phase, one per length."""
    scope = evaluator.measured.scope
    return tuple(
        _verdict(evaluator, gate, length)
        for gate in evaluator.thresholds.gates
        if gate.kind == KIND
        for length in sorted({*lengths_of(gate, scope), *gate.lengths})
    )


def _verdict(evaluator: GateEvaluator, gate: Gate, length: int) -> Verdict:
    scope = evaluator.measured.scope
    name, required = verdict_name(gate, length), threshold_of(gate, scope)
    finding = evaluator.finding(gate, length)
    if finding.score is None:
        return gate_verdict(gate, finding, name=name, length=length, measured=None, required=required)
    panel = evaluator.panels[PHASES, length]
    hypothesis = hypothesis_of(gate, scope, length, panel)
    queue = panel.queue(hypothesis.case_ids)
    rows = queue.weighted_rows(evaluator.scores, evaluator.analysis(panel, hypothesis).clusters)
    result = spread(rows * queue.scale, gate.moduli, hypothesis.threshold or 0.0, alpha=hypothesis.alpha)
    # The bounds are those of the model, and the finding's other values those of the mean over all phases.
    finding = replace(
        finding,
        reason=_reason(result, finding.word, required, length) + extent(finding.samples, finding.of),
        interval=(to_points(result.at_least), to_points(result.at_most)),
        model_interval=None,
        confidence=1 - 2 * hypothesis.alpha,
        haystacks=0,
        correlation=None,
    )
    measured = to_points(result.high - result.low)
    return gate_verdict(gate, finding, name=name, length=length, measured=measured, required=required)


def _reason(result: Spread, word: VerdictWord, allowed: float, length: int) -> str:
    pair, place = result.pair, format_length(length).upper()
    least, most = (f"{to_points(bound):.1f}" for bound in (result.at_least, result.at_most))
    bounds = {"fail": f"at least {least}", "pass": f"at most {most}"}.get(word, f"between {least} and {most}")
    return (
        f"phase {pair.high} mod {pair.modulus} at {place}: {to_points(result.high):.1f}, phase {pair.low}: "
        f"{to_points(result.low):.1f}; {to_points(result.high - result.low):.1f} points apart ({bounds}), "
        f"{allowed:g} allowed"
    )
