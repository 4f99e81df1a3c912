"""A report as baseline is extended while its checkpoint exists; too few results are never a silent pass."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.helpers.runs import SCHEMA, CompletedRun, calibration_checkpoint, completed_run

TASK = "niah_single_1"
SELECTED = ("--lengths", "512", "--samples", "80", "-k", TASK)
LEVEL = f"""
[[gate]]
name = "low"
kind = "level"
tasks = ["{TASK}"]
above = 50

[regression]
drop = 20
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(calibration_checkpoint("full"), tmp_path_factory.mktemp("run") / "step_1"))


@pytest.fixture(scope="module")
def early(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> CompletedRun:
    """A run that stopped as soon as its level gate was decided."""
    return completed_run(tmp_path_factory, "--model", str(checkpoint), *SELECTED, thresholds=LEVEL, own_journal=True)


@pytest.fixture(scope="module")
def journal(early: CompletedRun) -> tuple[str, ...]:
    """The options that compare with the early run, in a journal that no other test extends."""
    copy = shutil.copytree(early.folder / "journal", early.folder / "copy")
    return ("--baseline", str(early.folder / "report.json"), "--journal", str(copy))


@pytest.fixture(scope="module")
def moved(checkpoint: Path, early: CompletedRun) -> Path:
    """The same checkpoint in another place: its results are known, but the baseline's checkpoint is gone."""
    return Path(shutil.move(checkpoint, early.folder / "step_2"))


@pytest.mark.parametrize(("underpowered", "exit_code"), [("extend", 1), ("report", 0)])
def test_without_its_checkpoint_an_early_report_is_underpowered(
    underpowered: str,
    exit_code: int,
    early: CompletedRun,
    journal: tuple[str, ...],
    moved: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    thresholds = f'{LEVEL}underpowered = "{underpowered}"\n'
    run = completed_run(
        tmp_path_factory, "--model", str(moved), *SELECTED, *early_journal(early), thresholds=thresholds
    )
    known = early.cases[f"{TASK}-512"]["samples"]
    gate = run.gates["regression at 512"]
    assert (gate["verdict"], gate["samples"], run.exit_code) == ("underpowered", known, exit_code)
    assert known < 80
    assert gate["detectable"] is None or gate["detectable"] > 20
    assert run.report["run"]["computed_samples"] == 0
    assert f"underpowered for a loss of 20 points: {known} of 80 pairs detect " in run.output
    assert run.output.index("underpowered for a loss") < run.output.index("long context =")
    Draft202012Validator(SCHEMA).validate(run.report)


def test_the_checkpoint_of_an_early_report_answers_the_missing_samples(
    early: CompletedRun,
    journal: tuple[str, ...],
    moved: Path,
    checkpoint: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    worse = calibration_checkpoint("full-blind=0.3")
    shutil.copytree(moved, checkpoint)
    run = completed_run(tmp_path_factory, "--model", str(worse), *SELECTED, *journal, thresholds=LEVEL)
    known = early.cases[f"{TASK}-512"]["samples"]
    gate = run.gates["regression at 512"]
    assert (gate["verdict"], run.exit_code) == ("fail", 1)
    assert known < gate["samples"] <= 80
    assert "80 of 80 pairs detect a loss of " in run.output
    assert f"; {known} are known" in run.output


def early_journal(run: CompletedRun) -> tuple[str, ...]:
    return ("--baseline", str(run.folder / "report.json"), "--journal", str(run.folder / "journal"))
