"""Gates as tests: the ids that are printed select them, and each is logged when all cases have been measured.

The terminal counts them, JUnit lists them and the exit code follows them.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from longctx.fixtures.installation import CASES_DIRECTORY
from longctx.fixtures.records import Verdict
from longctx.fixtures.shown_text import visible_line
from longctx.plugins.collection import is_thresholds_file, usage_error
from longctx.plugins.config.invocation import CONFTEST
from longctx.plugins.report.sections.gates import diagnosis_text, reason_text
from longctx.plugins.runner.results import fails
from longctx.plugins.stash import (
    COLLECTED_TESTS,
    CONTROLLER,
    EVALUATION,
    GATE_WORD,
    INVARIANCE,
    RUN,
    SELECTED_GATES,
    CollectedTests,
)
from longctx.plugins.thresholds.records import Thresholds
from longctx.plugins.verdicts.diagnoses import Diagnosis, case_blocks
from longctx.plugins.verdicts.evaluate import blocks
from longctx.plugins.verdicts.evaluation import Evaluation
from longctx.plugins.verdicts.selection import (
    NamedGate,
    SelectionError,
    choose,
    read_keyword,
    required_cases,
    restrict,
)

REPORTED_ONLY = "reported only: "
TestReports = tuple[pytest.TestReport, pytest.TestReport]
"""The reports of a test's call and of its teardown; JUnit takes the properties of a test from its teardown."""


def pytest_configure(config: pytest.Config) -> None:
    if RUN not in config.stash:
        return
    if not hasattr(config, "workerinput"):
        try:
            config.stash[COLLECTED_TESTS] = _select(config)
        except SelectionError as error:
            raise usage_error(error) from error
    tests = config.stash[COLLECTED_TESTS]
    config.option.keyword = tests.keyword
    # With the directory, a case can be named from any working directory.
    ids = (f"{config.rootpath / CASES_DIRECTORY / case.partition('[')[0]}.py::{case}" for case in tests.cases)
    config.args[:] = [*tests.paths, *ids]


def _select(config: pytest.Config) -> CollectedTests:
    """Drop the gates that are not selected, and return the tests that the others need."""
    run, option = config.stash[RUN], config.option
    named, place = run.named_gates, Path(run.options.thresholds).name
    keyword = read_keyword(option.keyword, named)
    selected, paths = list[NamedGate](), list[str]()
    for argument in config.args:
        # An id such as "thresholds.toml::gate[mean at 4k]"; the file alone means all of its gates.
        name = argument.partition("::")[2]
        if not is_thresholds_file(config, argument):
            paths += [argument] if Path(argument).name != CONFTEST else []
        elif not name:
            selected += named.values()
        else:
            selected += choose(named, [name])
    deselected: Sequence[NamedGate] = ()
    if keyword is not None and keyword.is_negated:
        deselected = keyword.gates
    elif keyword is not None:
        selected += keyword.gates
        # The directory of all cases is collected by default; -k narrows it.
        paths = [path for path in paths if "::" in path]
    # Like pytest, --deselect takes the beginning of an id too.
    prefixes = tuple(option.deselect or ())
    chosen = [gate for gate in selected or named.values() if gate not in deselected]
    chosen = [gate for gate in chosen if not f"{place}::gate[{gate.name}]".startswith(prefixes)]
    if len(chosen) < len(named):
        config.stash[RUN] = replace(run, thresholds=restrict(run.thresholds, chosen))
        config.stash[SELECTED_GATES] = frozenset(gate.name for gate in chosen)
    shown_keyword = option.keyword if keyword is None else ""
    return CollectedTests(keyword=shown_keyword, paths=tuple(paths), cases=required_cases(selected))


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """Evaluate the run and log its gates before any report is written."""
    config = session.config
    if CONTROLLER in config.stash and not (config.option.plan or config.option.collectonly):
        controller = config.stash[CONTROLLER]
        if controller.selected and not controller.run.options.preflight:
            config.stash[EVALUATION] = controller.evaluate()
            _log_gates(session, config.stash[EVALUATION])
        elif INVARIANCE in config.stash:
            # A run of --invariance alone has reports, and no gates.
            config.stash[EVALUATION] = replace(controller.evaluate(), verdicts=())
    yield


