"""The `measure` fixture: measure a case on this worker and report counts and errors to the controller."""

import json
import os
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

import msgspec
import pytest

from longctx.fixtures.engines import EngineError
from longctx.fixtures.records import Case
from longctx.plugins.collection import announce, case_of, cases_of, usage_error
from longctx.plugins.journal import JournalError
from longctx.plugins.journal.file_system import journal_errors, make_directory
from longctx.plugins.runner.results import CaseReport
from longctx.plugins.runner.samples import CASE_ERRORS
from longctx.plugins.runner.start_worker import Engines, start_worker
from longctx.plugins.runner.worker import Stopped, Worker
from longctx.plugins.stash import HELP, RUN

_CASE_REPORT = pytest.StashKey[CaseReport]()
_WORKER = pytest.StashKey[Worker]()
_ENGINES = pytest.StashKey[Engines]()


def pytest_configure(config: pytest.Config) -> None:
    """Check before any model is loaded that the journal can be written."""
    options = config.option
    measures_nothing = options.plan or options.preflight or options.collectonly
    if RUN not in config.stash or hasattr(config, "workerinput") or measures_nothing:
        return
    directory = Path(config.stash[RUN].options.journal)
    try:
        with journal_errors("write", directory):
            make_directory(directory)
            with TemporaryFile(dir=directory) as file:
                file.write(b"some text")
    except JournalError as error:
        raise usage_error(error) from error


@pytest.fixture(scope="session")
def worker(request: pytest.FixtureRequest) -> Worker:
    """Return the worker of this process; if there can be none, every case fails with the same line."""
    try:
        return worker_of(request.session)
    except (JournalError, EngineError) as error:
        raise failure(error) from None


@pytest.fixture
def measure(worker: Worker, request: pytest.FixtureRequest) -> Callable[[Case], None]:
    """Return a function that measures a case, or inspects it under --preflight; it fails the test without a score."""
    run, stash = worker.run, request.node.stash

    def measure_case(case: Case) -> None:
        if case.id in run.misfits:
            pytest.fail(run.misfits[case.id], pytrace=False)
        try:
            is_inspected = run.options.preflight
            report = CaseReport(inspection=worker.builder.inspect(case)) if is_inspected else worker.measure(case)
        except (*CASE_ERRORS, JournalError, Stopped) as error:
            raise failure(error) from None
        stash[_CASE_REPORT] = report
        if report.inspection is not None:
            problems = report.inspection.problems
            if problems:
                pytest.fail(f"preflight: {problems[0]} ({len(problems)} in all)", pytrace=False)
        elif report.error is not None:
            pytest.fail(report.error, pytrace=False)
        elif not (report.samples or report.likelihoods):
            pytest.skip("no sample was begun in time")

    return measure_case


def failure(error: Exception) -> BaseException:
    """Return what fails a test with the one line of an error, without a traceback; raise it `from None`."""
    return pytest.fail.Exception(str(error), pytrace=False)


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
                helped = worker.computed_samples - computed_before, worker.stopwatch.take()
                config.workeroutput[HELP] = helped  # type: ignore[attr-defined]  # set by xdist on workers
    return ended


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the worker, so that nobody waits for samples that it had claimed."""
    if _WORKER in config.stash:
        config.stash[_WORKER].close()


def worker_of(session: pytest.Session) -> Worker:
    """Return the worker of this process, which is built on first use; raise JournalError or EngineError."""
    config = session.config
    if _WORKER not in config.stash:
        run = config.stash[RUN]
        config.stash[_WORKER] = start_worker(
            run,
            cases_of(run, [item.nodeid for item in session.items]),
            engines_of(config),
            # A run without workers may outlive the shell that started it.
            parent=os.getppid() if hasattr(config, "workerinput") else None,
        )
    return config.stash[_WORKER]


def engines_of(config: pytest.Config) -> Engines:
    slot = getattr(config, "workerinput", {}).get("longctx_slot", 0)

    def say(line: str) -> None:
        # One worker speaks for all; the line of a test is unfinished. Only stderr of a worker is seen.
        for part in ("", line) if slot == 0 else ():
            announce(config, part, "stderr")

    return config.stash.setdefault(_ENGINES, Engines(config.stash[RUN], slot=slot, announce=say))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the case report to pytest's report of the test, which xdist sends to the controller."""
    report = yield
    case = case_of(item)
    if case is not None and RUN in item.config.stash:
        case_report = item.stash.get(_CASE_REPORT, None)
        if call.excinfo is not None and case_report is None:
            lines = str(call.excinfo.value).strip().splitlines()
            case_report = CaseReport(error=lines[0] if lines else type(call.excinfo.value).__name__)
        if case_report is not None and call.when != "teardown":
            # xdist sends plain types only.
            report.longctx = json.dumps(msgspec.to_builtins(case_report))  # type: ignore[attr-defined]  # reports take any attribute
        expected = (pytest.fail.Exception, pytest.skip.Exception)
        if call.excinfo is not None and not isinstance(call.excinfo.value, expected):
            report.longctx_unexpected = True  # type: ignore[attr-defined]  # as above
    return report
