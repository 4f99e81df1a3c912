"""The evaluation of one run: case results in; verdicts, diagnoses and evidence curves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fixtures.records import Case, Verdict
from plugins.gates.diagnoses import Diagnosis, diagnoses
from plugins.gates.evaluate import GateEvaluator, Measured
from plugins.gates.evidence_curves import Curve, curves
from plugins.gates.findings import Finding
from plugins.gates.hypotheses import HEADLINE, estimate_gate
from plugins.gates.likelihood_gates import likelihood_verdicts
from plugins.gates.likelihood_results import PanelLikelihood, panel_likelihoods
from plugins.gates.phase_gates import phase_verdicts
from plugins.gates.regression import regression_verdicts
from plugins.gates.thresholds import CATEGORIES, Gate, Thresholds

FindingsByLength = Mapping[int, Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The one evaluation of a run that gate tests, exit code and every report read."""

    thresholds: Thresholds
    measured: Measured
    """The selected cases and the results that came back for them."""
    verdicts: tuple[Verdict, ...]
    """The verdicts of the gates on scores in the order of the thresholds file, then those of the baseline comparison,
    then those of the gates on the worst phase and on likelihood."""
    diagnoses: Mapping[str, Diagnosis]
    """The floor and baseline tests of every case that has a score, by case id."""
    ruler: FindingsByLength
    """The mean over all RULER tasks against the reference score."""
    aspects: Mapping[str, FindingsByLength]
    """The mean over the RULER tasks of each aspect against the reference score of that aspect."""
    categories: Mapping[str, FindingsByLength]
    """The estimated mean of each HELMET category."""
    curves: Mapping[str, tuple[Curve, ...]]
    """The evidence curves by the verdict's name."""
    likelihood: tuple[PanelLikelihood, ...] = ()
    """The likelihoods of gold answers on every panel where some were measured."""

    def is_narrowed(self, available: Sequence[Case]) -> bool:
        """Return True if some of the available cases were not selected, or an interruption ended the run."""
        return bool(self.measured.unfinished) or len(self.measured.scope.cases) < len(available)


def evaluate(thresholds: Thresholds, measured: Measured) -> Evaluation:
    """Apply the thresholds to the case results of a run."""
    evaluator, scope = GateEvaluator(thresholds, measured), measured.scope

    def by_length(gate: Gate) -> FindingsByLength:
        return {length: evaluator.finding(gate, length) for length in scope.lengths}

    has_answers = scope.signal != "likelihood"
    verdicts = (
        *(evaluator.verdicts() if has_answers else ()),
        *(regression_verdicts(evaluator) if has_answers else ()),
        *(phase_verdicts(evaluator) if has_answers else ()),
        *likelihood_verdicts(evaluator),
    )
    return Evaluation(
        thresholds=thresholds,
        measured=measured,
        verdicts=tuple(_unless_interrupted(verdict, measured) for verdict in verdicts),
        likelihood=panel_likelihoods(evaluator),
        diagnoses=diagnoses(evaluator),
        ruler=by_length(HEADLINE),
        aspects={
            aspect: by_length(replace(HEADLINE, aspect=aspect))
            for aspect in dict.fromkeys(scope.ruler_aspects.values())
        },
        categories={category: by_length(estimate_gate(category)) for category in CATEGORIES},
        curves=curves(evaluator),
    )


def _unless_interrupted(verdict: Verdict, measured: Measured) -> Verdict:
    """Return the verdict, or "not measured" if it was undecided when an interruption ended one of its lengths."""
    lengths = {case.length for case in measured.scope.cases if case.id in measured.unfinished}
    is_open = verdict.verdict in ("inconclusive", "underpowered")
    if not is_open or not lengths or verdict.length not in (None, *lengths):
        return verdict
    reason = f"interrupted after {verdict.samples:,} of {verdict.of:,} samples"
    return replace(
        verdict, verdict="not measured", measured=None, interval=None, model_interval=None, confidence=None,
        reason=reason,
    )  # fmt: skip
