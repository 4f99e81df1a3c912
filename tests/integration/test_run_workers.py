"""Several workers, one of which dies: the run continues, and the lost case is an error without a score."""

from types import SimpleNamespace

import pytest

from longctx.plugins.controller import pytest_configure_node, pytest_testnodedown
from tests.helpers.runs import NEEDLES, ONLY_NEEDLES, CompletedRun, calibration_checkpoint, completed_run
from tests.helpers.servers import served_needles
from tests.integration.test_run_gates import GATES

KILLER_CASE = "vt-1k"
KILLER_PLUGIN = f"""
import os
import signal

def pytest_runtest_call(item):
    if item.name == "test_ruler[{KILLER_CASE}]" and hasattr(item.config, "workerinput"):
        os.kill(os.getpid(), signal.SIGKILL)
"""
MORE_GATES = f"""{GATES}
[[gate]]
name = "tracing"
kind = "level"
aspect = "tracing"
lengths = ["1k"]
above = 50
"""
# cwe has no sample of 512 tokens.
SELECTED = f"{ONLY_NEEDLES[1]} or (vt and 1k) or (cwe and 512)"


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> CompletedRun:
    """A run of the needle tasks with two workers, one of which is killed by a case."""
    model = ("--model", "calibration:512", "--lengths", "512,1k", "--samples", "2", "-n", "2", "-k", SELECTED)
    with served_needles(512, calibration_checkpoint("512")) as server:
        return completed_run(tmp_path_factory, *model, server, thresholds=MORE_GATES, plugin=KILLER_PLUGIN)


def test_the_case_that_killed_its_worker_is_an_error(crashed: CompletedRun) -> None:
    lost = crashed.cases[KILLER_CASE]
    assert (lost["verdict"], lost["score"], lost["samples"]) == ("error", None, 0)
    assert "\n" not in lost["error"]
    assert "no result came back" in lost["error"]
    assert crashed.report["run"]["partial"] is True
    assert crashed.exit_code == 1


def test_all_other_cases_are_measured_once(crashed: CompletedRun) -> None:
    others = [case for case in crashed.cases.values() if case["task"] in NEEDLES]
    assert len(others) == len(NEEDLES) * 2
    assert {(case["samples"], case["error"]) for case in others} == {(2, None)}


def test_a_gate_that_needs_the_lost_case_is_an_error(crashed: CompletedRun) -> None:
    tracing = crashed.gates["tracing at 1k"]
    assert (tracing["verdict"], tracing["measured"]) == ("error", None)
    assert f"test_ruler[{KILLER_CASE}]" in tracing["reason"]
    assert crashed.junit_outcomes("gate[tracing at 1k]") == ["failure"]
    suite = crashed.gates["suite at 1k"]
    assert (suite["verdict"], suite["measured"]) == ("error", None)


def test_a_gate_that_does_not_need_the_lost_case_is_measured(crashed: CompletedRun) -> None:
    reach = crashed.gates["reach"]
    assert (reach["verdict"], reach["measured"]) == ("pass", 512)
    assert (reach["samples"], reach["of"]) == (24, 24)
    assert crashed.gates["needles at 512"]["verdict"] == "pass"


def test_a_selected_case_that_cannot_fit_is_an_error(crashed: CompletedRun) -> None:
    cwe = crashed.cases["cwe-512"]
    assert (cwe["verdict"], cwe["score"]) == ("error", None)
    assert cwe["error"].startswith("cwe at 512 tokens cannot fit: ")
    assert "\n" not in cwe["error"]
    assert cwe["id"] in crashed.gates["suite at 512"]["reason"]


def test_every_case_and_every_gate_is_in_the_junit_file(crashed: CompletedRun) -> None:
    for case in crashed.report["cases"]:
        if case["id"] != f"test_ruler[{KILLER_CASE}]":
            assert crashed.junit_outcomes(case["id"]) == (["failure"] if case["verdict"] == "error" else [])
    # xdist itself reports the test that killed a worker, under another name.
    killed_names = [name for name in crashed.junit if KILLER_CASE in name and not name.startswith("gate")]
    assert [crashed.junit_outcomes(name) for name in killed_names] == [["error"]]
    for name in crashed.gates:
        assert f"gate[{name}]" in crashed.junit
    assert len(crashed.junit) == len(crashed.cases) + len(crashed.gates)


def test_a_replacement_worker_takes_the_slot_of_the_dead_one() -> None:
    config = SimpleNamespace(stash=pytest.Stash())

    def node(name: str) -> SimpleNamespace:
        return SimpleNamespace(config=config, gateway=SimpleNamespace(id=name), workerinput={})

    def slot_of(name: str) -> int:
        started = node(name)
        pytest_configure_node(started)
        return int(started.workerinput["longctx_slot"])

    assert [slot_of(name) for name in ("gw0", "gw1", "gw2")] == [0, 1, 2]
    pytest_testnodedown(node("gw1"))
    assert slot_of("gw3") == 1
    pytest_testnodedown(node("gw9"))
    assert slot_of("gw4") == 3


def test_xdist_has_the_option_that_assigns_cases_one_by_one(pytestconfig: pytest.Config) -> None:
    """The suite sets the option by its name. Without it, a case could wait in the queue of a busy worker."""
    assert hasattr(pytestconfig.option, "maxschedchunk")
