"""From thresholds to questions: which panels a run has and what each has to answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fixtures.lengths import format_length
from fixtures.records import Case
from plugins.gates.panels import Panel
from plugins.gates.sequential import Hypothesis, NonInferiority
from plugins.gates.thresholds import Certainty, Gate, Reference, Thresholds

# A family of tasks and a length.
PanelKey = tuple[str, int]
RULER = "ruler"
# All of RULER against the yardstick is always asked where all its tasks were selected.
HEADLINE = Gate(
    name="effective length", kind="effective_length", aspect=None, category=None, tasks=(), above=None, blocking=True,
    lengths=(), at_least=None, rising=False,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """A run as gates see it before anything was measured.

    `lengths` are those of the whole run, `cases` those that were selected, `misfits` the ids of
    cases that cannot be built. `suite_tasks` are all tasks of RULER with their aspects: a gate
    on the suite or on an aspect needs each of them. `families` says of every task what it is averaged with.
    `claimed_length` is None where the checkpoint does not say. `paired`: there is a baseline, and
    `baseline_is_final` that none of its samples will come. `full`: no verdict ends a panel early.
    """

    lengths: tuple[int, ...]
    cases: Sequence[Case]
    reference: Reference
    suite_tasks: Mapping[str, str]
    claimed_length: int | None
    misfits: Collection[str] = field(default_factory=frozenset)
    seed: int = 0
    paired: bool = False
    baseline_is_final: bool = False
    full: bool = False
    families: Mapping[str, str] = field(default_factory=dict)

    def at(self, length: int) -> dict[str, Case]:
        """The selected cases at a length, by task."""
        return {case.task: case for case in self.cases if case.length == length}


def estimate_of(category: str) -> Gate:
    """The question how high a category is; nothing is decided by it."""
    return replace(HEADLINE, kind="category", category=category)


def threshold_of(gate: Gate, scope: Scope) -> float:
    """0 to 100: the gate's number, or the yardstick's score for its tasks."""
    return gate.above if gate.above is not None else scope.reference.scores[gate.aspect or "mean"]


def is_estimate(gate: Gate) -> bool:
    """Whether the gate asks how high a category is, and not whether it is high enough."""
    return gate.category is not None and gate.above is None


def name_at(gate: Gate, length: int) -> str:
    """The name of a gate's verdict at one length."""
    return f"{gate.name} at {format_length(length)}"


def tasks_of(gate: Gate, scope: Scope) -> tuple[str, ...]:
    if gate.tasks:
        return gate.tasks
    if gate.category is not None:
        return tuple(task for task, family in scope.families.items() if family == gate.category)
    return tuple(task for task, aspect in scope.suite_tasks.items() if gate.aspect in (None, aspect))


def family_of(gate: Gate, families: Mapping[str, str]) -> str:
    """Which family's panels the gate asks; a gate on tasks names those of one family."""
    return families.get(gate.tasks[0], RULER) if gate.tasks else gate.category or RULER


def lengths_of(gate: Gate, scope: Scope) -> tuple[int, ...]:
    """The run's lengths that a gate asks about."""
    return tuple(length for length in scope.lengths if not gate.lengths or length in gate.lengths)


def panels(thresholds: Thresholds, scope: Scope) -> dict[PanelKey, Panel]:
    """By family and length, shortest first. Cases that cannot be built have no place in a queue."""
    driving = [HEADLINE, *(gate for gate in thresholds.gates if gate.blocking)]
    families = tuple(dict.fromkeys(case.family for case in scope.cases))
    tested = {(case.family, case.length) for case in scope.cases}
    keys = [(family, length) for length in scope.lengths for family in families if (family, length) in tested]
    asked = {key: _questions(driving, scope, key) for key in keys}
    alpha = (1 - thresholds.verdict.confidence) / max(1, sum(len(_deciding(rules)) for rules in asked.values()))
    pairing = NonInferiority(
        drop=thresholds.regression.drop / 100,
        clear=thresholds.regression.not_yet / 100,
        alpha=(1 - thresholds.verdict.confidence) / max(1, len(tested)),
        population=thresholds.regression.population,
    )
    return {
        key: Panel(
            *key,
            _fitting(scope, key),
            seed=scope.seed,
            rules=[
                replace(rule, alpha=alpha, zone=thresholds.verdict.zone / 100)
                for rule in (*asked[key], *_rest(asked[key], scope, key, thresholds.verdict))
            ],
            pairing=pairing if scope.paired else None,
            full=scope.full,
        )
        for key in keys
    }


def rule_of(gate: Gate, scope: Scope, length: int, panel: Panel) -> Hypothesis:
    """The gate's question at a length as the panel asks it, or would ask it of a gate that drives nothing."""
    cases, threshold = _cases(gate, scope, (panel.family, length)), _threshold(gate, scope)
    alike = panel.rules[0]
    asked = next((rule for rule in panel.rules if (rule.cases, rule.threshold) == (cases, threshold)), None)
    return asked or Hypothesis(cases=cases, threshold=threshold, zone=alike.zone, alpha=alike.alpha, driving=False)


def _questions(gates: Sequence[Gate], scope: Scope, key: PanelKey) -> list[Hypothesis]:
    """What blocking gates ask of a panel, each question once; of gates whose tasks were not all selected, nothing."""
    family, length = key
    found: dict[Hypothesis, None] = {}
    for gate in gates:
        if family_of(gate, scope.families) != family:
            continue
        tasks = tasks_of(gate, scope)
        if not tasks or not set(scope.at(length)).issuperset(tasks) or length not in lengths_of(gate, scope):
            continue
        found[Hypothesis(cases=_cases(gate, scope, key), threshold=_threshold(gate, scope))] = None
    return list(found)


def _threshold(gate: Gate, scope: Scope) -> float | None:
    """0 to 1; None for a mean that rests on all that is there: an estimate, or a weighted one over lengths."""
    return None if gate.kind == "weighted_average" or is_estimate(gate) else threshold_of(gate, scope) / 100


def _deciding(rules: Sequence[Hypothesis]) -> list[Hypothesis]:
    return [rule for rule in rules if rule.threshold is not None]


def _rest(rules: Sequence[Hypothesis], scope: Scope, key: PanelKey, certainty: Certainty) -> list[Hypothesis]:
    """Cases that nothing decides on: a category until its mean is known well enough, those of RULER in full.

    With a baseline that runs too, the comparison decides.
    """
    decided = frozenset[str]().union(*(rule.cases for rule in rules))
    rest = frozenset(case.id for case in _fitting(scope, key)) - decided
    if scope.paired and not scope.baseline_is_final:
        rest = frozenset()
    precision = 0.0 if key[0] == RULER else certainty.precision / 100
    return [Hypothesis(cases=rest, threshold=None, precision=precision)] if rest or not rules else []


def _cases(gate: Gate, scope: Scope, key: PanelKey) -> frozenset[str]:
    tasks = tasks_of(gate, scope)
    return frozenset(case.id for case in _fitting(scope, key) if case.task in tasks)


def _fitting(scope: Scope, key: PanelKey) -> list[Case]:
    return [case for case in scope.cases if (case.family, case.length) == key and case.id not in scope.misfits]
