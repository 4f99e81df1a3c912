"""The `measure` fixture: measure a case on this worker and report counts and errors to the controller."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
import pytest

from fixtures.corpora import CorpusError
from fixtures.engines import Engine, EngineError, EngineFacts
from fixtures.engines.verified import replaced
from fixtures.records import PHASES, Case
from fixtures.scoring.judge import JudgeError
from fixtures.tasks import load_tasks
from fixtures.tasks.task import Assistants, Task
from fixtures.tokenization.load import TokenizerError
from fixtures.tokenization.prompts import PromptFormatter
from plugins.config.assistants import open_assistants, replies_of, scored_by
from plugins.config.baseline import finished_journal
from plugins.config.materials import load_run_corpora
from plugins.config.models import load_formatter
from plugins.config.run import Run
from plugins.controller import HELPED_SAMPLES
from plugins.gates.panels import ModelRole
from plugins.journal import FileSystemFault, Heartbeat, Journal, JournalError, probe_file_system
from plugins.options import RUN, case_of, cases_of, usage_error
from plugins.runner.batches import ModelUnderTest
from plugins.runner.build_samples import CASE_ERRORS, SampleBuilder
from plugins.runner.case_report import CaseReport
from plugins.runner.read_journals import subject_of
from plugins.runner.worker import Stopped, Worker
from plugins.workers import load_engine, worker_count

CASE_REPORT = pytest.StashKey[CaseReport]()
WORKER = pytest.StashKey[Worker]()


def pytest_configure(config: pytest.Config) -> None:
    """Check before any model is loaded that workers can share the journal's file system."""
    options = config.option
    if RUN not in config.stash or hasattr(config, "workerinput") or options.plan or options.preflight:
        return
    directory = Path(config.stash[RUN].options.journal)
    directory = directory if directory.is_dir() else directory.parent
    if not options.collectonly and directory.is_dir():
        try:
            probe_file_system(directory)
        except FileSystemFault as error:
            raise usage_error(error) from error
        except JournalError:
            # A finished journal gives its report also from a read-only place; all others fail with their first worker.
            return


class Measure:
    """The callable that a test gets to have its case measured, or only inspected under --preflight."""

    def __init__(self, worker: Worker, request: pytest.FixtureRequest):
        self.worker = worker
        self.request = request

    def __call__(self, case: Case) -> None:
        """Measure the case and keep its report; fail the test with one line if the case has no score."""
        run = self.worker.run
        if case.id in run.misfits:
            pytest.fail(run.misfits[case.id], pytrace=False)
        if run.options.preflight:
            self._inspect(case)
        else:
            self._measure(case)

    def _inspect(self, case: Case) -> None:
        try:
            inspection = self.worker.builder.inspect(case)
        except CASE_ERRORS as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None
        self.request.node.stash[CASE_REPORT] = CaseReport(inspection=inspection)
        problems = inspection.problems
        if problems:
            pytest.fail(f"preflight: {problems[0]} ({len(problems)} in all)", pytrace=False)

    def _measure(self, case: Case) -> None:
        worker, computed_before = self.worker, self.worker.computed_samples
        problem = ""
        try:
            measured = worker.measure(case)
        except (JournalError, EngineError, Stopped) as error:
            problem = str(error)
        # Fail outside of the except block: pytest would show the exception and its traceback too.
        if problem:
            pytest.fail(problem, pytrace=False)
        self.request.node.stash[CASE_REPORT] = CaseReport(
            error=measured.error,
            samples=measured.samples,
            likelihoods=measured.likelihoods,
            computed_samples=worker.computed_samples - computed_before,
            executions={role: model.journal.subject.execution for role, model in worker.models.items()},
            facts=_facts(worker),
        )
        if measured.error is not None:
            pytest.fail(measured.error, pytrace=False)
        if not (measured.samples or measured.likelihoods):
            pytest.skip("no sample was begun in time")


@pytest.fixture(scope="session")
def worker(request: pytest.FixtureRequest) -> Worker:
    """Return the worker of this process; if there can be none, every case fails with the same line."""
    try:
        return worker_of(request.session)
    except (JournalError, EngineError) as error:
        problem = str(error)
    pytest.fail(problem, pytrace=False)


@pytest.fixture
def measure(worker: Worker, request: pytest.FixtureRequest) -> Measure:
    """Return a function that measures a case."""
    return Measure(worker, request)


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Let a worker without tests help the others, unless the first failure ends the run."""
    ended = yield
    config = session.config
    helps = RUN in config.stash and hasattr(config, "workerinput") and not config.stash[RUN].options.preflight
    if helps and not (config.option.maxfail or session.shouldfail or session.shouldstop):
        # An error here also stops the workers that have a test of the case, and they report it.
        with suppress(Exception):
            worker = worker_of(session)
            computed_before = worker.computed_samples
            try:
                worker.help()
            finally:
                helped = worker.computed_samples - computed_before
                config.workeroutput[HELPED_SAMPLES] = helped  # type: ignore[attr-defined]  # set by xdist on workers
    return ended


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the worker, so that nobody waits for samples that it had claimed."""
    if WORKER in config.stash:
        config.stash[WORKER].close()


