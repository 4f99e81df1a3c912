"""The facts of a run: its options, checkpoint, cases, thresholds and baseline."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from longctx.fixtures.checkpoints.checkpoint import Checkpoint
from longctx.fixtures.records import Case, Options
from longctx.fixtures.records.report import ReportDifference
from longctx.plugins.thresholds.records import Reference, Thresholds


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The model that a checkpoint is compared with."""

    name: str
    fingerprint: str
    journal: str
    """The directory of the journal that has or gets its results."""
    checkpoint: Checkpoint | None = None
    """The checkpoint to run as far as pairs are needed; None if the journal has all results there will be."""
    execution: Mapping[str, str] = field(default_factory=dict)
    """The engine settings under which the journal has the results of a report; empty for a checkpoint."""
    path: str | None = None
    """The directory of the checkpoint that a report is about; None for a checkpoint."""
    has_other_tokenizer: bool = False
    """True if its tokenizer is another one, whose ids of every prompt have to be compared with the model's."""
    limit: str = ""
    """The reason why nothing can be added to the results of a report; empty if something can, or need not."""
    differences: tuple[ReportDifference, ...] | None = None
    """What differs between the two checkpoints besides the values of weights; None unless both are on disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """The facts of one pytest run, as its reports show them: the part of `Run` that needs no task and no engine.

    The fields with an empty default are set only if the run measures something, not if its cases are only listed.
    """

    id: str = ""
    """A new id for every start of pytest."""
    options: Options
    checkpoint: Checkpoint
    cases: tuple[Case, ...]
    """Every case that the options select, including those in `unavailable` and `misfits`."""
    left_out: frozenset[str] = frozenset()
    """The ids of the cases that were not named and whose prompts are longer than their length."""
    unavailable: dict[str, str] = field(default_factory=dict)
    """The cases that lack data, a judge or enough length, keyed by case id, with the reason; they are skipped."""
    misfits: dict[str, str] = field(default_factory=dict)
    """The cases that do not fit their length or this machine, keyed by case id, with the reason; they fail."""
    chat: bool = False
    thought_warning: str = ""
    """One line about a thought that the chat template opens, and that is closed; may be empty."""
    checkpoint_warnings: tuple[str, ...] = ()
    """One line each about decoding settings that are ignored, and about weights that were most likely never written."""
    corpora: str = ""
    """The fingerprint of the texts that samples are made from."""
    prompts: str = ""
    """The fingerprint of the wording of all prompts."""
    rubrics: Literal["own", "helmet"] = "own"
    """The rubrics of the judge: this project's, or HELMET's from the prompt file."""
    samples: str = ""
    """The fingerprint of everything that decides prompts and scores: runs that share it have the same samples."""
    yardstick: Reference | None = None
    """The reference scores that `above = "reference"` means; None for those of base or, with a chat template, aligned
    models."""
    yardstick_warning: str = ""
    """One line about doubts in the choice of the yardstick; may be empty."""
    thresholds: Thresholds
    """The gates and look schedule, limited to the families of tasks that the run has."""
    baseline: Baseline | None = None

    @property
    def wanted(self) -> tuple[Case, ...]:
        """The available cases, and those left out because their prompts do not fit."""
        return tuple(case for case in self.cases if case.id in self.left_out or case.id not in self.unavailable)

    @property
    def available(self) -> tuple[Case, ...]:
        """The cases that have the data and the judge they need."""
        return tuple(case for case in self.cases if case.id not in self.unavailable)

    @property
    def measurable(self) -> tuple[Case, ...]:
        """The available cases that also fit their length and this machine."""
        return tuple(case for case in self.available if case.id not in self.misfits)
