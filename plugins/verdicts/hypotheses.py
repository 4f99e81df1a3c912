"""From gates to hypotheses: the panels of a run, and the hypotheses that a panel tests."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from longctx.fixtures.records import Case
from longctx.plugins.evidence.points import from_points
from longctx.plugins.evidence.sequential import ErrorShares, Hypothesis, NonInferiority
from longctx.plugins.thresholds.records import COMPARED_KINDS, Gate, Reference, Thresholds, VerdictSettings
from longctx.plugins.verdicts.panels import Comparison, Panel

# A family of tasks and a length in tokens.
PanelKey = tuple[str, int]
RULER = "ruler"
# The effective length on all of RULER is measured in every run that selects all its tasks, even if no gate requires it.
HEADLINE = Gate(name="effective length", kind="effective_length")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The facts about a run that its gates depend on and that are known before anything is measured."""

    lengths: tuple[int, ...]
    """All lengths of the run in tokens, shortest first."""
    cases: Sequence[Case]
    """The selected cases."""
    reference: Reference
    """The reference model's scores on RULER, which gates without a number of their own require."""
    ruler_aspects: Mapping[str, str]
    """All tasks of RULER with their aspect. A gate on RULER or on an aspect needs every one of its tasks."""
    claimed_length: int | None
    """The longest input that the checkpoint claims, in tokens; None if it makes no claim."""
    misfits: Collection[str] = field(default_factory=frozenset)
    """The ids of the cases whose samples cannot be built; they are in no queue."""
    seed: int = 0
    has_baseline: bool = False
    baseline_is_final: bool = False
    """True if no sample of the baseline will be added to those in its journal."""
    full: bool = False
    """True if all samples are measured, even if a verdict is final earlier."""
    is_finished: bool = False
    """True if nobody looked at the pairs before all samples were measured, so that the one look has the whole error."""
    is_in_turn: bool = False
    """True if the model and its baseline are loaded one after the other, so that many pairs are measured at a time."""
    signal: str = "answers"
    """`answers`, `likelihood` or `both`: the measured signal."""
    task_families: Mapping[str, str] = field(default_factory=dict)
    """All tasks with their family, the group of tasks that has a mean."""
    is_same_checkpoint: bool = False
    """True if the baseline is the checkpoint under test in the same execution, so that nothing need be compared."""
    chosen_from: int = 1
    """The number of checkpoints of which the baseline is the best. Against each of them a failure is as rare."""
    series: int = 1
    """The number of runs that share the probability of a wrong failure, as those of a watch do."""

    def cases_at(self, length: int) -> dict[str, Case]:
        return {case.task: case for case in self.cases if case.length == length}

    def tasks_of(self, gate: Gate) -> tuple[str, ...]:
        if gate.tasks:
            return gate.tasks
        if gate.category is not None:
            return tuple(task for task, family in self.task_families.items() if family == gate.category)
        return tuple(task for task, aspect in self.ruler_aspects.items() if gate.aspect in (None, aspect))

    def lengths_of(self, gate: Gate) -> tuple[int, ...]:
        return tuple(length for length in self.lengths if not gate.lengths or length in gate.lengths)

    def verdict_lengths(self, gate: Gate) -> list[int]:
        """Return the lengths at which a gate has a verdict: those of the run, and those that it names besides."""
        return sorted({*self.lengths_of(gate), *gate.lengths})

    def threshold_of(self, gate: Gate) -> float:
        """Return the score from 0 to 100 that a gate requires: its own number or the reference's for its tasks."""
        return gate.above if gate.above is not None else self.reference.scores[gate.aspect or "mean"]

    def required_length(self, gate: Gate) -> int:
        """Return the length that a gate requires; a claim requires the longest tested length within it."""
        if gate.at_least is not None:
            return gate.at_least
        claimed = self.claimed_length or max(self.lengths)
        return max((length for length in self.lengths if length <= claimed), default=min(self.lengths))


def fails_only_below(thresholds: Thresholds, scope: Scope) -> bool:
    """Return True if a gate on a mean fails only where the model is shown to be below its threshold."""
    return scope.series > 1 or thresholds.verdict.about == "model"


