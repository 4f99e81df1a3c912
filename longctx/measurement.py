"""One measurement in this process: the run that options describe, its worker, and the evaluation."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

from ci.run_file import RunFile, RunFileError, run_options
from ci.suite_parser import suite_parser
from fixtures.engines import Engine, EngineError, execution_settings
from fixtures.installation import SUITE
from fixtures.records import Case
from longctx.measuring import Report
from plugins.config.check_values import check_values
from plugins.config.invocation import Invocation
from plugins.config.materials import Materials, load_materials
from plugins.config.models import load_formatter, resolve_model
from plugins.config.resolve import (
    complete_options,
    length_tasks,
    list_cases,
    prepare,
    read_options,
    read_thresholds,
)
from plugins.config.run import Run
from plugins.config.tasks_files import check_suite
from plugins.gates.diagnoses import case_blocks
from plugins.gates.evaluate import blocks
from plugins.gates.evaluation import Evaluation, evaluate
from plugins.journal import Heartbeat, Journal, JournalError
from plugins.report.document import RunSummary, document
from plugins.report.samples_jsonl import sample_lines
from plugins.runner.batches import ModelUnderTest
from plugins.runner.build_samples import SampleBuilder
from plugins.runner.case_report import CaseReport
from plugins.runner.read_journals import read_measured, subject_of
from plugins.runner.worker import Worker

# What only a run of pytest can do: other models beside this one, servers, workers, reports.
NOT_HERE = frozenset((
    "model", "baseline", "engine", "base-url", "serve", "served-model", "api", "request-timeout", "gpus-per-worker",
    "judge-model", "judge-url", "nli-model", "invariance", "tensorboard", "wandb", "workers", "select", "markers",
))  # fmt: skip
# A model in memory is where it is, and as it is.
OF_A_CHECKPOINT = frozenset(("device", "dtype", "attention", "trust-remote-code", "base-model", "convert"))


class Measurement:
    """A model with the options of its run, and the directories that last as long as this object."""

    def __init__(
        self, model: Any, tokenizer: Any, *, name: str, tasks: Collection[str] | None, options: Mapping[str, Any]
    ):
        self._stack = ExitStack()
        self._tasks = tasks
        self._model, self._tokenizer = model, tokenizer
        self._in_memory = not isinstance(model, str | Path)
        self._scratch = Path(self._stack.enter_context(TemporaryDirectory(prefix="longctx-")))
        self._started = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
        self.arguments = _arguments(name if self._in_memory else str(model), options, in_memory=self._in_memory)
        self.invocation = Invocation(
            arguments=self.arguments,
            root=SUITE,
            directory=Path.cwd(),
            local_workers=None,
            is_narrowed=tasks is not None,
            add_cleanup=self._stack.callback,
        )
        if self._in_memory:
            from longctx.in_memory import save_description

            self._checkpoint = save_description(model, tokenizer, self._scratch / "model", name=name)
            self.arguments.journal = self.arguments.journal or str(self._scratch / "journal")
        elif tokenizer is not None:
            raise TypeError("tokenizer: the checkpoint has its own; leave it out, or give a model in memory")

    def __enter__(self) -> Measurement:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def run(self) -> Report:
        """Measure the cases of the tasks, or all that the options select, and evaluate the run."""
        tasks = self._tasks
        check_values(self.arguments)
        options = read_options(self.invocation)
        thresholds, materials = read_thresholds(options), load_materials(options)
        checkpoint = self._checkpoint if self._in_memory else resolve_model(self.invocation)
        check_suite(options, materials)
        options = complete_options(options, checkpoint, length_tasks(options, materials))
        if self._in_memory:
            from longctx.in_memory import as_loaded

            options = replace(options, **as_loaded(self._model))
        run = list_cases(options, checkpoint, materials, thresholds)
        _check_names(run, tasks)
        if options.budget_minutes is not None:
            run = replace(run, deadline=time.time() + 60 * options.budget_minutes)
        run = prepare(run, materials, self.invocation)
        selected = tuple(case for case in run.available if tasks is None or case.task in tasks)
        reports = self._measure(run, materials, selected)
        evaluation = evaluate(run.thresholds, read_measured(run, selected, reports))
        return self._report(run, evaluation, reports)

    def _measure(self, run: Run, materials: Materials, selected: tuple[Case, ...]) -> dict[str, CaseReport]:
        directory = Path(run.options.journal)
        journal = Journal(directory, subject_of(run), Heartbeat(directory, run.id), run=run.id)
        worker = Worker(
            run,
            selected,
            builder=SampleBuilder(
                tasks=materials.tasks,
                formatter=load_formatter(run.options, run.options.model_path),
                corpora=materials.corpora,
                seed=run.options.seed,
            ),
            models={"model": ModelUnderTest(journal=journal, engine=lambda: self._engine(run))},
        )
        try:
            cases = sorted(selected, key=lambda case: case.length)
            return {case.id: _measured(worker, case) for case in cases}
        finally:
            worker.close()

    def _engine(self, run: Run) -> Engine:
        settings = run.engine_settings("model")
        if not self._in_memory:
            from plugins.workers import open_engine

            return open_engine(run, run.checkpoint, settings)
        from longctx.in_memory import engine_of

        return engine_of(self._model, self._tokenizer, run.checkpoint, self._stack, settings)

    def _report(self, run: Run, evaluation: Evaluation, reports: Mapping[str, CaseReport]) -> Report:
        started, clock = self._started
        summary = RunSummary(
            run=run,
            evaluation=evaluation,
            facts=next((report.facts for report in reports.values() if report.facts), None),
            execution=execution_settings(run.checkpoint, **run.engine_settings("model")),
            computed_samples=sum(report.computed_samples for report in reports.values()),
            started=started,
            seconds=time.monotonic() - clock,
        )
        narrowed = len(evaluation.measured.scope.cases) < len(run.available)
        failed = any(blocks(verdict, run.thresholds, narrowed=narrowed) for verdict in evaluation.verdicts)
        failed |= any(d.bad and case_blocks(d, run.thresholds) for d in evaluation.diagnoses.values())
        failed |= any(result.error is not None for result in evaluation.measured.results.values())
        return Report(
            document=document(summary),
            samples=tuple(json.loads(line) for line in sample_lines(summary)),
            passed=not failed,
        )


def _arguments(model: str, options: Mapping[str, Any], *, in_memory: bool) -> Namespace:
    """Return the options as pytest would parse them; raise TypeError for one that is unknown or has no meaning here."""
    given = {name.replace("_", "-"): value for name, value in options.items() if value is not None}
    refused = sorted(given.keys() & (NOT_HERE | OF_A_CHECKPOINT if in_memory else NOT_HERE))
    if refused:
        raise TypeError(f"{refused[0]}: has no meaning in longctx.measure{' of a model in memory' * in_memory}")
    try:
        words = run_options(RunFile(path=Path.cwd() / "longctx.measure", tables={"": given}))
    except RunFileError as error:
        raise TypeError(str(error).partition(": ")[2]) from None
    parsed = suite_parser("longctx.measure", "").parse_args(words)
    parsed.model, parsed.collectonly = model, False
    return parsed


def _check_names(run: Run, names: Collection[str] | None) -> None:
    """Raise ValueError for a task without a case in the run."""
    missing = sorted(set(names or ()) - {case.task for case in run.available})
    if missing:
        raise ValueError(f"task_names: no case of {missing[0]!r} in this run; longctx tasks lists all")


def _measured(worker: Worker, case: Case) -> CaseReport:
    """Measure a case, and return its report; an error is in the report."""
    if case.id in worker.run.misfits:
        return CaseReport(error=worker.run.misfits[case.id])
    before = worker.computed_samples
    try:
        end = worker.measure(case)
    except (EngineError, JournalError) as error:
        return CaseReport(error=str(error))
    return CaseReport(
        error=end.error,
        samples=end.samples,
        likelihoods=end.likelihoods,
        computed_samples=worker.computed_samples - before,
        executions={role: model.journal.subject.execution for role, model in worker.models.items()},
        facts=worker.facts,
    )
