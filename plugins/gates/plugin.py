"""Gates as tests of their own: the terminal counts them, JUnit has them, the exit code follows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.records import Verdict
from fixtures.tasks import TASKS
from plugins.evidence import COLLECTED, Collector
from plugins.gates.thresholds import load_thresholds
from plugins.gates.verdicts import Measured, verdicts
from plugins.options import RUN, Run

VERDICTS = pytest.StashKey[tuple[Verdict, ...]]()
REPORTED_ONLY = "reported only: "


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Before any report is written."""
    config = session.config
    if COLLECTED not in config.stash or config.option.plan or config.option.collectonly:
        return
    run, collected = config.stash[RUN], config.stash[COLLECTED]
    if run.options.preflight or not collected.selected:
        return
    found = verdicts(load_thresholds(Path(run.options.thresholds), known_tasks=TASKS), measured(run, collected))
    config.stash[VERDICTS] = found
    session.testscollected += len(found)
    for verdict in found:
        config.hook.pytest_runtest_logreport(report=gate_report(verdict))
    if session.exitstatus == pytest.ExitCode.OK and any(blocks(verdict) for verdict in found):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def measured(run: Run, collected: Collector) -> Measured:
    """The run as the gates see it; the yardstick follows from whether a chat template was used."""
    thresholds = load_thresholds(Path(run.options.thresholds), known_tasks=TASKS)
    return Measured(
        cases=collected.selected,
        results=collected.results,
        reference=thresholds.references["aligned" if run.chat else "base"],
        suite_tasks={name: task.category for name, task in TASKS.items() if task.suite == "ruler"},
        claimed_length=run.checkpoint.claimed_length,
    )


def blocks(verdict: Verdict) -> bool:
    """Whether the verdict fails the run."""
    return verdict.blocking and verdict.verdict in ("fail", "error")


def gate_report(verdict: Verdict) -> pytest.TestReport:
    """The verdict as the report of a test: failed, passed, or skipped where it was not measured."""
    line = f"{verdict.name}: {verdict.verdict}: {verdict.reason}"
    nodeid = f"thresholds.toml::gate[{verdict.name}]"
    location = ("thresholds.toml", None, f"gate[{verdict.name}]")
    report = pytest.TestReport(
        nodeid=nodeid,
        location=location,
        keywords={"gate": 1},
        outcome="passed",
        longrepr=None,
        when="call",
        user_properties=_properties(verdict),
    )
    if blocks(verdict):
        report.outcome, report.longrepr = "failed", line
    elif verdict.verdict in ("fail", "error"):
        report.outcome, report.longrepr = "skipped", line
        report.wasxfail = REPORTED_ONLY + verdict.reason
    elif verdict.verdict != "pass":
        report.outcome, report.longrepr = "skipped", ("thresholds.toml", 1, f"Skipped: {verdict.reason}")
    return report


def _properties(verdict: Verdict) -> list[tuple[str, object]]:
    return [(name, getattr(verdict, name)) for name in ("kind", "measured", "required", "samples", "of", "verdict")]
