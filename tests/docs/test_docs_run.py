"""Every command that a page shows is run: by a test of its page, as a run of the suite, or with stand-ins."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docs.command_table import COMMAND_RUNS, NOT_RUN, PLACEHOLDERS, beginning_of
from tests.docs.test_docs_ci import ADDOPTS, is_in_section
from tests.docs.test_docs_listed import is_listed
from tests.helpers.clones import copy_repository
from tests.helpers.page_commands import PageCommand, page_commands, takes_minutes
from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import preloaded
from tests.helpers.servers import KEYS
from tests.helpers.stand_ins import Workspace

TIMEOUT_SECONDS = 900.0
# Commands that .ci/run starts as they are, and those that run every night.
CI_COMMANDS = ("make test", "make goldens", "make demo")
NIGHTLY_COMMANDS = ("make nightly", "make loops", "make pages")
# Commands of other projects that a page names, with none of their options.
NAMES_OF_OTHERS = (
    "git bisect", "git show da5c9bf:benchmarks/build_samples.py", "git worktree add ../measured da5c9bf",
    "ray job submit", "ray job stop", "ray stop",
)  # fmt: skip
TABLED = sorted({command.text for command in page_commands() if beginning_of(command.text)})


def ways_of(command: PageCommand) -> list[str]:
    """Return by what a command is run."""
    is_named = re.fullmatch(r"longctx \w+", command.text) is not None
    found = {
        "a test of its page": is_in_section(command),
        ".ci/run": command.text in (*CI_COMMANDS, *NIGHTLY_COMMANDS),
        "a run of the suite": is_listed(command),
        "the table": beginning_of(command.text) is not None,
        "nothing": command.text.startswith(NOT_RUN),
    }
    if not any(found.values()):
        found["a command with this beginning"] = command.text in NAMES_OF_OTHERS or (
            is_named and any(other.text.startswith(f"{command.text} ") for other in page_commands())
        )
    return [way for way, is_run in found.items() if is_run]


def test_every_command_of_a_page_is_run_in_one_way() -> None:
    """Add a new command to tests/docs/command_table.py, unless it is a run of the suite that needs only a model."""
    ways = [(f"{command.page}: {command.text}", ways_of(command)) for command in page_commands()]
    assert len(ways) > 100
    assert [(command, found) for command, found in ways if len(found) != 1] == []


def test_every_entry_of_the_table_is_shown_by_a_page() -> None:
    assert set(COMMAND_RUNS) == {beginning_of(text) for text in TABLED}
    shown = "\n".join(command.text for command in page_commands())
    assert [value for value in PLACEHOLDERS if value not in shown] == []
    script = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert set(CI_COMMANDS) <= set(script)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    """A copy of the repository, with the environment of a reader."""
    folder, programs = copy_repository(tmp_path / "repository"), tmp_path / "programs"
    programs.mkdir()
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "GIT_")) and name not in KEYS
    }
    path = f"{programs}:{preloaded('python').parent}:{Path(sys.executable).parent}:{inherited['PATH']}"
    variables = inherited | {
        "PATH": path, "PYTHONPATH": str(folder), "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "80",
        "PYTEST_ADDOPTS": ADDOPTS, "NO_PROXY": "127.0.0.1",
    }  # fmt: skip
    with ExitStack() as stack:
        yield Workspace(folder=folder, programs=programs, variables=variables, stack=stack)


@takes_minutes
@pytest.mark.parametrize("text", TABLED, ids=str)
def test_a_command_of_a_page_comes_to_its_end(text: str, workspace: Workspace) -> None:
    options = COMMAND_RUNS[beginning_of(text) or ""]
    for stand_in in options.needs:
        stand_in(workspace)
    if options.before:
        code, output = run(options.before, workspace)
        assert code == 0, output
    code, output = run(f"{with_stand_ins(text)} {options.small}", workspace)
    # 1 is a limit or a gate that so few samples miss.
    assert code in (0, 1), output
    assert "Traceback (most recent call last)" not in output
    assert re.search(options.shows, output), output
    assert not options.writes or list(workspace.folder.glob(options.writes)), output


def with_stand_ins(text: str) -> str:
    """Return the command with other values for those that no stand-in can have."""
    for shown, used in PLACEHOLDERS.items():
        text = text.replace(shown, used)
    return text


def run(command: str, workspace: Workspace) -> tuple[int, str]:
    """Run a command line of bash, and return its exit code and its output; fail if it takes too long."""
    ended = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=workspace.folder, env=workspace.variables,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=TIMEOUT_SECONDS,
    )  # fmt: skip
    return ended.returncode, ended.stdout
