"""Gates as tests of their own: the terminal counts them, JUnit has them, the exit code follows them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Literal

import pytest

from fixtures.records import Verdict
from plugins.config.baseline import finished_journal
from plugins.config.run import Run
from plugins.gates.clusters import SampleRef
from plugins.gates.evaluate import Measured, blocks
from plugins.gates.evaluation import Evaluation, evaluate
from plugins.gates.regression import Diagnosis
from plugins.gates.thresholds import Thresholds
from plugins.measure import COLLECTED, Collector
from plugins.options import RUN

EVALUATION = pytest.StashKey[Evaluation]()
REPORTED_ONLY = "reported only: "


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """A wrapper, so that verdicts are there before any report is written."""
    judge(session)
    yield


def judge(session: pytest.Session) -> None:
    """Every gate's verdict, kept for the reports, logged as a test and reflected in the exit code."""
    config = session.config
    if COLLECTED not in config.stash or config.option.plan or config.option.collectonly:
        return
    run, collected = config.stash[RUN], config.stash[COLLECTED]
    if run.options.preflight or not collected.selected:
        return
    evaluation = evaluated(run, collected)
    config.stash[EVALUATION] = evaluation
    narrowed = len(collected.selected) < len(run.available)
    place = Path(run.options.thresholds).name
    reports = [
        *(gate_reports(verdict, run.thresholds, place=place, narrowed=narrowed) for verdict in evaluation.verdicts),
        *(
            case_reports(name, evaluation.diagnoses[name], run.thresholds, place=place)
            for name in sorted(evaluation.diagnoses)
            if evaluation.diagnoses[name].bad
        ),
    ]
    session.testscollected += len(reports)
    for report in (each for pair in reports for each in pair):
        config.hook.pytest_runtest_logreport(report=report)
    failed = any(report.failed for pair in reports for report in pair)
    # A case that was to be tried again and never was has failed nowhere else.
    failed |= any(case.id not in collected.results for case in collected.selected)
    if session.exitstatus == pytest.ExitCode.OK and failed:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def evaluated(run: Run, collected: Collector) -> Evaluation:
    """Evaluate the selected cases and the results that came back."""
    return evaluate(
        run.thresholds,
        Measured(scope=run.scope(collected.selected), results=collected.results, control_variate=control_scores(run)),
    )


def control_scores(run: Run) -> dict[SampleRef, float] | None:
    """All that is known of a baseline that is not run again; None where there is none."""
    if run.baseline is None or run.baseline.checkpoint is not None:
        return None
    journal = finished_journal(run.baseline)
    journal.refresh()
    return {
        SampleRef(case.id, index): journal.entries[key].outcome.score.value
        for case in run.cases
        for index in range(case.samples)
        if (key := run.key(case, index)) in journal.entries
    }


def case_reports(
    case: str, diagnosis: Diagnosis, thresholds: Thresholds, *, place: str
) -> tuple[pytest.TestReport, pytest.TestReport]:
    """A case that was shown to be bad, as the reports of a test."""
    said = []
    if diagnosis.below:
        said.append(f"{diagnosis.score:.1f} is below its floor of {diagnosis.floor:g}")
    if diagnosis.dropped:
        worse, better = diagnosis.flips
        said.append(
            f"{diagnosis.difference:+.1f} against the baseline "
            f"({worse} worse, {better} better of {diagnosis.pairs} pairs)"
        )
    reason = "; ".join(said)
    name = f"case[{case.partition('[')[2].rstrip(']')}]"
    report, teardown = _passed(name, place, "call"), _passed(name, place, "teardown")
    if thresholds.regression.cases == "fail":
        report.outcome, report.longrepr = "failed", f"{case}: {reason}"
    else:
        report.outcome, report.longrepr, report.wasxfail = "skipped", f"{case}: {reason}", REPORTED_ONLY + reason
    return report, teardown


def gate_reports(
    verdict: Verdict, thresholds: Thresholds, *, place: str, narrowed: bool
) -> tuple[pytest.TestReport, pytest.TestReport]:
    """The verdict as the reports of a test in file `place`: failed, passed, or skipped where not measured.

    The second is the teardown, with which JUnit files take a test's properties.
    """
    line = f"{verdict.name}: {verdict.verdict}: {verdict.reason}"
    name, properties = f"gate[{verdict.name}]", _properties(verdict)
    report, teardown = _passed(name, place, "call", properties), _passed(name, place, "teardown", properties)
    if blocks(verdict, thresholds, narrowed=narrowed):
        report.outcome, report.longrepr = "failed", line
    elif verdict.verdict in ("fail", "error"):
        report.outcome, report.longrepr = "skipped", line
        report.wasxfail = REPORTED_ONLY + verdict.reason
    elif verdict.verdict != "pass":
        report.outcome, report.longrepr = "skipped", (place, 1, f"Skipped: {verdict.reason}")
    return report, teardown


def _passed(
    name: str, place: str, when: Literal["call", "teardown"], properties: Sequence[tuple[str, object]] = ()
) -> pytest.TestReport:
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
    found = [(name, value) for name in names if (value := getattr(verdict, name)) is not None]
    return [*found, ("interval", "{} {}".format(*verdict.interval))] if verdict.interval else found
