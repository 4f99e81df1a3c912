"""The samples that a run measures: early stopping, reuse of the journal and a time budget."""

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.helpers.runs import SCHEMA, CompletedRun, calibration_checkpoint, completed_run
from tests.helpers.servers import served_needles

PLANNED = 20
TASK, OTHER = "niah_single_1", "niah_single_3"
SELECTED = ("--lengths", "512,1k", "--samples", str(PLANNED), "-k", TASK)
LEVELS = f"""
[[gate]]
name = "low"
kind = "level"
tasks = ["{TASK}"]
lengths = ["512"]
above = 50

[[gate]]
name = "high"
kind = "level"
tasks = ["{TASK}"]
lengths = ["1k"]
above = 99
"""
# Makes every attempt to load a model fail.
UNLOADABLE = """
from longctx.fixtures import engines

def unloadable(*arguments, **settings):
    raise engines.EngineError("no model should be loaded")

engines.ENGINES.update(hf=unloadable, openai=unloadable)
"""


def verdict_words(run: CompletedRun) -> dict[str, str]:
    return {name: gate["verdict"] for name, gate in run.gates.items()}


def without_times(run: CompletedRun) -> dict[str, Any]:
    """Return the parts of the report that do not depend on the time and the number of runs."""
    sections = {section: run.report[section] for section in ("cases", "gates", "ruler", "regression")}
    for case in sections["cases"]:
        del case["seconds"]
    return sections


def computed_samples(run: CompletedRun) -> int:
    count: int = run.report["run"]["computed_samples"]
    return count


# --- early stopping and reuse: successive runs with one journal ---


@pytest.fixture(scope="module")
def model() -> Iterator[tuple[str, ...]]:
    """The options for a model with a window of 512 tokens on a server, so that no run has weights to load."""
    with served_needles(512, calibration_checkpoint("512")) as server:
        yield "--model", "calibration:512", server


@pytest.fixture(scope="module")
def early(model: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> CompletedRun:
    """One task at an easy length and at one beyond the window, with gates that are decided early."""
    return completed_run(tmp_path_factory, *model, *SELECTED, thresholds=LEVELS, own_journal=True)


@pytest.fixture(scope="module")
def full(model: tuple[str, ...], early: CompletedRun, tmp_path_factory: pytest.TempPathFactory) -> CompletedRun:
    """The same run with --full, which reuses the results of `early`."""
    return completed_run(tmp_path_factory, *model, *SELECTED, "--full", *journal_of(early), thresholds=LEVELS)


def journal_of(run: CompletedRun) -> tuple[str, str]:
    return ("--journal", str(run.folder / "journal"))


def test_a_panel_stops_as_soon_as_its_gate_is_decided(early: CompletedRun) -> None:
    assert verdict_words(early) == {"low at 512": "pass", "high at 1k": "fail"}
    for case in early.report["cases"]:
        assert 8 <= case["samples"] < case["planned"] == PLANNED
        assert case["decided_by"] == f"{case['samples']} of {PLANNED} samples, when its gates were decided"
        low, high = case["interval"]
        assert low <= case["score"] <= high
    for gate in early.report["gates"]:
        assert gate["samples"] < gate["of"] == PLANNED
    assert computed_samples(early) < 2 * PLANNED


def test_a_full_run_measures_all_samples_and_reaches_the_same_verdicts(early: CompletedRun, full: CompletedRun) -> None:
    assert full.report["run"]["options"]["full"] is True
    assert early.report["run"]["options"]["full"] is False
    assert {case["samples"] for case in full.report["cases"]} == {PLANNED}
    assert verdict_words(full) == verdict_words(early)
    assert full.exit_code == early.exit_code == 1


def test_a_full_run_computes_only_the_samples_that_the_early_run_left_out(
    early: CompletedRun, full: CompletedRun
) -> None:
    assert computed_samples(early) + computed_samples(full) == 2 * PLANNED


def test_a_second_run_loads_no_model_and_gives_the_same_report(
    model: tuple[str, ...], early: CompletedRun, full: CompletedRun, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """This holds although the journal now has more samples than the first run needed."""
    again = completed_run(
        tmp_path_factory, *model, *SELECTED, *journal_of(full), *journal_of(early),
        thresholds=LEVELS, plugin=UNLOADABLE,
    )  # fmt: skip
    assert computed_samples(again) == 0
    assert again.exit_code == early.exit_code
    assert without_times(again) == without_times(early)


def test_more_samples_and_more_tasks_reuse_stored_results(
    model: tuple[str, ...], early: CompletedRun, full: CompletedRun, tmp_path_factory: pytest.TempPathFactory
) -> None:
    more = PLANNED + 2
    size = ("--lengths", "512", "--samples", str(more), "--full", "-k", f"{TASK} or {OTHER}")
    run = completed_run(tmp_path_factory, *model, *size, *journal_of(early), thresholds=LEVELS)
    assert {name: case["samples"] for name, case in run.cases.items()} == {f"{TASK}-512": more, f"{OTHER}-512": more}
    assert computed_samples(run) == 2 + more


# --- a budget ---


def test_a_case_that_a_budget_leaves_open_is_inconclusive_without_a_score(
    model: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = completed_run(tmp_path_factory, *model, *SELECTED, "--budget", "0.0001", thresholds=LEVELS, own_journal=True)
    assert run.exit_code == 1
    assert {(gate["verdict"], gate["measured"], gate["interval"]) for gate in run.gates.values()} == {
        ("undecided", None, None)
    }
    assert {(case["verdict"], case["score"], case["samples"]) for case in run.cases.values()} == {
        ("undecided", None, 0)
    }
    assert run.report["ruler"]["effective_length"] is None
    Draft202012Validator(SCHEMA).validate(run.report)
