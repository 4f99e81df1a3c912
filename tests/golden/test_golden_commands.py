"""What users see is as recorded: help texts, error lines with exit codes, and whole runs on calibration checkpoints."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from tests.golden.commands import RECORDED, differences
from tests.golden.record_commands import made, recordings
from tests.golden.whole_runs import RUNS, continued, versions_of_journal
from tests.golden.wrong_uses import wrong_uses

pytestmark = [pytest.mark.slow, pytest.mark.recording]


@pytest.mark.parametrize("name", ["help", *wrong_uses()])
def test_outputs_of_commands_are_as_recorded(name: str) -> None:
    assert differences(made(recordings()[name])) == []


def test_every_record_of_an_error_is_made() -> None:
    assert {path.stem for path in (RECORDED / "errors").iterdir()} == set(wrong_uses())


@pytest.mark.parametrize("name", RUNS)
def test_whole_runs_are_as_recorded(name: str) -> None:
    assert differences(made(recordings()[f"run: {name}"])) == []


def test_a_journal_of_today_is_continued_without_a_new_answer(tmp_path: Path) -> None:
    here = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "transformers"))
    if versions_of_journal() != here:
        pytest.skip(f"the journal has answers of {versions_of_journal()}, and this is {here}")
    printed = continued(tmp_path)
    assert "0 samples answered in this run" in printed
