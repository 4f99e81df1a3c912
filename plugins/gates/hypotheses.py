"""From gates to hypotheses: the panels of a run, and the hypotheses that a panel tests."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fixtures.lengths import format_length
from fixtures.records import PHASES, Case
from plugins.gates.panels import Panel
from plugins.gates.points import from_points
from plugins.gates.sequential import Hypothesis, NonInferiority
from plugins.gates.thresholds import Gate, Reference, Thresholds, VerdictSettings

# A family of tasks and a length in tokens.
PanelKey = tuple[str, int]
RULER = "ruler"
# The effective length on all of RULER is measured in every run that selects all its tasks, even if no gate requires it.
HEADLINE = Gate(
    name="effective length", kind="effective_length", aspect=None, category=None, tasks=(), above=None, blocking=True,
    lengths=(), at_least=None, rising=False,
)  # fmt: skip


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

    signal: str = "answers"
    """`answers`, `likelihood` or `both`: what is measured."""

    task_families: Mapping[str, str] = field(default_factory=dict)
    """All tasks with their family, the group of tasks over which a mean is taken."""

    draw_rates: Mapping[str, float] = field(default_factory=dict)
    """By case id, the rates at which samples are drawn; 1 for a case without one."""

    def cases_at(self, length: int) -> dict[str, Case]:
        """Return the selected cases at a length, keyed by task."""
        return {case.task: case for case in self.cases if case.length == length}


def estimate_gate(category: str) -> Gate:
    """Return a gate that measures a category's mean and requires nothing."""
    return replace(HEADLINE, kind="category", category=category)


def threshold_of(gate: Gate, scope: Scope) -> float:
    """Return the score from 0 to 100 that a gate requires: its own number or the reference's for its tasks.

    For the worst phase, the largest difference that is allowed.
    """
    if gate.within is not None:
        return gate.within
    return gate.above if gate.above is not None else scope.reference.scores[gate.aspect or "mean"]


def is_estimate(gate: Gate) -> bool:
    """Return True for a gate that measures a category's mean and requires nothing."""
    return gate.category is not None and gate.above is None


def verdict_name(gate: Gate, length: int) -> str:
    """Return the name of a gate's verdict at one length."""
    return f"{gate.name} at {format_length(length)}"


def tasks_of(gate: Gate, scope: Scope) -> tuple[str, ...]:
    """Return the tasks whose mean a gate is about."""
    if gate.tasks:
        return gate.tasks
    if gate.category is not None:
        return tuple(task for task, family in scope.task_families.items() if family == gate.category)
    return tuple(task for task, aspect in scope.ruler_aspects.items() if gate.aspect in (None, aspect))


def gate_family(gate: Gate, task_families: Mapping[str, str]) -> str:
    """Return the family whose panels a gate is about; the tasks of a gate all belong to one family."""
    return task_families.get(gate.tasks[0], RULER) if gate.tasks else gate.category or RULER


def lengths_of(gate: Gate, scope: Scope) -> tuple[int, ...]:
    """Return the lengths of the run that a gate is about."""
    return tuple(length for length in scope.lengths if not gate.lengths or length in gate.lengths)


