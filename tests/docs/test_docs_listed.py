"""Every run of the suite that a page shows has cases; the model is replaced by a small one, and none is measured."""

from __future__ import annotations

import subprocess

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
    command = [str(preloaded("pytest")), "--model=calibration:512", *options, "--collect-only", "-q"]
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
