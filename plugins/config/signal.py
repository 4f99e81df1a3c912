"""The signal of a run: answers, the likelihood of gold answers, or both."""

from __future__ import annotations

from collections.abc import Sequence

from fixtures.records import Case, Options
from plugins.config.invocation import ConfigError
from plugins.gates.hypotheses import gate_family
from plugins.gates.thresholds import Gate, Thresholds


def check_signal(options: Options, thresholds: Thresholds, cases: Sequence[Case]) -> None:
    """Raise ConfigError if the run cannot measure the likelihoods that its options or its gates ask for."""
    gates = [gate for gate in thresholds.gates if gate.kind == "likelihood"]
    if options.signal == "answers":
        if gates:
            raise ConfigError(
                f"--signal: 'answers', but the gate {gates[0].name!r} in {options.thresholds} is about likelihood; "
                "use --signal both"
            )
        return
    if options.thinking_budget:
        raise ConfigError(
            f"--signal: {options.signal!r} with --thinking-budget {options.thinking_budget}, but no thought can come "
            "before a given answer; leave one of them out"
        )
    gold = {case.task for case in cases if case.has_gold}
    if not gold:
        raise ConfigError(
            f"--signal: {options.signal!r}, but no task of this run has an exact answer; "
            "use --suite ruler, or --signal answers"
        )
    for gate in gates:
        others = [task for task in _tasks_of(gate, cases) if task not in gold]
        if others:
            raise ConfigError(
                f"--thresholds: {options.thresholds}: the gate {gate.name!r} is about likelihood, but {others[0]} has "
                "no exact answer in this run; name other tasks"
            )


def without_gold(options: Options, cases: Sequence[Case]) -> dict[str, str]:
    """Return, by case id, why cases are skipped if nothing but likelihoods is measured."""
    if options.signal != "likelihood":
        return {}
    return {
        case.id: f"{case.task} has no exact answer whose likelihood could be measured; use --signal both"
        for case in cases
        if not case.has_gold
    }


def _tasks_of(gate: Gate, cases: Sequence[Case]) -> Sequence[str]:
    family = gate_family(gate, {case.task: case.family for case in cases})
    return gate.tasks or [case.task for case in cases if case.family == family and gate.aspect in (None, case.category)]
