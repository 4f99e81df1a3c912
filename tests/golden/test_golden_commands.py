"""What users see is as recorded: help texts, error lines with exit codes, and whole runs on calibration checkpoints."""

import re
from importlib import metadata
from pathlib import Path

import pytest

from longctx import cli
from longctx.plugins.config import options
from tests.golden.commands import GROUPS, RECORDED, differences
from tests.golden.record_commands import made, recordings
from tests.golden.whole_runs import RUNS, continued, versions_of_journal

pytestmark = [pytest.mark.slow, pytest.mark.recording]


@pytest.mark.parametrize("name", ["help", *GROUPS])
def test_outputs_of_commands_are_as_recorded(name: str) -> None:
    assert differences(made(recordings()[name])) == []


def test_every_option_that_is_gone_names_what_replaced_it() -> None:
    record = (RECORDED / "errors" / "gone.txt").read_text(encoding="utf-8")
    gone = [*cli.REMOVED, *(flag for flag in options.REMOVED if flag.startswith("--"))]
    assert [name for name in gone if f" {name} x\n" not in record] == []


@pytest.mark.parametrize("name", RUNS)
def test_whole_runs_are_as_recorded(name: str) -> None:
    assert differences(made(recordings()[f"run: {name}"])) == []


def test_no_recording_holds_a_time_that_a_slower_machine_would_change() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in (RECORDED / "runs").rglob("*.*") if path.is_file()}
    assert [name for name, text in texts.items() if re.search(r"\bin \d+ (?:s|min)\b", text)] == []


def test_a_journal_of_today_is_continued_without_a_new_answer(tmp_path: Path) -> None:
    here = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "transformers"))
    if versions_of_journal() != here:
        pytest.skip(f"the journal has answers of {versions_of_journal()}, and this is {here}")
    printed = continued(tmp_path)
    assert " samples, 0 answered now in " in " ".join(printed.split())
