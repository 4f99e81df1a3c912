"""The values of a [[gate]] table that need more than one key or a rule of their own."""

from __future__ import annotations

from collections.abc import Mapping

from fixtures.records import sweep_name
from plugins.gates.toml_table import TomlTable

# The largest threshold of a gate on likelihood: nats per token, and points.
LARGEST_MEASURES = {"gain": 5.0, "recovery": 100.0}
# The numbers modulo which positions can be compared: strides of compressed caches, and sizes of their blocks.
MODULI = (2, 4, 8, 16, 64)


def required_score(table: TomlTable, measure: str | None, selection: str) -> float | None:
    """Return the value of `above`; None for "reference", which has no score for a `selection` that is not empty."""
    above = measure_threshold(table, measure) if measure else table.score_or_reference("above")
    if above is None and selection:
        raise table.error(f"above = 'reference' has no score for {selection}; write a number")
    return above


def measure_threshold(table: TomlTable, measure: str) -> float:
    """Return the threshold of a gate on likelihood."""
    if "category" in table and ("aspect" in table or "tasks" in table):
        raise table.error("give category, aspect or tasks, not several of them")
    if "above" not in table:
        raise table.error("above is missing; write a gain in nats per token, or a recovery from 0 to 100")
    return table.number("above", default=0, minimum=0, maximum=LARGEST_MEASURES[measure])


def gate_tasks(table: TomlTable, known_tasks: Mapping[str, str]) -> tuple[str, ...]:
    """Return the tasks that a gate names, which all belong to one family."""
    if "tasks" not in table:
        return ()
    tasks = table.value("tasks", list, "a list of task names")
    if "aspect" in table:
        raise table.error("give aspect or tasks, not both")
    if not tasks:
        raise table.error("tasks is empty; name at least one, or leave it out for the whole suite")
    for task in tasks:
        if not isinstance(task, str) or task not in known_tasks:
            raise table.error(f"unknown task {task!r}; known are {', '.join(known_tasks)}")
    families = sorted({known_tasks[task] for task in tasks})
    if len(families) > 1:
        raise table.error(f"tasks of {' and '.join(families)} have no common mean; write a gate for each")
    return tuple(tasks)


def gate_lengths(table: TomlTable) -> tuple[int, ...]:
    """Return the lengths in tokens that a gate names; empty for all lengths of the run."""
    if "lengths" not in table:
        return ()
    lengths = table.value("lengths", list, 'a list such as ["8k"]')
    if not lengths:
        raise table.error("lengths is empty; name at least one, or leave it out for every tested length")
    return tuple(table.length("lengths", length) for length in lengths)


def at_least(table: TomlTable) -> int | None:
    """Return the required length in tokens; None for "claimed"."""
    if "at_least" not in table:
        raise table.error('at_least is missing; write "claimed" or a length such as "32k"')
    value = table.values["at_least"]
    return None if value == "claimed" else table.length("at_least", value)


def tasks_and_moduli(
    table: TomlTable, known_tasks: Mapping[str, str], *, has_phases: bool
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the tasks that a gate names; for one on phases their sweeps, and the moduli in ascending order."""
    tasks = gate_tasks(table, known_tasks)
    if not has_phases:
        return tasks, ()
    if not tasks:
        raise table.error("tasks is missing; write a list of needle tasks")
    moduli = _moduli(table)
    return tuple(sweep_name(task, max(moduli)) for task in tasks), moduli


def _moduli(table: TomlTable) -> tuple[int, ...]:
    given = table.values.get("modulo")
    moduli = given if isinstance(given, list) else [given]
    if not moduli or any(type(modulus) is not int or modulus not in MODULI for modulus in moduli):
        raise table.error(f"modulo is {given!r}; write one of {', '.join(map(str, MODULI))}, or a list of them")
    return tuple(sorted(set(moduli)))