def build_panels(thresholds: Thresholds, scope: Scope) -> dict[PanelKey, Panel]:
    """Return the panels of a run, shortest length first.

    Every hypothesis of the run is tested at the same alpha, an equal part (Bonferroni) of the error probability that
    the thresholds allow; the comparisons with a baseline share another one.
    """
    families = tuple(dict.fromkeys(case.family for case in scope.cases))
    tested = {(case.family, case.length) for case in scope.cases}
    compared = {key for key in tested if is_compared(key[0], scope)}
    keys = [(family, length) for length in scope.lengths for family in families if (family, length) in tested]
    gates = [HEADLINE, *filter(_drives_sampling, thresholds.gates)]
    gate_hypotheses = {key: _gate_hypotheses(gates, scope, key) for key in keys}
    tests = sum(hypothesis.threshold is not None for group in gate_hypotheses.values() for hypothesis in group)
    error = 1 - thresholds.verdict.confidence
    non_inferiority = NonInferiority(
        drop=from_points(thresholds.regression.drop),
        clear=from_points(thresholds.regression.clear_points),
        alpha=error / max(1, len(compared)),
        finite_population=thresholds.regression.population,
    )
    return {
        key: Panel(
            *key,
            _buildable_cases(scope, key),
            seed=scope.seed,
            hypotheses=[
                replace(
                    hypothesis,
                    alpha=error / max(1, tests),
                    indifference_zone=from_points(thresholds.verdict.indifference_zone),
                )
                for hypothesis in (*group, *_estimate_of_rest(group, scope, key, thresholds.verdict))
            ],
            non_inferiority=non_inferiority if key in compared else None,
            full=scope.full,
            draw_rates=scope.draw_rates,
        )
        for key, group in gate_hypotheses.items()
    }


def is_compared(family: str, scope: Scope) -> bool:
    """Return True if the run compares the family with a baseline; phase sweeps compare a model with itself."""
    return scope.has_baseline and family != PHASES


def hypothesis_of(gate: Gate, scope: Scope, length: int, panel: Panel) -> Hypothesis:
    """Return the panel's hypothesis for a gate at a length, or one like it that does not drive sampling."""
    case_ids, threshold = _case_ids(gate, scope, (panel.family, length)), _threshold_share(gate, scope)
    for hypothesis in panel.hypotheses:
        if (hypothesis.case_ids, hypothesis.threshold, hypothesis.moduli) == (case_ids, threshold, gate.moduli):
            return hypothesis
    return Hypothesis(
        case_ids=case_ids,
        threshold=threshold,
        moduli=gate.moduli,
        indifference_zone=panel.hypotheses[0].indifference_zone,
        alpha=panel.hypotheses[0].alpha,
        drives_sampling=False,
    )


def _gate_hypotheses(gates: Sequence[Gate], scope: Scope, key: PanelKey) -> list[Hypothesis]:
    """Return the distinct hypotheses of the gates on a panel, leaving out gates with a task that was not selected."""
    family, length = key
    hypotheses: dict[Hypothesis, None] = {}
    for gate in gates:
        if gate_family(gate, scope.task_families) != family:
            continue
        tasks = tasks_of(gate, scope)
        if not tasks or not set(scope.cases_at(length)).issuperset(tasks) or length not in lengths_of(gate, scope):
            continue
        threshold = _threshold_share(gate, scope)
        hypotheses[Hypothesis(case_ids=_case_ids(gate, scope, key), threshold=threshold, moduli=gate.moduli)] = None
    return list(hypotheses)


def _drives_sampling(gate: Gate) -> bool:
    """Return True if samples are measured for a gate; those of a phase sweep are measured for nothing else."""
    return gate.kind == "worst_phase" or (gate.blocking and gate.kind != "likelihood")


def _threshold_share(gate: Gate, scope: Scope) -> float | None:
    """Return a gate's threshold from 0 to 1; None if the gate needs the mean itself.

    It does for an estimate, and for a weighted average over lengths, to which every length contributes.
    """
    return None if gate.kind == "weighted_average" or is_estimate(gate) else from_points(threshold_of(gate, scope))


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
    tasks = tasks_of(gate, scope)
    return frozenset(case.id for case in _buildable_cases(scope, key) if case.task in tasks)


def _buildable_cases(scope: Scope, key: PanelKey) -> list[Case]:
    return [case for case in scope.cases if (case.family, case.length) == key and case.id not in scope.misfits]


def required_length(gate: Gate, scope: Scope) -> int:
    """Return the length that the gate requires; a claim requires the longest tested length within it."""
    if gate.at_least is not None:
        return gate.at_least
    claimed = scope.claimed_length or max(scope.lengths)
    return max((length for length in scope.lengths if length <= claimed), default=min(scope.lengths))
