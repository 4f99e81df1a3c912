"""A report field that does not exist is an error of types, not of a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.paths import REPOSITORY

READER = """
from longctx.fixtures.records.report import JsonReport
def gates(report: JsonReport) -> list[bool]:
    return [gate.{field} for gate in report.gates]
"""


@pytest.mark.slow
@pytest.mark.parametrize(("field", "code"), [("blocking", 0), ("bloking", 1)])
def test_mypy_refuses_a_misspelt_field_of_the_report(field: str, code: int, tmp_path: Path) -> None:
    reader = tmp_path / "reader.py"
    reader.write_text(READER.format(field=field))
    command = [sys.executable, "-m", "mypy", str(reader)]
    checked = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert checked.returncode == code, checked.stdout
    assert ('has no attribute "bloking"' in checked.stdout) == bool(code)
