"""Gates as tests of their own: the terminal counts them, JUnit has them, the exit code follows them."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Literal

import pytest

from fixtures.records import Verdict
from fixtures.tasks import TASKS
from plugins.evidence import COLLECTED, Collector
from plugins.gates.thresholds import Thresholds
from plugins.gates.verdicts import Measured, verdicts
from plugins.options import RUN, THRESHOLDS, Run

VERDICTS = pytest.StashKey[tuple[Verdict, ...]]()
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
    thresholds = config.stash[THRESHOLDS]
    found = verdicts(thresholds, measured(run, collected, thresholds))
    config.stash[VERDICTS] = found
    session.testscollected += len(found)
    narrowed = len(collected.selected) < len(run.cases)
    for verdict in found:
        for report in gate_reports(verdict, place=Path(run.options.thresholds).name, narrowed=narrowed):
            config.hook.pytest_runtest_logreport(report=report)
    if session.exitstatus == pytest.ExitCode.OK and any(blocks(verdict, narrowed=narrowed) for verdict in found):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def measured(run: Run, collected: Collector, thresholds: Thresholds) -> Measured:
    """The run as the gates see it; the yardstick follows from whether a chat template was used."""
    return Measured(
        lengths=run.options.lengths,
        cases=collected.selected,
        results=collected.results,
        reference=thresholds.references["aligned" if run.chat else "base"],
        suite_tasks={name: task.category for name, task in TASKS.items() if task.suite == "ruler"},
        claimed_length=run.checkpoint.claimed_length,
    )


def blocks(verdict: Verdict, *, narrowed: bool) -> bool:
    """Whether the verdict fails the run.

    In a run narrowed by -k or -m an unmeasured gate is no surprise; in a whole one it asks for
    lengths that --lengths leaves out, and passing over that would claim more than was seen.
    """
    failing = ("fail", "error") if narrowed else ("fail", "error", "not measured")
    return verdict.blocking and verdict.verdict in failing


def gate_reports(verdict: Verdict, *, place: str, narrowed: bool) -> tuple[pytest.TestReport, pytest.TestReport]:
    """The verdict as the reports of a test in file `place`: failed, passed, or skipped where not measured.

    The second is the teardown, with which JUnit files take a test's properties.
    """
    line = f"{verdict.name}: {verdict.verdict}: {verdict.reason}"
    report, teardown = _passed(verdict, place, "call"), _passed(verdict, place, "teardown")
    if blocks(verdict, narrowed=narrowed):
        report.outcome, report.longrepr = "failed", line
    elif verdict.verdict in ("fail", "error"):
        report.outcome, report.longrepr = "skipped", line
        report.wasxfail = REPORTED_ONLY + verdict.reason
    elif verdict.verdict != "pass":
        report.outcome, report.longrepr = "skipped", (place, 1, f"Skipped: {verdict.reason}")
    return report, teardown


def _passed(verdict: Verdict, place: str, when: Literal["call", "teardown"]) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=f"{place}::gate[{verdict.name}]",
        location=(place, None, f"gate[{verdict.name}]"),
        keywords={"gate": 1},
        outcome="passed",
        longrepr=None,
        when=when,
        user_properties=_properties(verdict),
    )


def _properties(verdict: Verdict) -> list[tuple[str, object]]:
    names = ("kind", "measured", "required", "samples", "of", "verdict", "blocking", "reason")
    return [(name, value) for name in names if (value := getattr(verdict, name)) is not None]
