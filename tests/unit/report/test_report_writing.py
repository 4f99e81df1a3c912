"""A report that cannot be written at the end of a run: a one-line error and exit code 1, and all others are written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from jsonschema import Draft202012Validator

from longctx.plugins.reports import write
from tests.helpers.runs import SCHEMA, run_pytest

# After the options were checked, removes the page's directory, puts a directory in the place of the Markdown file and a
# file in the place of TensorBoard's directory.
OBSTRUCTION = """
from pathlib import Path

def pytest_collection_finish(session):
    folder = Path(__file__).parent
    (folder / "gone").rmdir()
    (folder / "report.md").mkdir()
    (folder / "tb").rmdir()
    (folder / "tb").write_text("")
"""


def test_a_report_that_cannot_be_written_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "obstruction.py").write_text(OBSTRUCTION)
    selection = ("--model", "calibration:900", "--lengths", "900", "--samples", "1", "-k", "niah_single_1")
    lost = {"--report-html": "gone/report.html", "--report-md": "report.md", "--tensorboard": "tb"}
    targets = [f"{option}={tmp_path}/{name}" for option, name in lost.items()]
    writable = ("--report-json", f"{tmp_path}/report.json", f"--junitxml={tmp_path}/junit.xml")
    run = run_pytest(tmp_path, "-p", "obstruction", *selection, *targets, *writable)
    assert "INTERNALERROR" not in run.output + run.errors
    assert "Traceback" not in run.output + run.errors
    assert "failed" not in run.counts
    assert run.exit_code == 1
    Draft202012Validator(SCHEMA).validate(run.report)
    assert ElementTree.parse(tmp_path / "junit.xml").find(".//testcase") is not None
    lines = run.output.splitlines()
    assert f"report     {tmp_path}/report.json" in lines
    for option, name in lost.items():
        error = rf"{option}: cannot write {tmp_path}/{name} \([^()]+\); .* journal: .* the same command writes it .*"
        assert len([line for line in lines if re.fullmatch(error, line)]) == 1
        assert f"report     {tmp_path}/{name}" not in lines
    assert not list(tmp_path.glob(".report*"))


def test_a_failed_write_leaves_no_partial_file(tmp_path: Path) -> None:
    (tmp_path / "r.json").mkdir()
    with pytest.raises(IsADirectoryError):
        write(tmp_path / "r.json", json.dumps([1]))
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]