def estimate_gate(category: str) -> Gate:
    return replace(HEADLINE, kind="category", category=category)


def gate_family(gate: Gate, task_families: Mapping[str, str]) -> str:
    """Return the family whose panels a gate is about; the tasks of a gate all belong to one family."""
    return task_families.get(gate.tasks[0], RULER) if gate.tasks else gate.category or RULER


def build_panels(thresholds: Thresholds, scope: Scope) -> dict[PanelKey, Panel]:
    """Return the panels of a run, shortest length first.

    Every hypothesis of the run is tested at the same alpha, an equal part (Bonferroni) of the error probability that
    the thresholds allow; the comparisons with a baseline share another one.
    """
    families = tuple(dict.fromkeys(case.family for case in scope.cases))
    tested = {(case.family, case.length) for case in scope.cases}
    keys = [(family, length) for length in scope.lengths for family in families if (family, length) in tested]
    gates = [HEADLINE, *filter(_drives_sampling, thresholds.gates)]
    gate_hypotheses = {key: _gate_hypotheses(gates, scope, key) for key in keys}
    tests = 0
    for group in gate_hypotheses.values():
        tests += sum(hypothesis.threshold is not None for hypothesis in group)
    alpha = (1 - thresholds.verdict.confidence) / max(1, tests)
    below = ErrorShares.of_mean(alpha / scope.series) if fails_only_below(thresholds, scope) else None
    zone = from_points(thresholds.verdict.indifference_zone)
    comparisons = _comparisons(thresholds, scope, keys)
    panels = {}
    for key, group in gate_hypotheses.items():
        hypotheses = []
        for hypothesis in (*group, *_estimate_of_rest(group, scope, key, thresholds.verdict)):
            confirmation = None if hypothesis.threshold is None else below
            hypotheses.append(replace(hypothesis, alpha=alpha, confirmation=confirmation, indifference_zone=zone))
        panels[key] = Panel(
            *key, _buildable_cases(scope, key), seed=scope.seed, hypotheses=hypotheses,
            comparisons=comparisons[key], full=scope.full, is_in_turn=scope.is_in_turn,
        )  # fmt: skip
    return panels


def shared_error(thresholds: Thresholds, scope: Scope) -> float:
    """Return the error probability of one comparison with a baseline that can fail the run.

    That of all cases, the blocking gates and, where it fails the run, that of endings have equal parts (Bonferroni).
    """
    parts = len(thresholds.own_comparisons) + (thresholds.regression.endings == "fail")
    parts += sum(gate.blocking for gate in thresholds.gates if gate.kind in COMPARED_KINDS)
    # The best of several equal checkpoints is the one of the largest difference, so all comparisons share the error.
    return (1 - thresholds.verdict.confidence) / (scope.series * scope.chosen_from * parts)


def _comparisons(thresholds: Thresholds, scope: Scope, keys: Sequence[PanelKey]) -> dict[PanelKey, list[Comparison]]:
    """Return the comparisons of each panel with the baseline: that of all its cases, and those that gates ask for."""
    compared: dict[PanelKey, list[Comparison]] = {key: [] for key in keys}
    if not scope.has_baseline or scope.is_same_checkpoint:
        return compared
    for gate in thresholds.own_comparisons:
        hypothesis = _comparison_test(gate, thresholds, scope, panels=len(keys))
        for key in keys:
            compared[key].append(Comparison(hypothesis=hypothesis, gate=gate.name))
    for gate in thresholds.gates:
        if gate.kind in COMPARED_KINDS:
            tested = [key for key in keys if _has_cases(gate, scope, key)]
            hypothesis = _comparison_test(gate, thresholds, scope, panels=len(tested))
            for key in tested:
                case_ids = _case_ids(gate, scope, key)
                compared[key].append(Comparison(hypothesis=hypothesis, gate=gate.name, case_ids=case_ids))
    return compared


