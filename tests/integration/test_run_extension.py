"""A report as baseline is extended while its checkpoint exists; too few results are never a silent pass."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.helpers.runs import SCHEMA, CompletedRun, calibration_checkpoint, completed_run
from tests.helpers.servers import served_needles

TASK = "niah_single_1"
PLANNED = 48
SELECTED = ("--lengths", "512", "--samples", str(PLANNED), "-k", TASK)
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
def served() -> Iterator[str]:
    """The option for a server whose model finds every needle."""
    with served_needles(512, calibration_checkpoint("full")) as server:
        yield server


@pytest.fixture(scope="module")
def early(served: str, tmp_path_factory: pytest.TempPathFactory) -> CompletedRun:
    """A run that stopped as soon as its level gate was decided."""
    model = ("--model", "calibration:full", served)
    return completed_run(tmp_path_factory, *model, *SELECTED, thresholds=LEVEL, own_journal=True)


def compared(early: CompletedRun, journal: Path, **model: Any) -> tuple[str, ...]:
    """Return the options that compare with the early run; `model` changes entries of its report."""
    report = early.report
    report["model"] |= model
    report["run"]["options"]["journal"] = str(journal)
    path = journal.with_suffix(".json")
    path.write_text(json.dumps(report))
    return ("--baseline", str(path), "--journal", str(journal))


def test_without_its_checkpoint_an_early_report_has_too_few_pairs(
    early: CompletedRun, served: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    options = compared(early, early.folder / "journal", path="/nonexistent/step_1")
    model = ("--model", str(calibration_checkpoint("full-step=3000")), served)
    run = completed_run(tmp_path_factory, *model, *SELECTED, *options, thresholds=LEVEL)
    known = early.cases[f"{TASK}-512"]["samples"]
    gate = run.gates["regression at 512"]
    assert (gate["verdict"], gate["samples"], run.exit_code) == ("undecided", known, 1)
    assert known < PLANNED
    assert gate["detectable"] is None or gate["detectable"] > 20
    assert run.report["run"]["computed_samples"] <= known
    assert f"too few pairs for a loss of 20 points: {known} of {PLANNED} pairs detect " in run.output
    assert run.output.index("too few pairs for a loss") < run.output.index("long context =")
    Draft202012Validator(SCHEMA).validate(run.report)


def test_the_checkpoint_of_an_early_report_answers_the_missing_samples(
    early: CompletedRun, served: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    worse = calibration_checkpoint("full-step=3000")
    journal = Path(shutil.copytree(early.folder / "journal", early.folder / "copy"))
    with served_needles(200, worse) as server:
        servers = (server, served.replace("--base-url", "--baseline-url"))
        options = ("--model", str(worse), *servers, *SELECTED, *compared(early, journal))
        run = completed_run(tmp_path_factory, *options, thresholds=LEVEL)
    known = early.cases[f"{TASK}-512"]["samples"]
    gate = run.gates["regression at 512"]
    assert (gate["verdict"], run.exit_code) == ("fail", 1)
    assert known < gate["samples"] <= PLANNED
    assert f"{PLANNED} of {PLANNED} pairs detect a loss of " in run.output
    assert f"; {known} are known" in run.output
