"""What a test calls to have its case measured, and how the outcome reaches the controller."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fixtures.corpora import load_corpora
from fixtures.engines import EngineError, EngineFacts
from fixtures.preflight import Inspection
from fixtures.records import Case, CaseResult, from_json, to_json
from fixtures.scoring.judge import JudgeError
from fixtures.tasks import load_tasks
from fixtures.tasks.task import Assistants
from plugins.config.assistants import open_assistants, replies_of
from plugins.config.baseline import finished_journal
from plugins.config.models import load_formatter
from plugins.config.run import Run
from plugins.gates.panels import ModelRole
from plugins.journal import Heartbeat, Journal, JournalError
from plugins.options import RUN, case_of, cases_of
from plugins.runner.batches import ModelUnderTest
from plugins.runner.build_samples import CASE_ERRORS, SampleBuilder
from plugins.runner.panel_state import subject
from plugins.runner.worker import Stopped, Worker
from plugins.workers import load_engine, worker_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one worker reports of one case: a measurement and what is behind it, or an inspection.

    `execution` is how answers are computed, `facts` what the engine said of itself, and
    `computed_samples` how many this worker answered, for whichever case, until this one was done.
    """

    result: CaseResult | None = None
    execution: Mapping[str, str] | None = None
    facts: EngineFacts | None = None
    computed_samples: int = 0
    inspection: Inspection | None = None


EVIDENCE = pytest.StashKey[Evidence]()
WORKER = pytest.StashKey[Worker]()
HELPED = "longctx_helped_samples"
COLLECTED = pytest.StashKey["Collector"]()


class Measure:
    """What a test calls. `case` is measured, or only inspected under --preflight."""

    def __init__(self, worker: Worker, request: pytest.FixtureRequest):
        self.worker = worker
        self.request = request

    def __call__(self, case: Case) -> None:
        """Keeps the evidence for the reports; fails the test in one line where there is no score."""
        if case.id in self.worker.run.misfits:
            pytest.fail(self.worker.run.misfits[case.id], pytrace=False)
        if self.worker.run.options.preflight:
            try:
                inspection = self.worker.builder.inspect(case)
            except CASE_ERRORS as error:
                raise pytest.fail.Exception(str(error), pytrace=False) from None
            self.request.node.stash[EVIDENCE] = Evidence(inspection=inspection)
            problems = inspection.problems
            if problems:
                pytest.fail(f"preflight: {problems[0]} ({len(problems)} in all)", pytrace=False)
            return
        before = self.worker.computed
        problem = ""
        try:
            result = self.worker.measure(case)
        except (JournalError, EngineError, Stopped) as error:
            problem = str(error)
        if problem:
            pytest.fail(problem, pytrace=False)
        journal = self.worker.sides["model"].journal
        self.request.node.stash[EVIDENCE] = Evidence(
            result=result,
            execution=journal.subject.execution,
            facts=self.worker.facts or next((from_json(EngineFacts, facts) for facts in journal.facts), None),
            computed_samples=self.worker.computed - before,
        )
        if result.error is not None:
            pytest.fail(result.error, pytrace=False)
        if not result.outcomes:
            pytest.skip("no sample was begun in time")


@pytest.fixture(scope="session")
def worker(request: pytest.FixtureRequest) -> Worker:
    """The worker's bench; a journal that cannot be used fails each case with the same line."""
    try:
        return worker_of(request.session)
    except JournalError as error:
        problem = str(error)
    pytest.fail(problem, pytrace=False)


@pytest.fixture
def measure(worker: Worker, request: pytest.FixtureRequest) -> Measure:
    """Measures a case and keeps what was found."""
    return Measure(worker, request)


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """A worker that has no test left helps the others with theirs, unless the first failure ends it all."""
    ended = yield
    config = session.config
    helps = RUN in config.stash and hasattr(config, "workerinput") and not config.stash[RUN].options.preflight
    if helps and not (config.option.maxfail or session.shouldfail or session.shouldstop):
        # Whatever goes wrong here goes wrong for those who have a test of that case, and they tell it.
        with suppress(Exception):
            worker = worker_of(session)
            before = worker.computed
            try:
                worker.help()
            finally:
                # xdist gives it to every worker.
                config.workeroutput[HELPED] = worker.computed - before  # type: ignore[attr-defined]  # xdist sets it
    return ended