def _comparison_test(gate: Gate, thresholds: Thresholds, scope: Scope, *, panels: int) -> NonInferiority | Hypothesis:
    """Return the hypothesis of a comparison with a baseline, whose part of the error so many panels share."""
    error, shared = 1 - thresholds.verdict.confidence, shared_error(thresholds, scope)
    if gate.changed is not None:
        return Hypothesis(
            case_ids=frozenset(),
            threshold=1 - from_points(gate.changed),
            alpha=error,
            confirmation=ErrorShares.of_mean(shared / max(1, panels), is_finished=scope.is_finished),
        )
    is_confirmed = thresholds.regression.about == "model"
    return NonInferiority(
        drop=from_points(gate.drop or 0.0),
        relative_drop=from_points(gate.relative_drop or 0.0),
        # Without a test that confirms it, a failure is final, and all runs of a series share its error.
        alpha=(error if is_confirmed else shared) / max(1, panels),
        pass_alpha=error,
        confirmation=(ErrorShares.of_run(shared, panels, is_finished=scope.is_finished) if is_confirmed else None),
    )


def hypothesis_of(gate: Gate, scope: Scope, length: int, panel: Panel) -> Hypothesis:
    """Return the panel's hypothesis for a gate at a length, or one like it that does not drive sampling."""
    case_ids, threshold = _case_ids(gate, scope, (panel.family, length)), _threshold_share(gate, scope)
    for hypothesis in panel.hypotheses:
        if (hypothesis.case_ids, hypothesis.threshold) == (case_ids, threshold):
            return hypothesis
    return replace(panel.hypotheses[0], case_ids=case_ids, threshold=threshold, precision=0.0, drives_sampling=False)


def _gate_hypotheses(gates: Sequence[Gate], scope: Scope, key: PanelKey) -> list[Hypothesis]:
    """Return the distinct hypotheses of the gates on a panel, leaving out gates with a task that was not selected."""
    hypotheses: dict[Hypothesis, None] = {}
    for gate in gates:
        if not _has_cases(gate, scope, key):
            continue
        threshold = _threshold_share(gate, scope)
        hypotheses[Hypothesis(case_ids=_case_ids(gate, scope, key), threshold=threshold)] = None
    return list(hypotheses)


def _has_cases(gate: Gate, scope: Scope, key: PanelKey) -> bool:
    family, length = key
    tasks = scope.tasks_of(gate)
    is_about = gate_family(gate, scope.task_families) == family and length in scope.lengths_of(gate)
    return is_about and bool(tasks) and set(scope.cases_at(length)).issuperset(tasks)


def _drives_sampling(gate: Gate) -> bool:
    return gate.blocking and gate.kind not in ("likelihood", *COMPARED_KINDS)


def _threshold_share(gate: Gate, scope: Scope) -> float | None:
    """Return a gate's threshold from 0 to 1; None if the gate needs the mean itself.

    It does for an estimate, and for a weighted average over lengths, to which every length contributes.
    """
    return None if gate.kind == "weighted_average" or gate.is_estimate else from_points(scope.threshold_of(gate))


def _estimate_of_rest(
    hypotheses: Sequence[Hypothesis], scope: Scope, key: PanelKey, settings: VerdictSettings
) -> list[Hypothesis]:
    """Return an estimate, to the precision that the settings give, for the cases without a hypothesis.

    A baseline that runs too needs no estimate: the comparison decides how many of their samples are measured.
    """
    tested = frozenset[str]().union(*(hypothesis.case_ids for hypothesis in hypotheses))
    rest = frozenset(case.id for case in _buildable_cases(scope, key)) - tested
    if scope.has_baseline and not scope.baseline_is_final:
        rest = frozenset()
    estimate = Hypothesis(case_ids=rest, threshold=None, precision=from_points(settings.precision))
    return [estimate] if rest or not hypotheses else []


def _case_ids(gate: Gate, scope: Scope, key: PanelKey) -> frozenset[str]:
    tasks = scope.tasks_of(gate)
    return frozenset(case.id for case in _buildable_cases(scope, key) if case.task in tasks)


def _buildable_cases(scope: Scope, key: PanelKey) -> list[Case]:
    return [case for case in scope.cases if (case.family, case.length) == key and case.id not in scope.misfits]
