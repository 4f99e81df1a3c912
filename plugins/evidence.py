"""Works off a case's samples and brings the outcome to the controller."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import pytest

from fixtures.corpora import Corpora
from fixtures.engines import Engine, EngineError, EngineFacts
from fixtures.preflight import Inspection, PreflightError, inspect_case, problems_of
from fixtures.prompts import Framing
from fixtures.records import Case, CaseResult, Outcome, Sample, from_json, to_json
from fixtures.tasks.base import CannotFit, Task
from plugins.options import RUN, Run, case_of, cases_of

# Enough prompts at a time for an engine to batch, few enough to hold in memory.
PROMPT_TOKENS_AT_A_TIME = 262_144
PREFLIGHT_SAMPLES = 2
CASE_ERRORS = (CannotFit, EngineError, PreflightError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one worker reports of one case: a measurement with the engine behind it, or an inspection."""

    result: CaseResult | None = None
    facts: EngineFacts | None = None
    inspection: Inspection | None = None


EVIDENCE = pytest.StashKey[Evidence]()
COLLECTED = pytest.StashKey["Collector"]()


class Bench:
    """Where cases are worked off: builds samples, asks the model, scores."""

    def __init__(self, run: Run, tasks: Mapping[str, Task], framing: Framing, corpora: Corpora):
        self.run = run
        self.tasks = tasks
        self.framing = framing
        self.corpora = corpora

    def samples(self, case: Case) -> Iterator[Sample]:
        """The case's samples; each is a function of its identity, so all workers see the same."""
        for index in range(case.samples):
            yield self.tasks[case.task].sample(
                case.length, index, seed=self.run.options.seed, tokenizer=self.framing, corpora=self.corpora
            )

    def inspect(self, case: Case) -> Inspection:
        """Preflight over all samples of the case; no model is asked."""
        return inspect_case(case, self.samples(case), self.tasks[case.task], self.framing)

    def measure(self, case: Case, engine: Engine) -> CaseResult:
        """All samples answered and scored; an error ends the case and leaves no score."""
        started = time.perf_counter()
        outcomes: list[Outcome] = []
        error = None
        try:
            for batch in _batches(self._checked(case), max(1, PROMPT_TOKENS_AT_A_TIME // case.length)):
                outcomes.extend(self._outcomes(batch, engine))
        except CASE_ERRORS as problem:
            error = str(problem)
        return CaseResult(case=case, outcomes=tuple(outcomes), seconds=time.perf_counter() - started, error=error)

    def _checked(self, case: Case) -> Iterator[Sample]:
        task = self.tasks[case.task]
        for sample in self.samples(case):
            if sample.index < PREFLIGHT_SAMPLES and (problems := problems_of(sample, task, self.framing)):
                raise PreflightError(f"preflight: {case.id} sample {sample.index}: {problems[0]}")
            yield sample

    def _outcomes(self, samples: list[Sample], engine: Engine) -> Iterator[Outcome]:
        answers = engine.generate([sample.prompt for sample in samples])
        for sample, generation in zip(samples, answers, strict=True):
            yield Outcome(
                index=sample.index,
                score=self.tasks[sample.task].score(sample, generation.text),
                generation=generation,
                references=sample.references,
                depths=sample.depths,
            )


class Measure:
    """What a test calls. `case` is measured, or only inspected under --preflight."""

    def __init__(self, bench: Bench, request: pytest.FixtureRequest):
        self.bench = bench
        self.request = request

    def __call__(self, case: Case) -> None:
        """Keeps the evidence for the reports; fails the test in one line where there is no score."""
        if case.id in self.bench.run.misfits:
            pytest.fail(self.bench.run.misfits[case.id], pytrace=False)
        if self.bench.run.options.preflight:
            try:
                inspection = self.bench.inspect(case)
            except CASE_ERRORS as error:
                raise pytest.fail.Exception(str(error), pytrace=False) from None
            self.request.node.stash[EVIDENCE] = Evidence(inspection=inspection)
            problems = inspection.problems
            if problems:
                pytest.fail(f"preflight: {problems[0]} ({len(problems)} in all)", pytrace=False)
            return
        engine: Engine = self.request.getfixturevalue("model")
        result = self.bench.measure(case, engine)
        self.request.node.stash[EVIDENCE] = Evidence(result=result, facts=engine.facts)
        if result.error is not None:
            pytest.fail(result.error, pytrace=False)


@pytest.fixture(scope="session")
def bench(run: Run, tasks: Mapping[str, Task], framing: Framing, corpora: Corpora) -> Bench:
    return Bench(run, tasks, framing, corpora)


@pytest.fixture
def measure(bench: Bench, request: pytest.FixtureRequest) -> Measure:
    """Measures a case and keeps what was found."""
    return Measure(bench, request)


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
        config.stash[COLLECTED] = self

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


def _batches(samples: Iterable[Sample], size: int) -> Iterator[list[Sample]]:
    stream = iter(samples)
    while batch := list(islice(stream, size)):
        yield batch