def pytest_unconfigure(config: pytest.Config) -> None:
    """Signs off from the journal, so that nobody waits for what this worker had begun."""
    if WORKER in config.stash:
        config.stash[WORKER].close()


def worker_of(session: pytest.Session) -> Worker:
    """The bench of this process, set up at its first use; raises JournalError."""
    config = session.config
    if WORKER not in config.stash:
        run = config.stash[RUN]
        config.stash[WORKER] = Worker(
            run,
            cases_of(run, [item.nodeid for item in session.items]),
            builder=SampleBuilder(
                tasks=load_tasks(run.options.prompts, run.options.scoring),
                formatter=load_formatter(run.options, run.options.model_path, run.endpoint),
                corpora=load_corpora(run.options.data_dir),
                seed=run.options.seed,
                assistants=_assistants(run),
            ),
            # A run that only inspects keeps no journal.
            sides={} if run.options.preflight else _sides(config, run),
            parent=os.getppid() if hasattr(config, "workerinput") else None,
            workers=worker_count(),
        )
    return config.stash[WORKER]


def _assistants(run: Run) -> Assistants:
    """None for a run that only inspects; raises JournalError for a judge that cannot be asked."""
    if run.options.preflight:
        return Assistants()
    try:
        return open_assistants(run.options, replies_of(run.options, f"{run.id}-{os.getpid()}"))
    except JudgeError as error:
        raise JournalError(str(error)) from error


def _sides(config: pytest.Config, run: Run) -> dict[ModelRole, ModelUnderTest]:
    """The model, and the baseline where there is one."""
    presence = Heartbeat(Path(run.options.journal), run.id)

    def running(who: ModelRole) -> ModelUnderTest:
        journal = Journal(Path(run.options.journal), subject(run, who), presence)
        return ModelUnderTest(journal=journal, engine=partial(load_engine, config, who))

    sides: dict[ModelRole, ModelUnderTest] = {"model": running("model")}
    baseline = run.baseline
    if baseline is not None and baseline.checkpoint is not None:
        # A worker's two journals of one subject would not see each other's results.
        same = subject(run, "baseline").key == subject(run, "model").key
        sides["baseline"] = sides["model"] if same else running("baseline")
    elif baseline is not None:
        sides["baseline"] = ModelUnderTest(journal=finished_journal(baseline), engine=None)
    return sides


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    case = case_of(item)
    if case is not None and RUN in item.config.stash:
        evidence = item.stash.get(EVIDENCE, None)
        if call.excinfo is not None and evidence is None:
            evidence = Evidence(result=_failed(case, call.excinfo.value))
        if evidence is not None and call.when != "teardown":
            # Only plain text crosses from a worker; ASCII also carries lone surrogates of a model's answer.
            report.longctx = json.dumps(to_json(evidence))  # type: ignore[attr-defined]  # reports take any attribute
    return report


def pytest_configure(config: pytest.Config) -> None:
    if RUN in config.stash and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Collector(config), "longctx-collector")


class Collector:
    """The controller's store of what came back and of what was selected."""

    def __init__(self, config: pytest.Config) -> None:
        self.run = config.stash[RUN]
        self.selected: tuple[Case, ...] = ()
        self.evidence: dict[str, Evidence] = {}
        self.helped_samples = 0
        config.stash[COLLECTED] = self

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Counts what the worker answered beside its own cases."""
        self.helped_samples += int(getattr(node, "workeroutput", {}).get(HELPED, 0))

    @property
    def computed_samples(self) -> int:
        """How many samples this run answered itself, as far as its workers could tell."""
        return self.helped_samples + sum(found.computed_samples for found in self.evidence.values())

    @property
    def results(self) -> dict[str, CaseResult]:
        """By case id."""
        return {name: found.result for name, found in self.evidence.items() if found.result is not None}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self.selected = cases_of(self.run, [item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self.selected = cases_of(self.run, ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        text = getattr(report, "longctx", None)
        if text is not None:
            evidence = from_json(Evidence, json.loads(text))
            self.evidence[report.nodeid.rpartition("::")[2]] = evidence


def _failed(case: Case, error: BaseException) -> CaseResult:
    lines = str(error).strip().splitlines()
    return CaseResult(case=case, outcomes=(), seconds=0.0, error=lines[0] if lines else type(error).__name__)
