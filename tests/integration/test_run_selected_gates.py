"""Selection of gates by the ids that a run prints."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from longctx.fixtures.tasks import FAMILIES, SUITES, TASKS
from longctx.plugins.gate_tests import _select
from longctx.plugins.stash import RUN, SELECTED_GATES, CollectedTests
from longctx.plugins.thresholds.records import load_thresholds
from tests.helpers.reports import CHECKPOINT, cases_of
from tests.helpers.runs import NEEDLES, CompletedRun, calibration_checkpoint, completed_run, run_pytest
from tests.helpers.servers import served_needles
from tests.helpers.workers import options_of, run_with
from tests.integration.test_run_gates import GATES

SIZE = ("--model", "calibration:512", "--lengths", "512,1k", "--samples", "1", "--full")


def run(factory: pytest.TempPathFactory, *arguments: str) -> CompletedRun:
    with served_needles(512, calibration_checkpoint("512")) as server:
        return completed_run(factory, *SIZE, *arguments, server, thresholds=GATES, own_journal=True)


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
    completed = run_pytest(tmp_path, *SIZE[:2], "--lengths", "4k", "--collect-only", "-q", "--suite", suite)
    assert completed.exit_code == 0, completed.output + completed.errors
    cases = [line.rpartition("::")[2] for line in completed.output.splitlines() if "::" in line]
    names = {case.partition("[")[2].removesuffix("-4k]") for case in cases}
    assert names == {task.name for task in TASKS.values() if task.suite == suite}


@pytest.mark.parametrize(
    ("keyword", "deselect"), [("", ["gates.toml::gate[suite at"]), ("not gate[suite]", [])], ids=["deselect", "not"]
)
def test_a_gate_is_deselected_by_its_id(keyword: str, deselect: list[str], tmp_path: Path) -> None:
    (tmp_path / "gates.toml").write_text(GATES)
    options = options_of("/m", lengths=(512, 1024), thresholds=str(tmp_path / "gates.toml"))
    rules = load_thresholds(tmp_path / "gates.toml", known_tasks=FAMILIES)
    config: Any = SimpleNamespace(
        stash=pytest.Stash(), args=["tests_longctx"], option=SimpleNamespace(keyword=keyword, deselect=deselect)
    )
    config.option.thresholds = options.thresholds
    config.stash[RUN] = run_with(options, checkpoint=CHECKPOINT, cases=cases_of(options), thresholds=rules)
    assert _select(config) == CollectedTests(keyword="", paths=("tests_longctx",), cases=())
    assert config.stash[SELECTED_GATES] == {"reach", "needles at 512", "needles at 1k"}
