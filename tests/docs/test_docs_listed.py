"""Every run of the suite that a page shows has cases, and measures them on a small model."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.docs.test_docs_commands import PAGES, commands, words
from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import preloaded

# Options whose values are of the reader's machine, and how many words they take.
REPLACED = {"--model": 2, "--baseline": 2, "--judge": 2, "-n": 2, "--data-dir": 2, "--nli-model": 2}
# Files that a page tells its reader to write, and published data to fetch.
READERS = ("own", "contracts.toml", "helmet.toml", "longbench")


def runs() -> list[tuple[str, ...]]:
    """Return the options of all runs in the pages, without those of a reader's machine."""
    found = set()
    for command in (command for page in PAGES for command in commands(page)):
        program, *arguments = words(command)
        if program == "longctx" and arguments[:1] == ["run"]:
            arguments = arguments[1:]
        elif program != "pytest" or any(argument.startswith("tests/") for argument in arguments):
            continue
        if not {"--help", *READERS} & set(arguments):
            found.add(tuple(_without_replaced(arguments)))
    return sorted(found)


def _without_replaced(arguments: list[str]) -> list[str]:
    kept: list[str] = []
    while arguments:
        name, equals, _ = arguments[0].partition("=")
        taken = 1 if equals else REPLACED.get(name, 1)
        kept += [] if name in REPLACED else arguments[:taken]
        arguments = arguments[taken:]
    return kept


@pytest.mark.slow
@pytest.mark.parametrize("options", runs(), ids=lambda options: " ".join(options) or "none")
def test_a_run_of_a_page_has_cases(options: tuple[str, ...]) -> None:
    ended = run([*options, "--collect-only", "-q"])
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.skipif(
    "LONGCTX_MEASURE_DOCS" not in os.environ, reason="LONGCTX_MEASURE_DOCS=1 measures the runs of pages"
)
@pytest.mark.parametrize("options", runs(), ids=lambda options: " ".join(options) or "none")
def test_a_run_of_a_page_measures(options: tuple[str, ...], tmp_path: Path) -> None:
    """Measure one sample of every case at 4K."""
    if {"--base-url", "--serve", "--convert", "--base-model", "--yardstick"} & set(options):
        pytest.skip("needs a server, a base model, a converter or a yardstick of the reader")
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
    command = [str(preloaded("pytest")), "--model=calibration:4k", *options]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=900)
