"""A thresholds file: its records, and how it is read. A wrong value stops a run before it starts.

Every error is one line that names the file, the table, the key, the value and the accepted ones. A key that a table
does not have is an error too, because a misspelt key would otherwise silently have no effect.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from longctx.fixtures.installation import SUITE
from longctx.fixtures.lengths import LengthError, format_length, parse_length
from longctx.fixtures.outside_files import read_outside
from longctx.fixtures.records import UndecidedEffect
from longctx.fixtures.records.report_parts import GateKind
from longctx.fixtures.shown_text import known_names, visible_line

SHIPPED = SUITE / "thresholds.toml"
Aspect = Literal["retrieval", "tracing", "aggregation", "qa"]
ASPECTS: tuple[str, ...] = get_args(Aspect)
Category = Literal["recall", "rag", "cite", "rerank", "icl", "longqa", "summ"]
CATEGORIES: tuple[str, ...] = get_args(Category)
# A score of up to this is more likely a share that was meant as one from 0 to 1.
LARGEST_SHARE = 2.0
# Tokens. No task of the suites fits a length below it.
SHORTEST = 128
# Those that compare with the baseline.
COMPARED_KINDS: tuple[GateKind, ...] = ("regression", "change")

# The command that lists all tasks.
TASKS = "longctx tasks"
# The largest threshold of a gate on likelihood: nats per token, and points.
LARGEST_MEASURES = {"gain": 5.0, "recovery": 100.0}


class ThresholdsError(ValueError):
    """A thresholds file that cannot be used; one line with the file, the table, the value and the accepted ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The scores of the reference model of RULER's paper (Hsieh et al. 2024), one [reference] table."""

    source: str
    scores: Mapping[str, float]
    """From 0 to 100: `mean` over all tasks, and one score for each aspect."""
    texts: str = ""
    """The texts that the scores were measured on, in words; empty for those of the run."""
    samples: str = ""
    """The fingerprint of these texts and of the prompts; empty if it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One [[gate]] table: a requirement on the mean of some tasks, which belong to one family."""

    name: str
    kind: GateKind
    aspect: str | None = None
    """The aspect of RULER whose tasks the gate is about; None for other selections of tasks."""
    category: str | None = None
    """The category of HELMET that the gate is about; None for a gate on RULER or on named tasks."""
    tasks: tuple[str, ...] = ()
    """The names of the tasks that the gate is about; empty for all tasks of the aspect, category or RULER."""
    above: float | None = None
    """The score from 0 to 100 that the mean must exceed; None for the reference model's score on the same tasks.

    For likelihood, the gain in nats per token or the recovery in points.
    """
    blocking: bool = True
    """True if a failure fails the run."""
    lengths: tuple[int, ...] = ()
    """The lengths in tokens that the gate is about; empty for all lengths of the run."""
    at_least: int | None = None
    """The effective length in tokens that is required; None for the length that the checkpoint claims."""
    rising: bool = False
    """True if a weighted average gives the longest length the most weight, False if the shortest."""
    measure: Literal["gain", "recovery"] | None = None
    """The measure of a gate on likelihood; None for other gates."""
    drop: float | None = None
    """The loss in points against the baseline that a gate on a regression allows; None where another key says it."""
    relative_drop: float | None = None
    """The loss that a gate on a regression allows, in percent of the baseline's own mean."""
    changed: float | None = None
    """The mean change of scores, for the better or worse, that a gate on a change allows, in points."""
    undecided: UndecidedEffect | None = None
    """The effect of an undecided verdict on the run; None for the default, which depends on the reason."""

    @property
    def is_estimate(self) -> bool:
        """True for a gate that measures a category's mean and requires nothing."""
        return self.kind == "category" and self.above is None

    def verdict_name(self, length: int) -> str:
        """Return the name of the gate's verdict at one length."""
        return f"{self.name} at {format_length(length)}" if length else self.name


class VerdictSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"indifference_zone": "zone"}
):
    """The [verdict] table: how certain a verdict must be."""

    confidence: Annotated[float, Meta(ge=0.5, le=0.9999)] = 0.99
    """The probability that no blocking verdict of a run is wrong."""
    indifference_zone: Annotated[float, Meta(ge=0, le=50)] = 0.0
    """The distance from a threshold, in points, within which either verdict is accepted (`zone` in the file)."""
    precision: Annotated[float, Meta(ge=0, le=50)] = 12.5
    """The half width, in points, of the interval around a mean that no gate requires at which measuring it ends; 0 for
    all samples."""
    undecided: UndecidedEffect | None = None
    """The effect of an undecided gate that does not say it itself."""
    about: Literal["samples", "model"] = "samples"
    """What fails: planned samples whose mean is too low ("samples"), or a model that is shown to be below its threshold
    ("model"), as always in a series of runs."""


class RegressionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The [regression] table, which applies with --baseline."""

    drop: Annotated[float, Meta(ge=0.1, le=100)] = 2.0
    """The loss in points, of the mean at a length, that a pass rules out."""
    changed: Annotated[float, Meta(ge=0.1, le=100)] | None = None
    """The mean change of scores, for the better or worse, that is allowed, in points; None if any is."""
    undecided: UndecidedEffect | None = None
    """The effect of an undecided comparison; None if it fails only for a baseline with too few results."""
    about: Literal["model", "samples"] = "model"
    """What fails: a loss that is shown for the model ("model"), or any on the planned samples ("samples")."""
    blocking: bool = True
    """True if a failure fails the run."""
    false_discoveries: Annotated[float, Meta(ge=0.0001, le=0.5)] = 0.05
    """The largest expected share of wrong ones among the cases reported as worse."""
    cases: Literal["fail", "report"] = "report"
    """"fail" if a case reported as worse than the baseline fails the run. A case below its floor always does."""
    endings: Literal["fail", "report"] = "report"
    """"fail" if a model that is shown to end fewer of its answers by itself than the baseline fails the run."""
    extend: bool = True
    """True if the checkpoint of a report with too few results answers the missing samples, while it exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The content of a thresholds file."""

    references: Mapping[str, Reference]
    """The reference scores for models with a chat template (`aligned`) and without one (`base`)."""
    gates: tuple[Gate, ...]
    verdict: VerdictSettings = field(default_factory=VerdictSettings)
    regression: RegressionSettings = field(default_factory=RegressionSettings)
    floors: Mapping[str, float] = field(default_factory=dict)
    """The lowest acceptable scores, 0 to 100, by task."""
    notes: tuple[str, ...] = ()
    """One line for every key of the file that has another name now."""

    @property
    def own_comparisons(self) -> tuple[Gate, ...]:
        """The comparisons of all cases that the [regression] table asks for."""
        settings = self.regression
        loss = Gate(
            name="", kind="regression", drop=settings.drop, blocking=settings.blocking, undecided=settings.undecided
        )
        if settings.changed is None:
            return (loss,)
        return loss, replace(loss, name="change", kind="change", drop=None, changed=settings.changed)


def doubtful_units(thresholds: Thresholds) -> list[str]:
    """Return a line for every score that looks like a share from 0 to 1, and every length that looks like thousands.

    Nearly all models exceed them. A gain in nats is no score.
    """
    scores = {f"gate {gate.name!r}: above": gate.above for gate in thresholds.gates if gate.measure != "gain"}
    scores |= {f"[floor]: {task}": floor for task, floor in thresholds.floors.items()}
    lines = []
    for place, score in scores.items():
        if score is not None and 0 < score <= LARGEST_SHARE:
            meant = min(100, 100 * score)
            lines.append(f"{place} is {score:g}, but scores run from 0 to 100; {meant:g} may be meant")
    for gate in thresholds.gates:
        if gate.at_least is not None and gate.at_least < SHORTEST:
            lines.append(f"gate {gate.name!r}: at_least is {gate.at_least} tokens; {gate.at_least}k may be meant")
    return lines


# The description of a type completes "write ..." in an error.
Score = Annotated[float, Meta(ge=0, le=100, description="a score from 0 to 100")]
Tasks = Annotated[list[str], Meta(description="a list of task names")]
Lengths = Annotated[list[str | int], Meta(description='a list such as ["8k"]')]
Loss = Annotated[float, Meta(ge=0.1, le=100, description="a number from 0.1 to 100")]
Value = TypeVar("Value", bound=msgspec.Struct)
# Keys of older files with the keys that replaced them, by value.
OLD_KEYS: Mapping[tuple[str, str], Mapping[str, Mapping[str, str | bool]]] = {
    ("[verdict]", "inconclusive"): {"fail": {}, "pass": {"undecided": "pass"}},
    ("[verdict]", "near"): {"samples": {"about": "samples"}, "pass": {"about": "model"}},
    ("[regression]", "inconclusive"): {"pass": {}, "fail": {"undecided": "fail"}},
    ("[regression]", "lost_here"): {"report": {"about": "model"}, "fail": {"about": "samples"}},
    ("[regression]", "underpowered"): {
        "extend": {"extend": True}, "fail": {"extend": False}, "report": {"extend": False, "undecided": "pass"},
    },
    ("[regression]", "population"): {"True": {}},
    ("[regression]", "clear"): {},
}  # fmt: skip
REMOVED = {"population": "a loss is always tested for the model", "clear": "it is always half of drop"}


# The fields of a table have the names of its keys, in the order in which errors list them.
class _File(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    reference: Any = None
    verdict: Any = {}
    regression: Any = {}
    floor: Any = {}
    gate: Annotated[list[dict[str, Any]], Meta(description="each gate as a [[gate]] table")] = []


class _References(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    aligned: Any = None
    base: Any = None


class _Reference(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    source: Annotated[str, Meta(description="a sentence that names the source")]
    texts: Annotated[str, Meta(description="the texts that it was measured on")] = ""
    mean: Score
    retrieval: Score
    tracing: Score
    aggregation: Score
    qa: Score


class _NamedGate(msgspec.Struct):
    """The keys of every [[gate]] table; the kind decides which others it has."""

    name: Annotated[str, Meta(description="a name")]
    kind: GateKind


# The types of the keys of [[gate]] tables, and the defaults of those that may be left out.
KEYS: Mapping[str, tuple[Any, ...]] = {
    "name": (str,),
    "kind": (str,),
    "measure": (Literal["gain", "recovery"],),
    "aspect": (Aspect | None, None),
    "tasks": (Tasks | None, None),
    "category": (Category | None, None),
    "above": (Annotated[Score | Literal["reference"], Meta(description='a score from 0 to 100, or "reference"')],),
    "blocking": (bool, True),
    "undecided": (UndecidedEffect | None, None),
    "lengths": (Lengths | None, None),
    "at_least": (Annotated[str | int, Meta(description='"claimed" or a length such as "32k"')],),
    "weights": (Literal["rising", "falling"],),
    "drop": (Loss | None, None),
    "relative_drop": (Loss | None, None),
    "changed": (Loss,),
}
_GAIN = Annotated[float, Meta(ge=0, le=100, description="a gain in nats per token, or a recovery from 0 to 100")]
# The types that differ from these for one kind.
KEYS_OF_KIND: Mapping[tuple[str, str], tuple[Any, ...]] = {
    ("category", "category"): (
        Annotated[
            Category,
            Meta(
                description=f"one of HELMET's {', '.join(CATEGORIES)}; RULER's {', '.join(ASPECTS)} are "
                'each an aspect of kind "level"'
            ),
        ],
    ),
    ("likelihood", "above"): (_GAIN,),
}
_COMPARED = "name kind aspect tasks category blocking undecided lengths"
KINDS: Mapping[GateKind, str] = {
    "level": "name kind aspect tasks above blocking undecided lengths",
    "effective_length": "name kind aspect tasks above blocking undecided at_least",
    "weighted_average": "name kind aspect tasks above blocking undecided weights",
    "category": "name kind category above blocking undecided lengths",
    "likelihood": "name kind measure aspect tasks category above blocking undecided lengths",
    "regression": f"{_COMPARED} drop relative_drop",
    "change": f"{_COMPARED} changed",
}
"""The keys of each kind, in the order in which errors list them."""


def _gate_table(kind: GateKind) -> type[msgspec.Struct]:
    fields = [(key, *KEYS_OF_KIND.get((kind, key), KEYS[key])) for key in KINDS[kind].split()]
    return msgspec.defstruct("_Gate", fields, forbid_unknown_fields=True, kw_only=True)


GATE_TABLES = {kind: _gate_table(kind) for kind in KINDS}


def load_thresholds(
    path: Path, *, known_tasks: Mapping[str, str], required: Mapping[str, float] | None = None
) -> Thresholds:
    """Return the thresholds of a run; raise ThresholdsError for the first thing in a file that is not accepted.

    `known_tasks` maps all tasks to their families. `required` are the scores, 0 to 100, that tasks files require of
    their tasks: each makes a gate. A file without [reference] tables gets those of the file that this project ships.
    """
    try:
        data = tomllib.loads(read_outside(path).decode("utf-8"))
    except OSError as error:
        raise ThresholdsError(f"--thresholds: cannot read {path} ({error.strerror}); give a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ThresholdsError(f"--thresholds: {path} is not TOML: {error}; write it as in thresholds.toml") from error
    notes: list[str] = []
    try:
        file = _converted(data, _File, "the file")
        references = _references(file.reference)
        gates = [_gate(values, known_tasks) for values in file.gate]
        names = [gate.name for gate in gates]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two gates are named {name!r}; give each its own name")
        verdict = _settings(file.verdict, VerdictSettings, "[verdict]", notes)
        regression = _settings(file.regression, RegressionSettings, "[regression]", notes)
        floors = _floors(file.floor, known_tasks)
    except ValueError as error:
        raise ThresholdsError(f"--thresholds: {path}: {error}") from error
    for task, above in (required or {}).items():
        if task in names:
            raise ThresholdsError(
                f"--tasks-file: above of {task!r}: the thresholds have a gate of that name; remove one"
            )
        gates.append(Gate(name=task, kind="level", tasks=(task,), above=above))
    for place, gate in enumerate(gates):
        settings = regression if gate.kind in COMPARED_KINDS else verdict
        gates[place] = replace(gate, undecided=gate.undecided or settings.undecided)
    return Thresholds(
        references=references,
        gates=tuple(gates),
        verdict=verdict,
        regression=regression,
        floors=floors,
        notes=tuple(notes),
    )


def _settings(values: Any, table: type[Value], place: str, notes: list[str]) -> Value:
    """Return a table of settings, and note its keys that have another name now."""
    if not isinstance(values, dict):
        return _converted(values, table, place)
    current = dict(values)
    for (known_place, key), by_value in OLD_KEYS.items():
        if known_place != place or key not in current:
            continue
        value = current.pop(key)
        if str(value) not in by_value:
            problem = f"write one of {', '.join(by_value)}"
            if key in REMOVED:
                problem = f"remove it, because {REMOVED[key]}"
            raise ValueError(f"{place}: {key} is {value!r}; {problem}")
        replaced = by_value[str(value)]
        current = {**replaced, **current}
        lines = [f"{name} = {json.dumps(new)}" for name, new in replaced.items()]
        now = " and ".join(lines) or "the default"
        notes.append(f"{place}: {key} = {json.dumps(value)} is an old key; write {now}")
    return _converted(current, table, place)


def _floors(values: Any, known_tasks: Mapping[str, str]) -> dict[str, float]:
    if not isinstance(values, dict):
        raise ValueError(f"[floor] is {values!r}; write a table")
    for task, floor in values.items():
        if task not in known_tasks:
            raise ValueError(f"[floor]: unknown task {task!r}; {known_names(task, known_tasks, listed_by=TASKS)}")
        try:
            msgspec.convert(floor, Score)
        except msgspec.ValidationError as error:
            raise ValueError(f"[floor]: {task} is {floor!r}; write {_accepted(Score)}") from error
    return {task: float(floor) for task, floor in values.items()}


def _converted(values: Any, table: type[Value], place: str) -> Value:
    """Return a table as its record; raise ValueError with one line for a key or value that is not accepted."""
    if not isinstance(values, dict):
        raise ValueError(f"{place} is {values!r}; write a table")
    try:
        return msgspec.convert(values, table)
    except msgspec.ValidationError as error:
        fault = str(error)
    if unknown := re.match(r"Object contains unknown field `(.*)`$", fault, re.DOTALL):
        known = known_names(unknown[1], table.__struct_encode_fields__)
        raise ValueError(f"{place} has an unknown key {unknown[1]!r}; {known}")
    match = re.search(r"missing required field `(\w+)`|at `\$\.(\w+)", fault)
    assert match is not None, fault
    key = match[1] or match[2]
    name = dict(zip(table.__struct_encode_fields__, table.__struct_fields__, strict=True))[key]
    accepted = _accepted(get_type_hints(table, include_extras=True)[name])
    raise ValueError(f"{place}: {key} is {repr(values[key]) if key in values else 'missing'}; write {accepted}")


def _accepted(kind: Any) -> str:
    """Return the words for what a type accepts, which complete "write ..."."""
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if get_origin(kind) is Annotated:
        metas: Iterable[Meta] = reversed(kind.__metadata__)
        described = (meta.description or f"a number from {meta.ge:g} to {meta.le:g}" for meta in metas)
        return next(described)
    # The other member of a union is None, which TOML does not have.
    return "true or false" if kind is bool else _accepted(get_args(kind)[0])


def _references(values: Any) -> dict[str, Reference]:
    if values is None:
        values = tomllib.loads(SHIPPED.read_text(encoding="utf-8"))["reference"]
    tables = msgspec.structs.asdict(_converted(values, _References, "[reference]"))
    if None in tables.values():
        raise ValueError("[reference.aligned] and [reference.base] must both be there, or neither")
    references = {}
    for kind, scores in tables.items():
        table = _converted(scores, _Reference, f"[reference.{kind}]")
        values = msgspec.structs.asdict(table)
        source, texts = values.pop("source"), values.pop("texts")
        references[kind] = Reference(source=source, texts=texts, scores=values)
    return references


def _gate(values: Mapping[str, Any], known_tasks: Mapping[str, str]) -> Gate:
    name = values.get("name")
    place = f"[[gate]] {name!r}" if isinstance(name, str) else "[[gate]]"
    if values.get("kind") == "worst_phase":
        raise ValueError(f'{place}: kind "worst_phase" was removed; remove the gate, or use kind "level"')
    kind = _converted(values, _NamedGate, place).kind
    for key in sorted(KEYS.keys() & values.keys() - set(KINDS[kind].split())):
        kinds = [other for other, keys in KINDS.items() if key in keys.split()]
        raise ValueError(f"{place}: kind {kind!r} has no key {key!r}; it is one of {', '.join(kinds)}")
    given = msgspec.structs.asdict(_converted(values, GATE_TABLES[kind], place))
    try:
        return _checked_gate(given, _tasks(given, known_tasks))
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def _checked_gate(given: dict[str, Any], tasks: tuple[str, ...]) -> Gate:
    """Return the gate of a table with these tasks; raise ValueError for keys that contradict each other."""
    name, above, measure = given["name"], given.get("above"), given.get("measure")
    if not name.strip() or visible_line(name) != name:
        raise ValueError("its name is empty or has invisible characters; write a name that can be printed")
    if measure is not None and above is not None and above > LARGEST_MEASURES[measure]:
        raise ValueError(f"above is {above:g}; write a number from 0 to {LARGEST_MEASURES[measure]:g}")
    if name.split()[0] in COMPARED_KINDS:
        raise ValueError("its name is that of the comparison of all cases; write another one")
    if given["kind"] == "regression" and (given["drop"] is None) == (given["relative_drop"] is None):
        raise ValueError("give drop, in points, or relative_drop, in percent of the baseline's mean")
    if above == "reference":
        given["above"] = None
        selection = "a list of tasks" if tasks else "a category" if given.get("category") else ""
        if selection:
            raise ValueError(f"above = 'reference' has no score for {selection}; write a number")
    lengths, at_least = given.pop("lengths", None), given.pop("at_least", None)
    if lengths is not None and not lengths:
        raise ValueError("lengths is empty; name at least one, or leave it out for every tested length")
    given["lengths"] = tuple(_length("lengths", length) for length in lengths or ())
    given["rising"] = given.pop("weights", None) == "rising"
    if at_least not in (None, "claimed"):
        given["at_least"] = _length("at_least", at_least)
    return Gate(**given | {"tasks": tasks})


def _tasks(given: Mapping[str, Any], known_tasks: Mapping[str, str]) -> tuple[str, ...]:
    """Return the tasks that a gate names, which all belong to one family; empty where it names none."""
    tasks, aspect = given.get("tasks"), given.get("aspect")
    if tasks is not None and aspect is not None:
        raise ValueError("give aspect or tasks, not both")
    if given.get("category") is not None and (tasks is not None or aspect is not None):
        raise ValueError("give category, aspect or tasks, not several of them")
    if tasks is None:
        return ()
    if not tasks:
        raise ValueError("tasks is empty; name at least one, or leave it out for the whole suite")
    for task in tasks:
        if task not in known_tasks:
            raise ValueError(f"unknown task {task!r}; {known_names(task, known_tasks, listed_by=TASKS)}")
    families = sorted({known_tasks[task] for task in tasks})
    if len(families) > 1:
        raise ValueError(f"tasks of {' and '.join(families)} have no common mean; write a gate for each")
    return tuple(tasks)


def _length(key: str, value: str | int) -> int:
    try:
        return parse_length(str(value))
    except LengthError:
        raise ValueError(f'{key} has {value!r}; write a length such as "8k" or 8192') from None
