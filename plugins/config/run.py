"""The record of one pytest run: everything that is measured, and with which settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fixtures.checkpoints.checkpoint import Checkpoint
from fixtures.engines.openai.endpoint import Endpoint
from fixtures.records import Case, Options
from fixtures.tasks import FAMILIES, TASKS
from plugins.config.baseline import Baseline
from plugins.gates.hypotheses import Scope
from plugins.gates.panels import ModelRole
from plugins.gates.thresholds import Reference, Thresholds
from plugins.journal import sample_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One pytest run. The controller builds it from the command line and sends it to every worker.

    The fields with an empty default are set only if the run measures something, not if its cases are only listed.
    """

    id: str = ""
    """A new id for every start of pytest."""

    options: Options

    checkpoint: Checkpoint
    """The checkpoint under test."""

    cases: tuple[Case, ...]
    """Every case that the options select, including those in `unavailable` and `misfits`."""

    unavailable: dict[str, str] = field(default_factory=dict)
    """The cases that lack data, a judge or enough length, keyed by case id, with the reason; they are skipped."""

    misfits: dict[str, str] = field(default_factory=dict)
    """The cases that do not fit their length or this machine, keyed by case id, with the reason; they fail."""

    chat: bool = False
    """True if the prompts use a chat template."""

    corpora: str = ""
    """The fingerprint of the texts that samples are made from."""

    prompts: str = ""
    """The fingerprint of the wording of all prompts."""

    formatter: str = ""
    """The fingerprint of the tokenizer and chat template that make the prompts; every worker loads them again."""

    scorers: tuple[str, ...] = ()
    """The mode of scoring, the judge and the entailment model, as parts of `samples`."""

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
    """The model that the checkpoint is compared with."""

    draw_rates: dict[str, float] = field(default_factory=dict)
    """By case id, the rates at which samples are drawn; 1 for a case without one."""

    deadline: float | None = None
    """The Unix time in seconds after which no sample and no request to a server is started; None without --budget."""

    endpoint: Endpoint | None = None
    """The server that runs the model; None if the workers load the checkpoint, or if no model is run."""

    def engine_settings(self, role: ModelRole) -> dict[str, Any]:
        """Return the keyword arguments for the engine of the model or the baseline.

        A server runs only the model under test; the baseline is always loaded by the workers.
        """
        options = self.options
        common = {"batch_size": options.batch_size, "thinking_tokens": options.thinking_budget}
        if self.endpoint is not None and role == "model":
            served = {"endpoint": self.endpoint, "timeout_seconds": options.request_timeout, "deadline": self.deadline}
            return {"engine": "openai"} | served | common
        names = ("device", "dtype", "attention", "prefill_chunk")
        local = {name: getattr(options, name) for name in names} | {"gpus": options.gpus_per_worker}
        return {"engine": "hf"} | local | common

    @property
    def available(self) -> tuple[Case, ...]:
        """The cases that have the data and the judge they need."""
        return tuple(case for case in self.cases if case.id not in self.unavailable)

    @property
    def measurable(self) -> tuple[Case, ...]:
        """The available cases that also fit their length and this machine."""
        return tuple(case for case in self.available if case.id not in self.misfits)

    def key(self, case: Case, index: int) -> str:
        """Return the key of a sample in the journal; models that read the same samples share it."""
        return sample_key(self.samples, case.version, self.options.seed, case.task, case.length, index)

    def scope(self, selected: Sequence[Case]) -> Scope:
        """Return the facts about this run that its gates depend on, for the selected cases."""
        categories: Mapping[str, str] = {name: task.category for name, task in TASKS.items() if task.suite == "ruler"}
        return Scope(
            lengths=self.options.lengths,
            cases=selected,
            reference=self.yardstick or self.thresholds.references["aligned" if self.chat else "base"],
            ruler_aspects=categories,
            claimed_length=self.checkpoint.claimed_length,
            misfits=frozenset(self.misfits),
            seed=self.options.seed,
            has_baseline=self.baseline is not None,
            baseline_is_final=self.baseline is not None and self.baseline.checkpoint is None,
            full=self.options.full,
            draw_rates=self.draw_rates,
            signal=self.options.signal,
            task_families={**FAMILIES, **{case.task: case.family for case in self.cases}},
        )
