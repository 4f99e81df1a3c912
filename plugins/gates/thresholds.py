"""The thresholds file: its records, and the strict reading that stops a run before it starts."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from fixtures.outside_files import read_outside
from fixtures.shown_text import visible_line
from plugins.gates.gate_values import LARGEST_MEASURES, at_least, gate_lengths, required_score, tasks_and_moduli
from plugins.gates.toml_table import TomlTable

SHIPPED = Path(__file__).parents[2] / "thresholds.toml"
ASPECTS = ("retrieval", "tracing", "aggregation", "qa")
CATEGORIES = ("recall", "rag", "cite", "rerank", "icl", "longqa", "summ")
GATE_KEYS = {
    "level": ("name", "kind", "aspect", "tasks", "above", "blocking", "lengths"),
    "effective_length": ("name", "kind", "aspect", "tasks", "above", "blocking", "at_least"),
    "weighted_average": ("name", "kind", "aspect", "tasks", "above", "blocking", "weights"),
    "category": ("name", "kind", "category", "above", "blocking", "lengths"),
    "likelihood": ("name", "kind", "measure", "aspect", "tasks", "category", "above", "blocking", "lengths"),
    "worst_phase": ("name", "kind", "tasks", "modulo", "within", "blocking", "lengths"),
}
# The key in the file of the field `indifference_zone`.
ZONE_KEY = "zone"


class ThresholdsError(ValueError):
    """A thresholds file that cannot be used; one line with the file, the table, the value and what is accepted."""


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

    kind: Literal["level", "effective_length", "weighted_average", "category", "likelihood", "worst_phase"]

    aspect: str | None
    """The aspect of RULER whose tasks the gate is about; None for other selections of tasks."""

    category: str | None
    """The category of HELMET that the gate is about; None for a gate on RULER or on named tasks."""

    tasks: tuple[str, ...]
    """The names of the tasks (for the worst phase, of their sweeps) that the gate is about; empty for all tasks of the
    aspect, category or RULER."""

    above: float | None
    """The score from 0 to 100 that the mean must exceed; None for the reference model's score on the same tasks.

    For likelihood, the gain in nats per token or the recovery in points. None for the worst phase.
    """

    blocking: bool
    """True if a failure fails the run."""

    lengths: tuple[int, ...]
    """The lengths in tokens that the gate is about; empty for all lengths of the run."""

    at_least: int | None
    """The effective length in tokens that is required; None for the length that the checkpoint claims."""

    rising: bool
    """True if a weighted average gives the longest length the most weight, False if the shortest."""

    measure: Literal["gain", "recovery"] | None = None
    """The measure of a gate on likelihood; None for other gates."""

    within: float | None = None
    """The largest difference in points between two phases that a gate on the worst phase allows; None for others."""

    moduli: tuple[int, ...] = ()
    """The numbers modulo which a gate on the worst phase compares positions, in ascending order; empty for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictSettings:
    """The [verdict] table: how certain a verdict must be."""

    confidence: float = 0.99
    """The probability that no blocking verdict of a run is wrong."""

    indifference_zone: float = 0.0
    """The distance from a threshold, in points, within which either verdict is accepted (`zone` in the file)."""

    precision: float = 12.5
    """The half width, in points, of the interval around a mean that no gate requires at which measuring it ends; 0 for
    all samples."""

    inconclusive: Literal["pass", "fail"] = "fail"
    """The result of a blocking gate that the time budget left open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionSettings:
    """The [regression] table, which applies with --baseline; its fields have the names of the file's keys."""

    drop: float = 2.0
    """The loss in points, of the mean at a length, that a pass rules out."""

    inconclusive: Literal["pass", "fail"] = "pass"
    """The result of a comparison that stays open after all samples."""

    blocking: bool = True
    """True if a failure fails the run."""

    false_discoveries: float = 0.05
    """The largest expected share of wrong ones among the cases reported as worse."""

    cases: Literal["fail", "report"] = "report"
    """"fail" if a case reported as worse than the baseline fails the run. A case below its floor always does."""

    underpowered: Literal["extend", "fail", "report"] = "extend"
    """The use of a report with too few results as baseline: let its checkpoint answer the missing samples, else fail
    the run ("extend"); fail the run if the comparison stays open ("fail"); or only report that it does ("report")."""

    clear: float | None = None
    """The loss in points, below `drop`, that a failure exceeds for certain; None for half of `drop`."""

    population: bool = True
    """True if the losses are those on the planned samples, so that all of them always decide; False if they are
    those of the models, of which the samples are a part and a shared haystack is one observation."""

    @property
    def clear_points(self) -> float:
        """`clear`, or its default of half of `drop`."""
        return self.drop / 2 if self.clear is None else self.clear


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The content of a thresholds file."""

    references: Mapping[str, Reference]
    """The reference scores for models with a chat template (`aligned`) and without one (`base`)."""

    gates: tuple[Gate, ...]

    verdict: VerdictSettings = VerdictSettings()

    regression: RegressionSettings = RegressionSettings()

    floors: Mapping[str, float] = field(default_factory=dict)
    """The lowest acceptable scores, 0 to 100, by task."""


def load_thresholds(path: Path, *, known_tasks: Mapping[str, str]) -> Thresholds:
    """Read a thresholds file; raise ThresholdsError for the first thing in it that is not accepted.

    `known_tasks` maps all tasks to their families. A file without [reference] tables gets those of the file that
    this project ships.
    """
    try:
        data = tomllib.loads(read_outside(path).decode("utf-8"))
    except OSError as error:
        raise ThresholdsError(f"--thresholds: cannot read {path} ({error.strerror}); give a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ThresholdsError(f"--thresholds: {path} is not TOML: {error}") from error
    try:
        return _thresholds(data, known_tasks)
    except ValueError as error:
        raise ThresholdsError(f"--thresholds: {path}: {error}") from error


def _thresholds(data: Mapping[str, Any], known_tasks: Mapping[str, str]) -> Thresholds:
    file = TomlTable(data, "the file", ("reference", "verdict", "regression", "floor", "gate"))
    references = data["reference"] if "reference" in file else _shipped_references()
    TomlTable(references, "[reference]", ("aligned", "base"))
    if set(references) != {"aligned", "base"}:
        raise ValueError("[reference.aligned] and [reference.base] must both be there, or neither")
    return Thresholds(
        references={kind: _reference(kind, table) for kind, table in references.items()},
        gates=_gates(data.get("gate", []), known_tasks),
        verdict=_verdict_settings(data.get("verdict", {})),
        regression=_regression_settings(data.get("regression", {})),
        floors=_floors(data.get("floor", {}), known_tasks),
    )


def _shipped_references() -> Mapping[str, Any]:
    references: Mapping[str, Any] = tomllib.loads(SHIPPED.read_text(encoding="utf-8"))["reference"]
    return references


def _reference(kind: str, values: Any) -> Reference:
    table = TomlTable(values, f"[reference.{kind}]", ("source", "texts", "mean", *ASPECTS))
    source = table.value("source", str, "a sentence that names the source")
    texts = table.value("texts", str, "the texts that it was measured on") if "texts" in table else ""
    return Reference(source=source, texts=texts, scores={name: table.score(name) for name in ("mean", *ASPECTS)})


def _gates(values: Any, known_tasks: Mapping[str, str]) -> tuple[Gate, ...]:
    if not isinstance(values, list) or not all(isinstance(gate, dict) for gate in values):
        raise ValueError("gate: write each gate as a [[gate]] table")
    gates = tuple(_gate(gate, known_tasks) for gate in values)
    names = [gate.name for gate in gates]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two gates are named {name!r}; give each its own name")
    return gates


def _gate(values: Any, known_tasks: Mapping[str, str]) -> Gate:
    name = TomlTable(values, "[[gate]]").value("name", str, "a name")
    table = TomlTable(values, f"[[gate]] {name!r}")
    if not name.strip() or visible_line(name) != name:
        raise table.error("its name is empty or has invisible characters; write a name that can be printed")
    kind = table.choice("kind", tuple(GATE_KEYS))
    table.check_keys(GATE_KEYS[kind])
    aspect = table.choice("aspect", ASPECTS) if "aspect" in table else None
    tasks, moduli = tasks_and_moduli(table, known_tasks, has_phases=kind == "worst_phase")
    category = table.choice("category", CATEGORIES) if kind == "category" or "category" in table else None
    measure = table.choice("measure", tuple(LARGEST_MEASURES)) if kind == "likelihood" else None
    selection = "a list of tasks" if tasks else "a category" if category else ""
    return Gate(
        name=name,
        kind=kind,
        aspect=aspect,
        category=category,
        tasks=tasks,
        above=None if moduli else required_score(table, measure, selection),
        blocking=table.flag("blocking", default=True),
        lengths=gate_lengths(table),
        at_least=at_least(table) if kind == "effective_length" else None,
        rising=kind == "weighted_average" and table.choice("weights", ("rising", "falling")) == "rising",
        measure=measure,
        within=table.number("within", default=-1, minimum=1, maximum=90) if moduli else None,
        moduli=moduli,
    )


def _verdict_settings(values: Any) -> VerdictSettings:
    table = TomlTable(values, "[verdict]", ("confidence", ZONE_KEY, "precision", "inconclusive"))
    default = VerdictSettings()
    return VerdictSettings(
        confidence=table.number("confidence", default=default.confidence, minimum=0.5, maximum=0.9999),
        indifference_zone=table.number(ZONE_KEY, default=default.indifference_zone, minimum=0, maximum=50),
        precision=table.number("precision", default=default.precision, minimum=0, maximum=50),
        inconclusive=table.choice("inconclusive", ("pass", "fail"), default=default.inconclusive),
    )


def _regression_settings(values: Any) -> RegressionSettings:
    table = TomlTable(values, "[regression]", (entry.name for entry in fields(RegressionSettings)))
    default = RegressionSettings()
    drop = table.number("drop", default=default.drop, minimum=0.1, maximum=100)
    clear = table.number("clear", default=drop / 2, minimum=0, maximum=100) if "clear" in table else None
    if clear is not None and clear >= drop:
        raise table.error(f"clear is {clear:g}; write a number below drop, which is {drop:g}")
    return RegressionSettings(
        drop=drop,
        clear=clear,
        population=table.flag("population", default=default.population),
        inconclusive=table.choice("inconclusive", ("pass", "fail"), default=default.inconclusive),
        blocking=table.flag("blocking", default=default.blocking),
        false_discoveries=table.number(
            "false_discoveries", default=default.false_discoveries, minimum=0.0001, maximum=0.5
        ),
        cases=table.choice("cases", ("fail", "report"), default=default.cases),
        underpowered=table.choice("underpowered", ("extend", "fail", "report"), default=default.underpowered),
    )


def _floors(values: Any, known_tasks: Mapping[str, str]) -> dict[str, float]:
    table = TomlTable(values, "[floor]")
    for task in table.values:
        if task not in known_tasks:
            raise table.error(f"unknown task {task!r}; known are {', '.join(known_tasks)}")
    return {task: table.score(task) for task in table.values}
