"""--invariance through the command: one test for each property, in every report, beside gates that may still pass."""

from __future__ import annotations

import pytest

from ci.suite_process import SuiteRun
from ci.watch.measure import verdict_of
from tests.helpers.runs import completed_run

GATES = """
[[gate]]
name = "one needle"
kind = "level"
tasks = ["niah_single_1"]
above = 50
"""


def test_a_fault_that_no_score_shows_fails_its_properties_in_every_report(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    run = completed_run(
        tmp_path_factory, "--model=calibration:full", "--lengths=1k", "--samples=2", "-k", "niah_single_1", "--full",
        "--invariance", "-p", "fixtures.faults.plugin", "--inject-fault", "isolated_chunks",
        thresholds=GATES, own_journal=True,
    )  # fmt: skip
    assert (run.exit_code, run.gates["one needle at 1k"]["verdict"]) == (1, "pass"), run.output
    verdicts = {finding["name"]: finding["verdict"] for finding in run.report["invariance"]}
    assert verdicts == {
        "prefill": "pass", "decode": "pass", "warm": "pass", "order": "fail", "chunks": "fail", "batch": "skipped"
    }  # fmt: skip
    outcomes = {name: run.junit_outcomes(f"invariance[{name}]") for name in verdicts}
    assert outcomes == {name: {"fail": ["failure"], "skipped": ["skipped"]}.get(v, []) for name, v in verdicts.items()}
    line = next(line for line in run.output.splitlines() if line.startswith("invariance FAIL  chunks"))
    assert "niah_single_2 of 1024 tokens, 0: token 1 of the answer" in line
    assert 'id="invariance"' in (run.folder / "report.html").read_text()
    verdict, reasons = verdict_of(SuiteRun(exit_code=1, report=run.report))
    assert (verdict, [reason.split(":")[1].strip() for reason in reasons]) == ("fail", ["order", "chunks"])
