"""--plan tells what a run would take without taking it; a case's id is the same for ever."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from longctx.fixtures.cases import plan
from longctx.fixtures.corpora import Corpora
from tests.helpers.preloaded import VARIABLE
from tests.helpers.runs import CompletedRun, calibration_checkpoint, run_pytest, sparse_weights
from tests.helpers.tiny_tokenizers import RULER
from tests.helpers.workers import options_of

GIBIBYTES = 1
OPTIONS = options_of("/m", lengths=(4096, 5000, 131072), samples=7)


@pytest.fixture(scope="module")
def unloadable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of 1 GiB that is whole by its header and that no model can be made of."""
    folder = Path(shutil.copytree(calibration_checkpoint("512"), tmp_path_factory.mktemp("sparse") / "step_9"))
    sparse_weights(folder / "model.safetensors", GIBIBYTES)
    return folder


HEAVY = f"""
import os
import sys

def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"heavy: {{sorted({{'torch', 'transformers'}} & set(sys.modules))}}")
    terminalreporter.write_line(f"server of tests: {{os.environ.get('{VARIABLE}')}}")
"""


@pytest.fixture(scope="module")
def planned(unloadable: Path, tmp_path_factory: pytest.TempPathFactory) -> CompletedRun:
    """One task at three lengths, of which one is too short, and another at one length; with workers."""
    chosen = ("-k", "cwe or (niah_single_1 and 4k) or vt", "-m", "aggregation or retrieval")
    selection = ("--lengths", "512,4k,128k", "--samples", "7", *chosen, "-n", "2")
    folder = tmp_path_factory.mktemp("planned")
    report = ("--report-json", f"{folder}/written/r.json")
    return run_pytest(folder, "--plan", "--model", str(unloadable), *selection, *report)


def test_a_plan_runs_nothing_and_loads_nothing(planned: CompletedRun) -> None:
    assert planned.exit_code == 0
    assert "nothing was measured: --plan" in planned.output.splitlines()[-1]
    assert "Traceback" not in planned.output + planned.errors
    assert not list(planned.folder.glob("written/*"))
    assert "report     none: nothing was measured for --report-json" in planned.output.splitlines()
    assert not (planned.folder / "journal").exists()


def test_a_list_of_cases_imports_neither_torch_nor_transformers(tmp_path: Path) -> None:
    (tmp_path / "heavy.py").write_text(HEAVY)
    model = (f"--model={calibration_checkpoint('512')}", "--lengths", "4k,128k")
    found = run_pytest(tmp_path, "-p", "heavy", "--collect-only", "-q", *model, fresh=True)
    assert found.exit_code == 0
    assert "tests_longctx/test_ruler.py::test_ruler[qa_2-128k]" in found.output.splitlines()
    assert "heavy: []" in found.output.splitlines()
    # pytest reads the conftest.py of this repository's tests, which starts a server for them alone.
    assert "server of tests: None" in found.output.splitlines()


def test_a_plan_has_a_row_for_each_length(planned: CompletedRun) -> None:
    rows = {line.split()[0]: line for line in planned.output.splitlines() if re.match(r" +(\d+k?|all) ", line)}
    assert rows["4k"].split()[1:4] == ["2", "14", f"{14 * 4096:,}"]
    assert rows["128k"].split()[1:4] == ["1", "7", f"{7 * 131072:,}"]
    memory = {length: float(re.findall(r"([\d.]+) GiB", rows[length])[0]) for length in ("4k", "128k")}
    # A window of 512 tokens keeps and reads no more of a longer prompt.
    assert GIBIBYTES <= memory["4k"] <= memory["128k"]
    assert f"{14 * 4096 + 7 * 131072:,}" in rows["all"]


def test_every_task_is_planned_at_every_length() -> None:
    cases = plan(OPTIONS, RULER, Corpora())
    assert {(case.task, case.length) for case in cases} == {(task, n) for task in RULER for n in OPTIONS.lengths}
    assert {case.samples for case in cases} == {7}
    assert len({case.id for case in cases}) == len(cases)


def test_ids_are_the_documented_ones_and_depend_on_task_and_length_alone() -> None:
    for options in (OPTIONS, replace(OPTIONS, model="n", samples=1, seed=9, suite="ruler")):
        ids = [case.id for case in plan(options, RULER, Corpora()) if case.task == "niah_single_2"]
        assert ids == [f"test_ruler[niah_single_2-{length}]" for length in ("4k", "5000", "128k")]