def _log_gates(session: pytest.Session, evaluation: Evaluation) -> None:
    """Log every gate and every bad case as a test; fail the run if one of them or any case fails it."""
    run = session.config.stash[RUN]
    narrowed = evaluation.is_narrowed(run.wanted)
    place = visible_line(Path(run.options.thresholds).name)
    tests = [_gate_reports(verdict, place=place, narrowed=narrowed) for verdict in evaluation.verdicts]
    bad = sorted(case for case, diagnosis in evaluation.diagnoses.items() if diagnosis.bad)
    tests += [_case_reports(case, evaluation.diagnoses[case], run.thresholds, place=place) for case in bad]
    for reports in tests:
        log_test(session, reports)
    if session.exitstatus == pytest.ExitCode.OK and fails(run, evaluation):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _case_reports(case: str, diagnosis: Diagnosis, thresholds: Thresholds, *, place: str) -> TestReports:
    reason = diagnosis_text(diagnosis)
    is_blocking = case_blocks(diagnosis, thresholds)
    parameter = case.partition("[")[2].rstrip("]")
    reports = passed_reports(f"case[{parameter}]", place)
    _fail(reports[0], f"{case}: fail: {reason}", reason, is_blocking=is_blocking)
    return named(reports, GATE_WORD, "fail" if is_blocking else "reported (fail)")


def _gate_reports(verdict: Verdict, *, place: str, narrowed: bool) -> TestReports:
    """Return the reports of a gate's test in the file `place`: failed, passed, or skipped if it was not measured."""
    reason, word = reason_text(verdict), verdict.verdict
    properties: list[tuple[str, object]] = []
    for name in ("kind", "measured", "required", "samples", "of", "verdict", "blocking"):
        value = getattr(verdict, name)
        if value is not None:
            properties.append((name, value))
    properties.append(("reason", reason))
    for name in ("interval", "model_interval", "haystack_correlation"):
        pair = getattr(verdict, name)
        if pair is not None:
            properties.append((name, "{} {}".format(*pair)))
    reports = passed_reports(f"gate[{verdict.name}]", place, properties)
    is_blocking = blocks(verdict, narrowed=narrowed)
    if is_blocking or word in ("fail", "error"):
        _fail(reports[0], f"{verdict.name}: {word}: {reason}", reason, is_blocking=is_blocking)
    elif word != "pass":
        reports[0].outcome, reports[0].longrepr = "skipped", (place, 1, f"Skipped: {reason}")
    return named(reports, GATE_WORD, word if verdict.blocking else f"reported ({word})")


def _fail(report: pytest.TestReport, line: str, reason: str, *, is_blocking: bool) -> None:
    """Let a report fail with a line, or only show the failure."""
    report.outcome, report.longrepr = "failed" if is_blocking else "skipped", line
    if not is_blocking:
        report.wasxfail = REPORTED_ONLY + reason


def passed_reports(name: str, place: str, properties: Sequence[tuple[str, object]] = ()) -> TestReports:
    """Return the reports of a passed test that no file contains: of a gate, a case or a property of the engine."""

    def report(when: Literal["call", "teardown"]) -> pytest.TestReport:
        return pytest.TestReport(
            nodeid=f"{place}::{name}",
            location=(place, None, name),
            keywords={"gate": 1},
            outcome="passed",
            longrepr=None,
            when=when,
            user_properties=list(properties),
        )

    return report("call"), report("teardown")


def named(reports: TestReports, attribute: str, word: str) -> TestReports:
    """Return the reports with a word for the terminal in an attribute."""
    for report in reports:
        setattr(report, attribute, word)
    return reports


def log_test(session: pytest.Session, reports: TestReports) -> None:
    """Log a test that no file contains, and count it only now, so that the percentage under -v never falls."""
    session.testscollected += 1
    for report in reports:
        session.config.hook.pytest_runtest_logreport(report=report)
