"""Log every gate as a test: the terminal counts it, JUnit lists it and the exit code follows it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from fixtures.records import Verdict
from fixtures.shown_text import visible_line
from plugins.config.run import Run
from plugins.controller import CONTROLLER, EVALUATION, INVARIANCE
from plugins.gates.diagnoses import Diagnosis, case_blocks
from plugins.gates.evaluate import blocks
from plugins.gates.evaluation import Evaluation
from plugins.gates.findings import shown_verdict
from plugins.gates.thresholds import Thresholds
from plugins.options import RUN

REPORTED_ONLY = "reported only: "
GATE_WORD = "longctx_gate"
"""The attribute of a report with the word for a gate's verdict; `reported` if it cannot fail the run."""
TestReports = tuple[pytest.TestReport, pytest.TestReport]
"""The reports of a test's call and of its teardown; JUnit takes the properties of a test from its teardown."""


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """Evaluate the run and log its gates before any report is written."""
    config = session.config
    if CONTROLLER in config.stash and not (config.option.plan or config.option.collectonly):
        controller = config.stash[CONTROLLER]
        if controller.selected and not controller.run.options.preflight:
            config.stash[EVALUATION] = controller.evaluate()
            log_gates(session, config.stash[EVALUATION])
        elif INVARIANCE in config.stash:
            # A run of --invariance alone has reports, and no gates.
            config.stash[EVALUATION] = replace(controller.evaluate(), verdicts=())
    yield


def log_gates(session: pytest.Session, evaluation: Evaluation) -> None:
    """Log the gates and the bad cases as tests, and fail the run if one of them or any case fails it."""
    tests = gate_tests(session.config.stash[RUN], evaluation)
    for reports in tests:
        # One by one, so that the percentage under -v never falls.
        session.testscollected += 1
        for report in reports:
            session.config.hook.pytest_runtest_logreport(report=report)
    failed = any(report.failed for reports in tests for report in reports)
    # A case that was to be retried and never was, or whose results cannot be read, has no failed test.
    results = evaluation.measured.results
    cases = evaluation.measured.scope.cases
    failed |= any(case.id not in results or results[case.id].error is not None for case in cases)
    if session.exitstatus == pytest.ExitCode.OK and failed:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def gate_tests(run: Run, evaluation: Evaluation) -> list[TestReports]:
    """Return the reports of every gate and of every case that is below its floor or worse than the baseline."""
    narrowed = evaluation.is_narrowed(run.available)
    place = visible_line(Path(run.options.thresholds).name)
    gates = [gate_reports(verdict, run.thresholds, place=place, narrowed=narrowed) for verdict in evaluation.verdicts]
    bad = sorted(case for case, diagnosis in evaluation.diagnoses.items() if diagnosis.bad)
    cases = [case_reports(case, evaluation.diagnoses[case], run.thresholds, place=place) for case in bad]
    return [*gates, *cases]


def case_reports(case: str, diagnosis: Diagnosis, thresholds: Thresholds, *, place: str) -> TestReports:
    """Return the reports of a case that is below its floor or worse than the baseline."""
    reasons = []
    if diagnosis.below:
        reasons.append(f"{diagnosis.score:.1f} is below its floor of {diagnosis.floor:g}")
    if diagnosis.dropped:
        worse, better = diagnosis.flips
        reasons.append(
            f"{diagnosis.difference:+.1f} against the baseline "
            f"({worse} worse, {better} better of {diagnosis.pairs} pairs; "
            f"{diagnosis.votes[0]} haystacks worse, {diagnosis.votes[1]} better)"
        )
    reason = "; ".join(reasons)
    name = f"case[{case.partition('[')[2].rstrip(']')}]"
    report, teardown = passed_report(name, place, "call"), passed_report(name, place, "teardown")
    if case_blocks(diagnosis, thresholds):
        report.outcome, report.longrepr = "failed", f"{case}: {reason}"
    else:
        report.outcome, report.longrepr, report.wasxfail = "skipped", f"{case}: {reason}", REPORTED_ONLY + reason
    return _named(report, teardown, "fail" if report.failed else "reported (fail)")


def gate_reports(verdict: Verdict, thresholds: Thresholds, *, place: str, narrowed: bool) -> TestReports:
    """Return the reports of a gate's test in the file `place`: failed, passed, or skipped if it was not measured."""
    line = f"{verdict.name}: {verdict.verdict}: {verdict.reason}"
    name, properties = f"gate[{verdict.name}]", _properties(verdict)
    report, teardown = (
        passed_report(name, place, "call", properties),
        passed_report(name, place, "teardown", properties),
    )
    if blocks(verdict, thresholds, narrowed=narrowed):
        report.outcome, report.longrepr = "failed", line
    elif verdict.verdict in ("fail", "error"):
        report.outcome, report.longrepr = "skipped", line
        report.wasxfail = REPORTED_ONLY + verdict.reason
    elif verdict.verdict != "pass":
        report.outcome, report.longrepr = "skipped", (place, 1, f"Skipped: {verdict.reason}")
    word = shown_verdict(verdict.verdict)
    return _named(report, teardown, word if verdict.blocking else f"reported ({word})")


def _named(report: pytest.TestReport, teardown: pytest.TestReport, word: str) -> TestReports:
    for phase in (report, teardown):
        setattr(phase, GATE_WORD, word)
    return report, teardown


def passed_report(
    name: str, place: str, when: Literal["call", "teardown"], properties: Sequence[tuple[str, object]] = ()
) -> pytest.TestReport:
    """Return the report of a passed test that no file contains: of a gate, a case or a property of the engine."""
    return pytest.TestReport(
        nodeid=f"{place}::{name}",
        location=(place, None, name),
        keywords={"gate": 1},
        outcome="passed",
        longrepr=None,
        when=when,
        user_properties=list(properties),
    )


def _properties(verdict: Verdict) -> list[tuple[str, object]]:
    names = ("kind", "measured", "required", "samples", "of", "verdict", "blocking", "reason")
    properties = [(name, value) for name in names if (value := getattr(verdict, name)) is not None]
    pairs = {name: getattr(verdict, name) for name in ("interval", "model_interval", "haystack_correlation")}
    return properties + [(name, "{} {}".format(*pair)) for name, pair in pairs.items() if pair is not None]
