"""thresholds.toml, read strictly: an unknown key or an impossible number stops the run before it starts."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from fixtures.lengths import LengthError, parse_length

SHIPPED = Path(__file__).parents[2] / "thresholds.toml"
ASPECTS = ("retrieval", "tracing", "aggregation", "qa")
CATEGORIES = ("recall", "rag", "cite", "rerank", "icl", "longqa", "summ")
KINDS = ("level", "effective_length", "weighted_average", "category")
GATE_KEYS = {
    "level": ("name", "kind", "aspect", "tasks", "above", "blocking", "lengths"),
    "effective_length": ("name", "kind", "aspect", "tasks", "above", "blocking", "at_least"),
    "weighted_average": ("name", "kind", "aspect", "tasks", "above", "blocking", "weights"),
    "category": ("name", "kind", "category", "above", "blocking", "lengths"),
}


class ThresholdsError(ValueError):
    """A thresholds file that cannot be used; one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The yardstick's scores, 0 to 100: `mean` over the suite and one per aspect."""

    source: str
    scores: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One [[gate]] table, on RULER's tasks, a `category` of HELMET, or named tasks of one of these.

    `above` None means: the reference's score for the same tasks.
    """

    name: str
    kind: Literal["level", "effective_length", "weighted_average", "category"]
    aspect: str | None
    category: str | None
    tasks: tuple[str, ...]
    above: float | None
    blocking: bool
    lengths: tuple[int, ...]
    at_least: int | None
    rising: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictSettings:
    """The [verdict] table: how sure a verdict must be.

    `indifference_zone` (points) is the width on either side of a threshold within which a verdict may go either
    way. `precision` (points) is how well a mean must be known that no gate asks for: to within so much on either
    side, 0 for all samples. `inconclusive` says how a blocking gate counts that the time budget left undecided.
    """

    confidence: float = 0.99
    indifference_zone: float = 0.0
    precision: float = 12.5
    inconclusive: Literal["pass", "fail"] = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionSettings:
    """The [regression] table, which applies with --baseline.

    `drop` (points) is what a panel's mean must not have lost, `clear` (None: half of it) what is not yet
    a loss. `population`: both are about the planned samples, not about the model that they were drawn
    to tell of; then no comparison of all of them stays open. `false_discoveries` is the share of wrong
    ones among the cases called worse.
    """

    drop: float = 2.0
    inconclusive: Literal["pass", "fail"] = "pass"
    blocking: bool = True
    false_discoveries: float = 0.05
    cases: Literal["fail", "report"] = "fail"
    clear: float | None = None
    population: bool = False

    @property
    def clear_points(self) -> float:
        """`clear` in points, given or not."""
        return self.drop / 2 if self.clear is None else self.clear


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """A thresholds file. `floors` (0 to 100) are by task."""

    references: Mapping[str, Reference]
    gates: tuple[Gate, ...]
    verdict: VerdictSettings = VerdictSettings()
    regression: RegressionSettings = RegressionSettings()
    floors: Mapping[str, float] = field(default_factory=dict)


def load_thresholds(path: Path, *, known_tasks: Mapping[str, str]) -> Thresholds:
    """The file's content; raises ThresholdsError naming file, place, value and what is accepted.

    `known_tasks` are all tasks with their families.
    A file without [reference] tables uses those of the shipped thresholds.toml.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ThresholdsError(f"--thresholds: cannot read {path} ({error.strerror}); give a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ThresholdsError(f"--thresholds: {path} is not TOML: {error}") from error
    try:
        return _thresholds(data, known_tasks)
    except ThresholdsError as error:
        raise ThresholdsError(f"--thresholds: {path}: {error}") from error


def _thresholds(data: Mapping[str, Any], known_tasks: Mapping[str, str]) -> Thresholds:
    _only(data, ("reference", "verdict", "regression", "floor", "gate"), "the file")
    references = _table(data["reference"], "[reference]") if "reference" in data else _shipped_references()
    _only(references, ("aligned", "base"), "[reference]")
    if set(references) != {"aligned", "base"}:
        raise ThresholdsError("[reference.aligned] and [reference.base] must both be there, or neither")
    gates = data.get("gate", [])
    if not isinstance(gates, list) or not all(isinstance(gate, dict) for gate in gates):
        raise ThresholdsError("gate: write each gate as a [[gate]] table")
    read = tuple(_gate(gate, known_tasks) for gate in gates)
    names = [gate.name for gate in read]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ThresholdsError(f"two gates are named {twice!r}; give each its own name")
    return Thresholds(
        references={kind: _reference(kind, table) for kind, table in references.items()},
        gates=read,
        verdict=_certainty(_table(data.get("verdict", {}), "[verdict]")),
        regression=_regression(_table(data.get("regression", {}), "[regression]")),
        floors=_floors(_table(data.get("floor", {}), "[floor]"), known_tasks),
    )


def _shipped_references() -> Mapping[str, Any]:
    references: Mapping[str, Any] = tomllib.loads(SHIPPED.read_text(encoding="utf-8"))["reference"]
    return references


def _reference(kind: str, data: Any) -> Reference:
    place = f"[reference.{kind}]"
    table = _table(data, place)
    _only(table, ("source", "mean", *ASPECTS), place)
    source = _read(table, "source", place, str, "a sentence that names the source")
    return Reference(source=source, scores={name: _score(table, name, place) for name in ("mean", *ASPECTS)})


def _gate(table: Mapping[str, Any], known_tasks: Mapping[str, str]) -> Gate:
    name = _read(table, "name", "[[gate]]", str, "a name")
    place = f"[[gate]] {name!r}"
    kind = _choice(table, "kind", place, KINDS)
    _only(table, GATE_KEYS[kind], place)
    aspect = _choice(table, "aspect", place, ASPECTS) if "aspect" in table else None
    tasks = tuple(_read(table, "tasks", place, list, "a list of task names")) if "tasks" in table else ()
    _check_tasks(table, place, aspect, tasks, known_tasks)
    category = _choice(table, "category", place, CATEGORIES) if kind == "category" else None
    above = None if table.get("above") == "reference" else _score(table, "above", place, or_reference=True)
    if above is None and (tasks or category):
        what = "a list of tasks" if tasks else "a category"
        raise ThresholdsError(f"{place}: above = 'reference' has no score for {what}; write a number")
    rising = kind == "weighted_average" and _choice(table, "weights", place, ("rising", "falling")) == "rising"
    lengths = _read(table, "lengths", place, list, 'a list such as ["8k"]') if "lengths" in table else []
    if "lengths" in table and not lengths:
        raise ThresholdsError(f"{place}: lengths is empty; name at least one, or leave it out for every tested length")
    return Gate(
        name=name,
        kind=kind,
        aspect=aspect,
        category=category,
        tasks=tasks,
        above=above,
        blocking=_read(table, "blocking", place, bool, "true or false") if "blocking" in table else True,
        lengths=tuple(_length(length, place, "lengths") for length in lengths),
        at_least=_at_least(table, place) if kind == "effective_length" else None,
        rising=rising,
    )


def _certainty(table: Mapping[str, Any]) -> VerdictSettings:
    _only(table, ("confidence", "zone", "precision", "inconclusive"), "[verdict]")
    least = VerdictSettings()
    return VerdictSettings(
        confidence=_number(table, "confidence", "[verdict]", least.confidence, 0.5, 0.9999),
        indifference_zone=_number(table, "zone", "[verdict]", least.indifference_zone, 0, 50),
        precision=_number(table, "precision", "[verdict]", least.precision, 0, 50),
        inconclusive=_optional_choice(table, "inconclusive", "[verdict]", ("pass", "fail"), least.inconclusive),
    )


def _regression(table: Mapping[str, Any]) -> RegressionSettings:
    place, usual = "[regression]", RegressionSettings()
    _only(table, tuple(field.name for field in fields(RegressionSettings)), place)
    blocking = _read(table, "blocking", place, bool, "true or false") if "blocking" in table else usual.blocking
    drop = _number(table, "drop", place, usual.drop, 0.1, 100)
    clear = _number(table, "clear", place, drop / 2, 0, 100) if "clear" in table else None
    if clear is not None and clear >= drop:
        raise ThresholdsError(f"{place}: clear is {clear:g}; write a number below drop, which is {drop:g}")
    return RegressionSettings(
        drop=drop,
        clear=clear,
        population=_read(table, "population", place, bool, "true or false") if "population" in table else False,
        inconclusive=_optional_choice(table, "inconclusive", place, ("pass", "fail"), usual.inconclusive),
        blocking=blocking,
        false_discoveries=_number(table, "false_discoveries", place, usual.false_discoveries, 0.0001, 0.5),
        cases=_optional_choice(table, "cases", place, ("fail", "report"), usual.cases),
    )


def _floors(table: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, float]:
    unknown = next((task for task in table if task not in known), None)
    if unknown is not None:
        raise ThresholdsError(f"[floor]: unknown task {unknown!r}; known are {', '.join(known)}")
    return {task: _score(table, task, "[floor]") for task in table}


def _check_tasks(
    table: Mapping[str, Any], place: str, aspect: str | None, tasks: tuple[Any, ...], known: Mapping[str, str]
) -> None:
    if aspect is not None and "tasks" in table:
        raise ThresholdsError(f"{place}: give aspect or tasks, not both")
    if "tasks" in table and not tasks:
        raise ThresholdsError(f"{place}: tasks is empty; name at least one, or leave it out for the whole suite")
    unknown = next((task for task in tasks if not isinstance(task, str) or task not in known), None)
    if unknown is not None:
        raise ThresholdsError(f"{place}: unknown task {unknown!r}; known are {', '.join(known)}")
    families = sorted({known[task] for task in tasks})
    if len(families) > 1:
        raise ThresholdsError(f"{place}: tasks of {' and '.join(families)} have no common mean; write a gate for each")


def _at_least(table: Mapping[str, Any], place: str) -> int | None:
    """Tokens, or None for `claimed`."""
    if "at_least" not in table:
        raise ThresholdsError(f'{place}: at_least is missing; write "claimed" or a length such as "32k"')
    return None if table["at_least"] == "claimed" else _length(table["at_least"], place, "at_least")


def _length(value: Any, place: str, key: str) -> int:
    if isinstance(value, str | int) and not isinstance(value, bool):
        try:
            return parse_length(str(value))
        except LengthError:
            pass
    raise ThresholdsError(f'{place}: {key} has {value!r}; write a length such as "8k" or 8192')


def _score(table: Mapping[str, Any], key: str, place: str, *, or_reference: bool = False) -> float:
    value = table.get(key)
    wanted = 'a score from 0 to 100, or "reference"' if or_reference else "a score from 0 to 100"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= 100:  # type: ignore[operator]  # checked: a number
        raise ThresholdsError(f"{place}: {key} is {'missing' if value is None else repr(value)}; write {wanted}")
    return float(value)  # type: ignore[arg-type]  # checked: a number


def _number(table: Mapping[str, Any], key: str, place: str, usual: float, least: float, most: float) -> float:
    value = table.get(key, usual)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ThresholdsError(f"{place}: {key} is {value!r}; write a number from {least:g} to {most:g}")
    return float(value)


def _optional_choice(table: Mapping[str, Any], key: str, place: str, choices: tuple[str, ...], usual: str) -> Any:
    return _choice(table, key, place, choices) if key in table else usual


def _choice(table: Mapping[str, Any], key: str, place: str, choices: tuple[str, ...]) -> Any:
    value = table.get(key)
    if value not in choices:
        raise ThresholdsError(f"{place}: {key} is {value!r}; write one of {', '.join(choices)}")
    return value


def _read(table: Mapping[str, Any], key: str, place: str, wanted: type, words: str) -> Any:
    value = table.get(key)
    if not isinstance(value, wanted):
        raise ThresholdsError(f"{place}: {key} is {'missing' if value is None else repr(value)}; write {words}")
    return value


def _table(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ThresholdsError(f"{place} is {value!r}; write a table")
    return value


def _only(table: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    unknown = next((key for key in table if key not in known), None)
    if unknown is not None:
        raise ThresholdsError(f"{place} has an unknown key {unknown!r}; known are {', '.join(known)}")
