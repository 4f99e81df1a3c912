"""The evaluation of one run: case results in; verdicts and diagnoses out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from longctx.fixtures.records import Case, Verdict
from longctx.fixtures.records.report import ReportEndings
from longctx.plugins.thresholds.records import CATEGORIES, Gate, Thresholds
from longctx.plugins.verdicts.diagnoses import Diagnosis, compare_endings, diagnoses
from longctx.plugins.verdicts.evaluate import GateEvaluator, Measured
from longctx.plugins.verdicts.hypotheses import HEADLINE, estimate_gate
from longctx.plugins.verdicts.likelihood_gates import PanelLikelihood, likelihood_verdicts, panel_likelihoods
from longctx.plugins.verdicts.regression import regression_verdicts

FindingsByLength = Mapping[int, Verdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The one evaluation of a run that gate tests, exit code and every report read."""

    thresholds: Thresholds
    measured: Measured
    """The selected cases and the results that came back for them."""
    verdicts: tuple[Verdict, ...]
    """The verdicts of the gates on scores in the order of the thresholds file, then those of the baseline comparison,
    then those of the gates on likelihood."""
    diagnoses: Mapping[str, Diagnosis]
    """The floor and baseline tests of every case that has a score, by case id."""
    ruler: FindingsByLength
    """The mean over all RULER tasks against the reference score."""
    aspects: Mapping[str, FindingsByLength]
    """The mean over the RULER tasks of each aspect against the reference score of that aspect."""
    categories: Mapping[str, FindingsByLength]
    """The estimated mean of each HELMET category."""
    likelihood: tuple[PanelLikelihood, ...] = ()
    """The likelihoods of gold answers on every panel where some were measured."""
    endings: ReportEndings | None = None
    """The answers that ended by themselves, compared with the baseline's; None if nothing was compared."""

    def is_narrowed(self, wanted: Sequence[Case]) -> bool:
        """Return True if some of the wanted cases were not selected, or an interruption ended the run."""
        return bool(self.measured.unfinished) or len(self.measured.scope.cases) < len(wanted)


def evaluate(thresholds: Thresholds, measured: Measured) -> Evaluation:
    evaluator, scope = GateEvaluator(thresholds, measured), measured.scope

    def by_length(gate: Gate) -> FindingsByLength:
        return {length: evaluator.finding(gate, length) for length in scope.lengths}

    has_answers = scope.signal != "likelihood"
    on_answers = (*evaluator.verdicts(), *regression_verdicts(evaluator)) if has_answers else ()
    verdicts = [*on_answers, *likelihood_verdicts(evaluator)]
    interrupted = {case.length for case in scope.cases if case.id in measured.unfinished}
    for place, verdict in enumerate(verdicts):
        is_open = verdict.verdict == "undecided" and verdict.because != "not shown"
        if is_open and interrupted and verdict.length in (None, *interrupted):
            verdicts[place] = structs.replace(
                verdict, verdict="not measured", measured=None, interval=None, model_interval=None, confidence=None,
                because="interrupted", change=None,
            )  # fmt: skip
    return Evaluation(
        thresholds=thresholds,
        measured=measured,
        verdicts=tuple(verdicts),
        likelihood=panel_likelihoods(evaluator),
        diagnoses=diagnoses(evaluator),
        endings=compare_endings(evaluator),
        ruler=by_length(HEADLINE),
        aspects={
            aspect: by_length(replace(HEADLINE, aspect=aspect))
            for aspect in dict.fromkeys(scope.ruler_aspects.values())
        },
        categories={category: by_length(estimate_gate(category)) for category in CATEGORIES},
    )
