"""Every run of the suite that a page shows has cases, and measures them on a small model."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.docs.command_table import NOT_RUN, beginning_of
from tests.docs.test_docs_ci import is_in_section
from tests.helpers.page_commands import PageCommand, page_commands, takes_minutes, words
from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import preloaded
from tests.helpers.runs import UNRELATED_PLUGINS

# Options whose values are of the reader's machine, and those that change no list of cases; how many words they take.
REPLACED = {"--model": 2, "-n": 2}
UNLISTED = {"--report-json": 2, "--report-html": 2, "--junitxml": 2, "--samples": 2, "--signal": 2} | dict.fromkeys(
    ("--plan", "--preflight", "--collect-only", "-q", "-v"), 1
)


def is_listed(command: PageCommand) -> bool:
    """Return True for a run of the suite that needs no more than a model, and that no test of its page does."""
    program, *arguments = words(command.text)
    is_run = program == "pytest" or [program, *arguments[:1]] == ["longctx", "run"]
    is_elsewhere = beginning_of(command.text) is not None or command.text.startswith(NOT_RUN)
    return is_run and not is_elsewhere and not is_in_section(command)


def runs() -> list[tuple[str, ...]]:
    """Return the options of all runs in the pages, without those of a reader's machine."""
    found = set()
    for command in filter(is_listed, page_commands()):
        arguments = words(command.text)[2 if command.text.startswith("longctx") else 1 :]
        found.add(without(REPLACED, arguments))
    return sorted(found)


def without(dropped: Mapping[str, int], arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments without these options and their values."""
    kept: list[str] = []
    while arguments:
        name, equals, _ = arguments[0].partition("=")
        taken = 1 if equals else dropped.get(name, 1)
        kept += [] if name in dropped else arguments[:taken]
        arguments = arguments[taken:]
    return tuple(kept)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", sorted({without(UNLISTED, run) for run in runs()}), ids=lambda options: " ".join(options) or "none"
)
def test_a_run_of_a_page_has_cases(options: tuple[str, ...]) -> None:
    ended = run([*options, "--collect-only", "-q"])
    assert ended.returncode == 0, ended.stdout + ended.stderr


@takes_minutes
@pytest.mark.parametrize("options", runs(), ids=lambda options: " ".join(options) or "none")
def test_a_run_of_a_page_measures(options: tuple[str, ...], tmp_path: Path) -> None:
    """Measure one sample of every case at 4K."""
    few = [*options, "--lengths=4k", "--samples=1", f"--journal={tmp_path}/journal"]
    if {"--plan", "--preflight", "--collect-only"} & set(options):
        assert run(few).returncode == 0
        return
    report = tmp_path / "report.json"
    ended = run([*few, f"--report-json={report}"])
    assert ended.returncode in (0, 1), ended.stdout + ended.stderr
    assert [case["id"] for case in json.loads(report.read_text())["cases"] if case["error"]] == []


def run(options: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run the suite on a small model of its own."""
    command = [str(preloaded("pytest")), *UNRELATED_PLUGINS, "--model=calibration:4k", *options]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=900)