def worker_of(session: pytest.Session) -> Worker:
    """Return the worker of this process, which is built on first use; raise JournalError or EngineError."""
    config = session.config
    if WORKER not in config.stash:
        run = config.stash[RUN]
        config.stash[WORKER] = Worker(
            run,
            cases_of(run, [item.nodeid for item in session.items]),
            builder=SampleBuilder(
                tasks=_tasks(run),
                formatter=_formatter(run),
                corpora=load_run_corpora(run.options),
                seed=run.options.seed,
                assistants=_assistants(run),
            ),
            # A run that only inspects has no journal.
            models={} if run.options.preflight else _models(config, run),
            parent=os.getppid() if hasattr(config, "workerinput") else None,
            workers=worker_count(),
        )
    return config.stash[WORKER]


def _tasks(run: Run) -> Mapping[str, Task]:
    """Return the tasks of the run; raise EngineError if a question file is not the one that the run began with."""
    options = run.options
    try:
        sweeps = {case.task for case in run.cases if case.suite == PHASES}
        tasks = load_tasks(
            options.prompts, options.scoring, files=options.tasks, data_dir=options.data_dir, sweeps=sweeps
        )
        changed = [case.task for case in run.measurable if _is_changed(tasks[case.task], case)]
    except (CorpusError, KeyError) as error:
        raise EngineError(f"--tasks: the files were changed during the run ({error}); start again") from error
    if changed:
        raise EngineError(f"--tasks: the questions of {changed[0]} were changed during the run; start again")
    return tasks


def _is_changed(task: Task, case: Case) -> bool:
    return task.version is not None and task.version(case.length) != case.version


def _formatter(run: Run) -> PromptFormatter:
    """Return the formatter of the run's prompts; raise EngineError if it is not the one that the run began with."""
    problem = "its tokenizer or chat template"
    try:
        formatter = load_formatter(run.options, run.options.model_path, run.endpoint)
    except TokenizerError as error:
        raise EngineError(replaced(run.checkpoint, problem, "--model")) from error
    if formatter.fingerprint != run.formatter:
        raise EngineError(replaced(run.checkpoint, problem, "--model"))
    return formatter


def _assistants(run: Run) -> Assistants:
    """Return the judges of the run, none for one that only inspects.

    Raises JournalError if a judge is unreachable, and EngineError if the entailment model is another one.
    """
    if run.options.preflight:
        return Assistants()
    if scored_by(run.options) != run.scorers:
        raise EngineError(f"--nli-model: {run.options.nli_model} was replaced during the run; start again")
    try:
        replies = replies_of(run.options, f"{run.id}-{os.getpid()}")
        return open_assistants(run.options, replies, deadline=run.deadline)
    except JudgeError as error:
        raise JournalError(str(error)) from error


def _models(config: pytest.Config, run: Run) -> dict[ModelRole, ModelUnderTest]:
    """Return the model under test and the baseline, if there is one."""
    directory = Path(run.options.journal)
    heartbeat, unwritable = _heartbeat(directory, run.id)

    def running(role: ModelRole) -> ModelUnderTest:
        journal = Journal(directory, subject_of(run, role), heartbeat, run=run.id)
        return ModelUnderTest(journal=journal, engine=partial(_load_engine, config, role, unwritable))

    models: dict[ModelRole, ModelUnderTest] = {"model": running("model")}
    baseline = run.baseline
    if baseline is not None and baseline.checkpoint is not None:
        # A worker does not read its own file, so two journals of one subject would not see each other's results.
        same = subject_of(run, "baseline").key == models["model"].journal.subject.key
        models["baseline"] = models["model"] if same else running("baseline")
    elif baseline is not None:
        models["baseline"] = ModelUnderTest(journal=finished_journal(baseline), engine=None)
    return models


def _heartbeat(directory: Path, run: str) -> tuple[Heartbeat | None, JournalError | None]:
    """Return this worker's heartbeat or, for a journal that can only be read, the reason; raise JournalError."""
    try:
        heartbeat = Heartbeat(directory, run)
    except JournalError as error:
        if not directory.is_dir():
            raise
        # A finished journal gives its report also from a read-only place.
        return None, error
    try:
        probe_file_system(directory)
    except JournalError:
        heartbeat.close()
        raise
    return heartbeat, None


def _load_engine(config: pytest.Config, role: ModelRole, unwritable: JournalError | None) -> Engine:
    """Return the engine of a model; raise EngineError, or JournalError if no answer could be stored."""
    if unwritable is not None:
        raise JournalError(str(unwritable))
    return load_engine(config, role)


def _facts(worker: Worker) -> EngineFacts | None:
    """Return the facts of the loaded engine, else those in the journal; None if no engine was ever loaded."""
    noted = worker.models["model"].journal.facts
    return worker.facts or (msgspec.convert(noted[0], EngineFacts) if noted else None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the case report to pytest's report of the test, which xdist sends to the controller."""
    report = yield
    case = case_of(item)
    if case is not None and RUN in item.config.stash:
        case_report = item.stash.get(CASE_REPORT, None)
        if call.excinfo is not None and case_report is None:
            case_report = CaseReport(error=_first_line(call.excinfo.value))
        if case_report is not None and call.when != "teardown":
            # xdist sends plain types only.
            report.longctx = json.dumps(msgspec.to_builtins(case_report))  # type: ignore[attr-defined]  # reports take any attribute
        expected = (pytest.fail.Exception, pytest.skip.Exception)
        if call.excinfo is not None and not isinstance(call.excinfo.value, expected):
            report.longctx_unexpected = True  # type: ignore[attr-defined]  # as above
    return report


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
