"""Gates of a complete run: blocking gates, gates that are only reported, and gates that a selection leaves out."""

import json
from pathlib import Path

import pytest

from tests.helpers.runs import NEEDLES, ONLY_NEEDLES, CompletedRun, calibration_checkpoint, completed_run, run_pytest
from tests.helpers.servers import served_needles
from tests.helpers.workers import run_of

GATES = f"""
[[gate]]
name = "reach"
kind = "effective_length"
tasks = {list(NEEDLES)}
above = 85.6
at_least = "512"

[[gate]]
name = "needles"
kind = "level"
tasks = {list(NEEDLES)}
above = 99
blocking = false

[[gate]]
name = "suite"
kind = "level"
above = "reference"
"""
LENGTHS = ("512", "1k")


@pytest.fixture(scope="module")
def narrowed(tmp_path_factory: pytest.TempPathFactory) -> CompletedRun:
    """A run of the needle tasks with a checkpoint that reaches exactly the required 512 tokens."""
    model = ("--model", "calibration:512", "--lengths", ",".join(LENGTHS), "--samples", "1", "--full")
    with served_needles(512, calibration_checkpoint("512")) as server:
        return completed_run(tmp_path_factory, *model, *ONLY_NEEDLES, server, thresholds=GATES, own_journal=True)


def test_a_checkpoint_that_reaches_the_required_length_passes(narrowed: CompletedRun) -> None:
    assert narrowed.exit_code == 0
    reach = narrowed.gates["reach"]
    assert (reach["verdict"], reach["measured"], reach["required"]) == ("pass", 512, 512)
    assert (reach["samples"], reach["of"]) == (12, 12)


def test_a_failed_gate_that_does_not_block_does_not_fail_the_run(narrowed: CompletedRun) -> None:
    assert narrowed.gates["needles at 512"]["verdict"] == "pass"
    beyond = narrowed.gates["needles at 1k"]
    assert (beyond["verdict"], beyond["blocking"]) == ("fail", False)
    assert narrowed.exit_code == 0


def test_a_narrowed_run_reports_the_gates_that_it_did_not_measure(narrowed: CompletedRun) -> None:
    for length in LENGTHS:
        suite = narrowed.gates[f"suite at {length}"]
        assert (suite["verdict"], suite["measured"], suite["blocking"]) == ("not measured", None, True)
        assert f"not run at {length.upper()}" in suite["reason"]
    assert narrowed.report["run"]["partial"] is True
    assert narrowed.report["ruler"]["effective_length"] is None


def test_the_shortest_cases_come_first(narrowed: CompletedRun) -> None:
    ends = [name.partition("-")[2] for name in narrowed.junit if name.startswith("test_ruler[")]
    assert ends == ["512]"] * len(NEEDLES) + ["1k]"] * len(NEEDLES)


@pytest.mark.parametrize(("spec", "mean"), [("512", 79.4), ("512-chat", 85.6)])
def test_a_model_with_a_chat_template_is_compared_with_the_chat_reference(spec: str, mean: float) -> None:
    run = run_of(calibration_checkpoint(spec))
    assert run.scope(run.cases).reference.scores["mean"] == mean


def test_tasks_that_do_not_fit_a_length_are_left_out_and_fail_no_gate(tmp_path: Path) -> None:
    report_file = tmp_path / "report.json"
    options = ("--lengths=512", "--samples=1", "--device=cpu", f"--report-json={report_file}")
    run = run_pytest(tmp_path, "--model=calibration:512", *options)
    assert "left out   vt, cwe at 512: too short for their prompts; name them to see" in run.output
    report = json.loads(report_file.read_text())
    words = {gate["name"]: gate["verdict"] for gate in report["gates"] if gate["blocking"]}
    assert (run.exit_code, words, len(report["cases"])) == (0, {"effective length": "not measured"}, 11)
