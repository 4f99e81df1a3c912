"""A model that cannot be measured: every case says so in one line, and no number is made up."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from runs import Finished, calibrated, finished_run
from safetensors.numpy import load_file, save_file
from test_run_reports import SCHEMA

Change = Callable[[Path], object]
CASES = 2


def not_a_number(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"] = np.full_like(weights["lm_head.weight"], np.nan)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def another_shape(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": config["intermediate_size"] * 2}))


BROKEN: dict[str, tuple[Change, str]] = {
    "weights that are no numbers": (not_a_number, r"the model's logits are NaN or infinite after \d+ tokens .*"),
    "weights of another shape": (another_shape, "--model: .* does not fit its config.json: .* gives another shape to .*"),
}


@pytest.fixture(scope="module", params=BROKEN)
def broken(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, str]:
    """A run whose model loads nowhere or answers nothing, and the line that says why."""
    change, line = BROKEN[request.param]
    folder = Path(shutil.copytree(calibrated("512"), tmp_path_factory.mktemp("broken") / "step_9"))
    change(folder)
    selection = ("--lengths", "512,600", "--samples", "1", "-k", "niah_single_1")
    return finished_run(tmp_path_factory, "--model", str(folder), *selection), line


def test_every_case_is_an_error_with_its_reason_in_one_line(broken: tuple[Finished, str]) -> None:
    run, line = broken
    assert run.code == 1
    assert len(run.cases) == CASES
    for case in run.cases.values():
        assert (case["verdict"], case["score"], case["interval"]) == ("error", None, None)
        assert re.fullmatch(line, case["error"])
        failure = run.junit[case["id"]].find("failure")
        assert failure is not None
        assert failure.text == case["error"]


def test_nothing_is_averaged_over_errors(broken: tuple[Finished, str]) -> None:
    run, _ = broken
    assert run.gates
    assert {(gate["verdict"], gate["measured"]) for gate in run.gates.values()} <= {
        ("error", None),
        ("not measured", None),
    }
    assert run.gates["effective length"]["verdict"] == "error"
    assert run.gates["retrieval at 512"]["verdict"] == "error"
    assert run.gates["qa at 512"]["verdict"] == "not measured"
    assert set(run.report["ruler"]["scores"].values()) == {None}


def test_no_traceback_is_shown(broken: tuple[Finished, str]) -> None:
    run, _ = broken
    assert "Traceback" not in run.output + run.errors
    assert "raise " not in run.output


def test_a_report_is_written_all_the_same(broken: tuple[Finished, str]) -> None:
    run, _ = broken
    Draft202012Validator(SCHEMA).validate(run.report)
    assert len(run.junit) == CASES + len(run.gates)
