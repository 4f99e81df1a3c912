"""Selection and listing of gates by the ids that a run prints."""

from pathlib import Path

import pytest

from longctx.fixtures.tasks import SUITES, TASKS
from tests.helpers.runs import NEEDLES, CompletedRun, calibration_checkpoint, completed_run, run_pytest
from tests.helpers.servers import served_needles
from tests.integration.test_run_gates import GATES

SIZE = ("--model", "calibration:512", "--lengths", "512,1k", "--samples", "1", "--full")
LIST = ("--collect-only", "-q")


def run(factory: pytest.TempPathFactory, *arguments: str) -> CompletedRun:
    with served_needles(512, calibration_checkpoint("512")) as server:
        return completed_run(factory, *SIZE, *arguments, server, thresholds=GATES, own_journal=True)


def list_ids(folder: Path, *arguments: str) -> tuple[set[str], set[str]]:
    """Return the ids of the cases and of the gates that --collect-only lists."""
    (folder / "gates.toml").write_text(GATES)
    completed = run_pytest(folder, *SIZE, *LIST, f"--thresholds={folder}/gates.toml", *arguments)
    assert completed.exit_code == 0, completed.output + completed.errors
    ids = {line for line in completed.output.splitlines() if "::" in line}
    gates = {line for line in ids if line.startswith("gates.toml::")}
    return {line.rpartition("::")[2] for line in ids - gates}, gates


def cases_at(length: str) -> set[str]:
    return {f"test_ruler[{task}-{length}]" for task in NEEDLES}


def test_selecting_a_gate_runs_only_its_cases(tmp_path_factory: pytest.TempPathFactory) -> None:
    completed = run(tmp_path_factory, "-k", "needles at 512", "-n", "2")
    assert completed.exit_code == 0
    assert {case["id"] for case in completed.report["cases"]} == cases_at("512")
    assert {name: gate["verdict"] for name, gate in completed.gates.items()} == {"needles at 512": "pass"}
    assert set(completed.junit) == {*cases_at("512"), "gate[needles at 512]"}


def test_a_printed_id_selects_its_gate(tmp_path_factory: pytest.TempPathFactory) -> None:
    completed = run(tmp_path_factory, "gates.toml::gate[reach]")
    assert completed.exit_code == 0
    assert list(completed.gates) == ["reach"]
    assert {case["id"] for case in completed.report["cases"]} == cases_at("512") | cases_at("1k")


@pytest.mark.parametrize("suite", SUITES)
def test_every_task_of_a_suite_is_listed(suite: str, tmp_path: Path) -> None:
    cases, _ = list_ids(tmp_path, "--suite", suite, "--lengths", "4k")
    names = {case.partition("[")[2].removesuffix("-4k]") for case in cases}
    assert names == {task.name for task in TASKS.values() if task.suite == suite}


def test_gates_are_listed_with_the_ids_that_a_run_prints(tmp_path: Path) -> None:
    names = ("reach", *(f"{name} at {length}" for name in ("needles", "suite") for length in ("512", "1k")))
    cases, gates = list_ids(tmp_path)
    assert gates == {f"gates.toml::gate[{name}]" for name in names}
    assert cases > cases_at("512")


@pytest.mark.parametrize(
    "arguments", [("--deselect", "gates.toml::gate[suite at"), ("-k", "not gate[suite]")], ids=["deselect", "not"]
)
def test_a_gate_is_deselected_by_its_id(arguments: tuple[str, ...], tmp_path: Path) -> None:
    cases, gates = list_ids(tmp_path, *arguments)
    assert gates == {f"gates.toml::gate[{name}]" for name in ("reach", "needles at 512", "needles at 1k")}
    assert "test_ruler[vt-1k]" in cases


def test_the_id_of_a_regressed_case_selects_the_case(tmp_path: Path) -> None:
    cases, gates = list_ids(tmp_path, "gates.toml::case[vt-1k]")
    assert cases == {"test_ruler[vt-1k]"}
    assert len(gates) == 5
