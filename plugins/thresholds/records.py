"""The records of a thresholds file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from longctx.fixtures.installation import SUITE
from longctx.fixtures.lengths import format_length
from longctx.fixtures.records import UndecidedEffect
from longctx.fixtures.records.report_parts import GateKind

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
