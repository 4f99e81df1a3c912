"""`--invariance`: check the engine before the cases, and log each property as a test."""

import json
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longctx.fixtures.engines import EngineError
from longctx.fixtures.engines.openai.endpoint import ServerSettings
from longctx.fixtures.installation import CASES_DIRECTORY
from longctx.fixtures.records import PropertyFinding, Sample
from longctx.fixtures.tasks.task import CannotFit
from longctx.plugins.gate_tests import log_test, named, passed_reports
from longctx.plugins.journal import JournalError
from longctx.plugins.measure import engines_of, failure, worker_of
from longctx.plugins.runner.samples import SampleBuilder
from longctx.plugins.stash import INVARIANCE, PROPERTY_WORD, RUN

TEST_FILE = "test_invariance.py"
PLACE = f"{CASES_DIRECTORY}/{TEST_FILE}"
TASK = "niah_single_2"
# Questions that are sent to a server, alone and together.
SERVER_QUESTIONS = 3
# The first of these that holds the question; small vocabularies need more tokens for it.
LENGTHS = (1024, 2048, 4096)
_FINDINGS = pytest.StashKey[tuple[PropertyFinding, ...]]()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Add the check to what is collected, after the gates that are named have added their cases."""
    if RUN not in config.stash or not config.option.invariance:
        return
    run = config.stash[RUN]
    if run.options.preflight:
        raise pytest.UsageError("--invariance: needs a model, and --preflight loads none; leave one of them out")
    check = config.rootpath / CASES_DIRECTORY / TEST_FILE
    given = [Path(config.invocation_params.dir, argument.partition("::")[0]).resolve() for argument in config.args]
    if not any(check.is_relative_to(path) for path in given):
        # Ids of cases leave the check out no more than -k does.
        config.args.append(str(check))


@pytest.hookimpl(tryfirst=True)
def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect the check with the option only."""
    if RUN not in config.stash or collection_path != config.rootpath / CASES_DIRECTORY / TEST_FILE:
        return None
    return not config.option.invariance


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, None, None]:
    """Put the check first; -k and -m select cases, and leave it out only if they select no case and not the check."""
    # A test file of the user may have the same name.
    checks = [item for item in items if item.path == config.rootpath / CASES_DIRECTORY / TEST_FILE]
    is_alone = len(checks) == len(items)
    yield
    if items or is_alone:
        items[:] = [*checks, *(item for item in items if item not in checks)]


@pytest.fixture
def check_invariance(request: pytest.FixtureRequest) -> Callable[[], None]:
    """Return a function that checks the engine and keeps the findings for the controller."""

    def check() -> None:
        try:
            request.node.stash[_FINDINGS] = tuple(_findings(request.session))
        except (JournalError, EngineError, CannotFit) as error:
            raise failure(error) from None

    return check


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the findings to pytest's report of the test, which xdist sends to the controller."""
    report = yield
    findings = item.stash.get(_FINDINGS, None)
    if findings is not None and report.when == "call":
        report.longctx_invariance = json.dumps(msgspec.to_builtins(findings))  # type: ignore[attr-defined]  # reports take any attribute
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """Log every property as a test before any report is written."""
    findings = session.config.stash.get(INVARIANCE, ())
    for finding in findings:
        facts: dict[str, Any] = msgspec.to_builtins(finding)
        properties = [(key, value) for key, value in facts.items() if value is not None]
        reports = passed_reports(f"invariance[{finding.name}]", PLACE, properties)
        call, word = reports[0], finding.verdict
        if word == "fail":
            call.outcome, call.longrepr = "failed", finding.line
        elif word == "skipped":
            call.outcome, call.longrepr = "skipped", (PLACE, 1, f"Skipped: {finding.reason}")
        log_test(session, named(reports, PROPERTY_WORD, word))
    failed = any(finding.verdict == "fail" for finding in findings)
    if session.exitstatus == pytest.ExitCode.OK and failed:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    yield


def _findings(session: pytest.Session) -> Iterator[PropertyFinding]:
    builder, run = worker_of(session).builder, session.config.stash[RUN]
    engine = engines_of(session.config).load("model")
    if isinstance(run.engine_settings("model"), ServerSettings):
        from longctx.fixtures.invariance.server_check import ServerQuestion, check_server_engine

        # The server's cache may hold every question that an earlier run has asked.
        first_seed = time.time_ns() % 2**31
        pairs = [_samples(builder, first_seed + number) for number in range(2 * SERVER_QUESTIONS)]
        server_questions = [
            ServerQuestion(name=f"{_name(one)} of --seed {one.seed}", prompt=one.prompt, other=other.prompt)
            for one, other in pairs
        ]
        server: Any = engine
        return check_server_engine(server, server_questions[:SERVER_QUESTIONS], server_questions[SERVER_QUESTIONS:])
    from longctx.fixtures.invariance.hf_check import EngineQuestion, check_hf_engine

    inner: Any = engine
    samples = _samples(builder, builder.seed)
    questions = [EngineQuestion(name=_name(sample), ids=sample.prompt.token_ids) for sample in samples]
    return check_hf_engine(inner, *questions, trust_remote_code=run.options.trust_remote_code)


def _name(sample: Sample) -> str:
    return f"{sample.task} of {sample.length} tokens, {sample.index}"


def _samples(builder: SampleBuilder, seed: int) -> tuple[Sample, Sample]:
    """Return two samples on one text at the shortest length that holds them."""

    def sample(length: int, index: int) -> Sample:
        return builder.tasks[TASK].sample(
            length, index, seed=seed, tokenizer=builder.formatters[0], corpora=builder.corpora
        )

    for length in LENGTHS:
        try:
            return sample(length, 0), sample(length, 1)
        except CannotFit:
            if length == LENGTHS[-1]:
                raise
    raise AssertionError("unreachable")
