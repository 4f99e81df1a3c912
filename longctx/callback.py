"""A callback of transformers' Trainer that measures the model while it trains.

trainer.add_callback(LongContextCallback(trainer, every_steps=500, lengths="4k", task_names=["niah_single_2"]))
"""

import warnings
from collections.abc import Collection
from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from longctx.measurement import check_measurement
from longctx.measuring import Report, measure

PREFIX = "longctx/"


class LongContextCallback(TrainerCallback):
    """Measure the model every N steps and log its scores where the trainer logs its loss."""

    def __init__(
        self, trainer: Trainer, *, every_steps: int, task_names: Collection[str] | None = None, **options: Any
    ):
        """Create the callback; `task_names` and `options` are those of `longctx.measure`.

        Raises ValueError or TypeError, as `longctx.measure` does, for whatever would keep it from measuring later, and
        ValueError for a model that is spread over processes.
        """
        if not isinstance(every_steps, int) or every_steps < 1:
            raise ValueError(f"every_steps: {every_steps}; give a whole number of at least 1")
        if given := sorted(options.keys() & {"name", "step"}):
            raise TypeError(f"{given[0]}: the callback gives that of the training; leave it out")
        if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
            raise ValueError(
                "trainer: no process has the whole model under FSDP or DeepSpeed; save checkpoints and measure them "
                "with `longctx watch`"
            )
        if trainer.processing_class is None:
            raise ValueError("trainer: has no processing_class; give Trainer the model's tokenizer")
        self.trainer = trainer
        self.every_steps = every_steps
        self.task_names = task_names
        self.options = options
        self.reports: dict[int, Report] = {}
        """The reports by step."""
        check_measurement(self._model, trainer.processing_class, name="step 0", tasks=task_names, options=options)

    @property
    def _model(self) -> Any:
        return self.trainer.accelerator.unwrap_model(self.trainer.model)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        """Measure after every N-th step, in the first process; a measurement that fails is a warning."""
        step = state.global_step
        if step % self.every_steps or not state.is_world_process_zero:
            return
        try:
            report = measure(
                self._model, self.trainer.processing_class, task_names=self.task_names, name=f"step {step}", step=step,
                **self.options,
            )  # fmt: skip
        except Exception as error:  # whatever it is, hours of training are worth more
            warnings.warn(f"longctx: step {step} was not measured: {error}", stacklevel=2)
            return
        errors = [case["error"] for case in report.document["cases"] if case["error"]]
        if errors:
            warnings.warn(f"longctx: step {step}: {len(errors)} cases without a score: {errors[0]}", stacklevel=2)
        self.reports[step] = report
        # A log of the trainer resets this, and the loss would not be logged.
        should_log = control.should_log
        self.trainer.log({f"{PREFIX}{name}": value for name, value in report.metrics.items()})
        control.should_log = should_log
