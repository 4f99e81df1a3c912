"""The gates of a run by the names that are printed, and the selection of some of them."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from longctx.fixtures.lengths import format_length
from longctx.fixtures.shown_text import known_names
from longctx.plugins.thresholds.records import COMPARED_KINDS, Gate, Thresholds
from longctx.plugins.verdicts.hypotheses import Scope
from longctx.plugins.verdicts.regression import comparison_name


class SelectionError(ValueError):
    """A gate that cannot be selected; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedGate:
    """A gate as it is printed: a level gate once for every length, the comparison with a baseline once for each."""

    name: str
    """The name of its verdict, such as "mean at 4k"."""
    gate: Gate | None
    """The gate of the thresholds file, about this length only; None for the comparison with the baseline."""
    cases: tuple[str, ...]
    """The ids of the cases it needs."""
    missing: tuple[str, ...]
    """The tasks and lengths it needs that are not in the run, such as "vt-4k"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeywordSelection:
    gates: Sequence[NamedGate]
    is_negated: bool
    """True if these are the gates to leave out."""


def named_gates(thresholds: Thresholds, scope: Scope) -> dict[str, NamedGate]:
    """Return all gates of a run by name, in the order in which they are printed. `scope` holds the available cases."""
    named = []
    for gate in thresholds.gates:
        if gate.kind in ("level", "category", "likelihood", *COMPARED_KINDS):
            named += [
                _with_cases(gate.verdict_name(length), replace(gate, lengths=(length,)), scope, (length,))
                for length in scope.verdict_lengths(gate)
            ]
        else:
            named.append(_with_cases(gate.name, gate, scope, scope.lengths))
    if scope.has_baseline:
        keys = dict.fromkeys((case.family, case.length) for case in scope.cases)
        for gate in thresholds.own_comparisons:
            for family, length in sorted(keys, key=lambda key: key[1]):
                cases = tuple(case.id for case in scope.cases if (case.family, case.length) == (family, length))
                name = comparison_name(family, length, gate.kind)
                named.append(NamedGate(name=name, gate=None, cases=cases, missing=()))
    return {item.name: item for item in named}


def choose(named: Mapping[str, NamedGate], texts: Iterable[str]) -> list[NamedGate]:
    """Return the gates that are meant by ids such as "gate[mean at 4k]" or names; raise SelectionError.

    The name of a level gate in the thresholds file means the gate at all its lengths.
    """
    chosen: dict[str, NamedGate] = {}
    for text in texts:
        matches = _matches(named, text)
        if not matches:
            near = known_names(_name(text), named, words="the gates of this run are")
            raise SelectionError(f"no gate is named {_name(text)!r}; {near}")
        chosen |= {gate.name: gate for gate in matches}
    return list(chosen.values())


def read_keyword(keyword: str, named: Mapping[str, NamedGate]) -> _KeywordSelection | None:
    """Return the gates that the text of -k names; None if it is about tests. Raises SelectionError.

    It names gates by ids such as "gate[mean at 4k]", joined by "or", after "not" those to leave out. A name with a
    space needs no brackets: pytest itself takes none. Any other word remains a keyword of tests.
    """
    is_negated = keyword.startswith("not ")
    text = keyword.removeprefix("not ").strip()
    parts = [text] if _matches(named, text) else [part.strip() for part in text.split(" or ")]
    are_gates = [_name(part) != part or (" " in part and bool(_matches(named, part))) for part in parts]
    if not any(are_gates):
        return None
    if not all(are_gates):
        raise SelectionError(f"-k: {keyword!r} selects gates and tests; give one or the other")
    return _KeywordSelection(gates=choose(named, parts), is_negated=is_negated)


def required_cases(chosen: Sequence[NamedGate]) -> tuple[str, ...]:
    """Return the ids of the cases that the gates need; raise SelectionError if the run lacks one of them."""
    for item in chosen:
        if item.missing:
            raise SelectionError(
                f"the gate {item.name!r} needs {', '.join(item.missing)}, which this run does not have; "
                "add the length to --lengths, or the data of the task"
            )
    return tuple(dict.fromkeys(case for item in chosen for case in item.cases))


def restrict(thresholds: Thresholds, chosen: Collection[NamedGate]) -> Thresholds:
    """Return the thresholds with the chosen gates only, each at the chosen lengths only."""
    gates: list[Gate] = []
    for gate in thresholds.gates:
        parts = [item.gate for item in chosen if item.gate is not None and item.gate.name == gate.name]
        if parts:
            lengths = tuple(length for part in parts for length in part.lengths)
            gates.append(replace(gate, lengths=lengths))
    return replace(thresholds, gates=tuple(gates))


def _matches(named: Mapping[str, NamedGate], text: str) -> list[NamedGate]:
    name = _name(text)
    return [gate for gate in named.values() if name in (gate.name, gate.gate and gate.gate.name)]


def _name(text: str) -> str:
    """Return the name in an id, with or without the thresholds file; any other text as it is."""
    match = re.fullmatch(r"(?:[^\[]*::)?gate\[(.*)\]", text)
    return match[1] if match else text


def _with_cases(name: str, gate: Gate, scope: Scope, lengths: Sequence[int]) -> NamedGate:
    available = {(case.task, case.length): case.id for case in scope.cases}
    cases, missing = [], []
    for task in scope.tasks_of(gate):
        for length in lengths:
            if (task, length) in available:
                cases.append(available[task, length])
            else:
                missing.append(f"{task}-{format_length(length)}")
    return NamedGate(name=name, gate=gate, cases=tuple(cases), missing=tuple(missing))
