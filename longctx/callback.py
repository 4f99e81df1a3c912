"""A callback of transformers' Trainer that measures the model while it trains.

trainer.add_callback(LongContextCallback(trainer, every_steps=500, lengths="4k", task_names=["niah_single_2"]))
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from longctx.measuring import Report, measure

PREFIX = "longctx/"


class LongContextCallback(TrainerCallback):
    """Measure the model every N steps and log its scores where the trainer logs its loss."""

    def __init__(
        self, trainer: Trainer, *, every_steps: int, task_names: Collection[str] | None = None, **options: Any
    ):
        """Create the callback; `task_names` and `options` are those of `longctx.measure`.

        Raises ValueError for a number of steps below 1, and for a model that is spread over processes.
        """
        if every_steps < 1:
            raise ValueError(f"every_steps: {every_steps}; give a number of at least 1")
        if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
            raise ValueError(
                "trainer: no process has the whole model under FSDP or DeepSpeed; save checkpoints and measure them "
                "with `longctx watch`"
            )
        self.trainer = trainer
        self.every_steps = every_steps
        self.task_names = task_names
        self.options = options
        self.reports: dict[int, Report] = {}
        """The reports by step."""

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        """Measure after every N-th step, in the first process only; the others wait at their next exchange."""
        if state.global_step % self.every_steps or not state.is_world_process_zero:
            return
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        report = measure(
            model, self.trainer.processing_class, task_names=self.task_names, name=f"step {state.global_step}",
            step=state.global_step, **self.options,
        )  # fmt: skip
        self.reports[state.global_step] = report
        self.trainer.log({f"{PREFIX}{name}": value for name, value in report.metrics.items()})
