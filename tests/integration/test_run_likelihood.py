"""Runs that measure the likelihood of gold answers, alone or beside answers, and gates on it."""

import json
from pathlib import Path

import pytest

from tests.helpers.runs import CompletedRun, completed_run, run_pytest, usage_error

GATES = """
[[gate]]
name = "gain"
kind = "likelihood"
measure = "gain"
above = 1.5
tasks = ["niah_multikey_1"]

[[gate]]
name = "recovery"
kind = "likelihood"
measure = "recovery"
above = 50
tasks = ["niah_multikey_1"]
"""
SMALL = ("--lengths", "512", "--samples", "26", "-k", "niah_multikey_1")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> CompletedRun:
    return completed_run(
        tmp_path_factory, "--model", "calibration:1k", "--signal", "both", *SMALL, thresholds=GATES, own_journal=True
    )


def test_gates_on_likelihood_pass_and_are_marked_as_such(both: CompletedRun) -> None:
    assert both.exit_code == 0
    for name in ("gain at 512", "recovery at 512"):
        gate = both.gates[name]
        assert (gate["kind"], gate["verdict"]) == ("likelihood", "pass")
        assert gate["reason"].startswith("likelihood: ")
        assert gate["reason"] in " ".join(both.output.split())
    assert both.gates["recovery at 512"]["measured"] == pytest.approx(100, abs=1)
    assert "likelihood: " in (both.folder / "report.md").read_text()
    assert "likelihood: " in (both.folder / "report.html").read_text()


def test_a_run_on_the_same_journal_computes_no_likelihood_again(both: CompletedRun, tmp_path: Path) -> None:
    gates = both.folder / "gates.toml"
    arguments = ("--model", "calibration:1k", "--signal", "likelihood", *SMALL, "--thresholds", str(gates))
    report = tmp_path / "report.json"
    again = run_pytest(tmp_path, *arguments, f"--report-json={report}", journal=both.folder / "journal")
    assert again.exit_code == 0
    assert again.report["likelihood"]["panels"] == both.report["likelihood"]["panels"]
    files = (both.folder / "journal").glob("*/*.jsonl")
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    # The second run loaded no model, so it described none.
    assert sum("facts" in line for line in lines) == 1
    assert sum("likelihood_of" in line for line in lines) == both.report["likelihood"]["panels"][0]["samples"]
    assert {case["verdict"] for case in again.report["cases"]} == {"not measured"}
    assert [gate["kind"] for gate in again.report["gates"]] == ["likelihood", "likelihood"]


def test_a_gate_that_no_likelihood_can_decide_is_refused_before_a_model_is_loaded(tmp_path: Path) -> None:
    gates = tmp_path / "gates.toml"
    gates.write_text(GATES)
    options = ("--model", "calibration:1k", "--lengths", "8k", "--thresholds", str(gates))
    assert "the gate 'gain'" in usage_error(*options)
    gates.write_text('[[gate]]\nname = "a"\nkind = "likelihood"\nmeasure = "gain"\nabove = 1\ncategory = "summ"\n')
    assert "no exact answer in this run" in usage_error(*options, "--suite", "helmet", "--signal", "both")
