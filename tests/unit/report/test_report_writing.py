"""A report that cannot be written when the run has ended: one line, exit code 1, and all others are there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from jsonschema import Draft202012Validator

from plugins.reports import write
from tests.helpers.runs import SCHEMA, start

# When the run has begun: the page's directory is gone, where the Markdown should be is a directory, and where
# TensorBoard's directory was is a file.
SPOILER = """
from pathlib import Path

def pytest_collection_finish(session):
    here = Path(__file__).parent
    (here / "gone").rmdir()
    (here / "report.md").mkdir()
    (here / "tb").rmdir()
    (here / "tb").write_text("")
"""


def test_a_report_that_cannot_be_written_takes_no_other_along(tmp_path: Path) -> None:
    (tmp_path / "spoiler.py").write_text(SPOILER)
    what = ("--model", "calibration:900", "--lengths", "900", "--samples", "1", "-k", "niah_single_1")
    lost = {"--report-html": "gone/report.html", "--report-md": "report.md", "--tensorboard": "tb"}
    targets = [f"{option}={tmp_path}/{name}" for option, name in lost.items()]
    kept = ("--report-json", f"{tmp_path}/report.json", f"--junitxml={tmp_path}/junit.xml")
    run = start(tmp_path, "-p", "spoiler", *what, *targets, *kept)
    assert "INTERNALERROR" not in run.output + run.errors
    assert "Traceback" not in run.output + run.errors
    assert "failed" not in run.counts
    assert run.code == 1
    Draft202012Validator(SCHEMA).validate(run.report)
    assert ElementTree.parse(tmp_path / "junit.xml").find(".//testcase") is not None
    lines = run.output.splitlines()
    assert f"report     {tmp_path}/report.json" in lines
    for option, name in lost.items():
        told = rf"{option}: cannot write {tmp_path}/{name} \([^()]+\); .* journal: .* the same command writes it .*"
        assert len([line for line in lines if re.fullmatch(told, line)]) == 1
        assert f"report     {tmp_path}/{name}" not in lines
    assert not list(tmp_path.glob(".report*"))


def test_half_a_report_is_not_left_behind(tmp_path: Path) -> None:
    (tmp_path / "r.json").mkdir()
    with pytest.raises(IsADirectoryError):
        write(tmp_path / "r.json", json.dumps([1]))
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]
