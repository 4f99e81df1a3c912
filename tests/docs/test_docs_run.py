"""Every command that a page shows is run: by a test of its page, as a run of the suite, or with small stand-ins."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.docs.command_table import COMMAND_RUNS, PLACEHOLDERS, CommandRun, beginning_of
from tests.docs.test_docs_ci import ADDOPTS, is_in_section
from tests.docs.test_docs_listed import is_listed
from tests.helpers.clones import copy_repository
from tests.helpers.page_commands import PageCommand, page_commands, takes_minutes
from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import preloaded
from tests.helpers.servers import KEYS
from tests.helpers.stand_ins import Workspace

# Some commands install packages or run all checks, and other tests may run beside them.
TIMEOUT_SECONDS = 900.0
# Time for the last output of a command that has ended. A process that it left may hold the pipe for longer.
LAST_OUTPUT_SECONDS = 30.0
SIMPLE = CommandRun()
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
        "PATH": path, "PYTHONPATH": str(folder), "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "100",
        "PYTEST_ADDOPTS": ADDOPTS, "REPOSITORY": str(REPOSITORY), "NO_PROXY": "127.0.0.1",
    }  # fmt: skip
    with ExitStack() as stack:
        yield Workspace(folder=folder, programs=programs, variables=variables, stack=stack)


@takes_minutes
@pytest.mark.parametrize("text", TABLED, ids=str)
def test_a_command_of_a_page_comes_to_its_end(text: str, workspace: Workspace) -> None:
    options = COMMAND_RUNS[beginning_of(text) or ""]
    if reason := options.missing():
        pytest.skip(reason)
    for stand_in in options.needs:
        stand_in(workspace)
    if options.before:
        code, output = run(options.before, workspace)
        assert code == 0, output
    code, output = run(f"{with_stand_ins(text)} {options.small}", workspace, options)
    assert code in options.codes, output
    assert "Traceback (most recent call last)" not in output
    # The first line is the command.
    assert re.search(options.shows, output.partition("\n")[2]), output
    assert not options.writes or list(workspace.folder.glob(options.writes)), output


def with_stand_ins(text: str) -> str:
    """Return the command with other values for those that no stand-in can have."""
    for shown, used in PLACEHOLDERS.items():
        text = text.replace(shown, used)
    return text


def run(command: str, workspace: Workspace, options: CommandRun = SIMPLE) -> tuple[int, str]:
    """Run a command line of bash, and return its exit code and its output; fail if it takes too long."""
    path = workspace.variables["PATH"]
    if options.is_fresh:
        path = path.replace(f"{preloaded('python').parent}:", "")
    process = subprocess.Popen(
        ["bash", "-o", "pipefail", "-c", command], cwd=workspace.folder / options.directory,
        env=workspace.variables | {"PATH": path}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    lines = [f"{shlex.join([command])}\n"]
    reader = threading.Thread(target=read, args=(process, options.until, lines), daemon=True)
    reader.start()
    try:
        code = process.wait(TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reader.join(LAST_OUTPUT_SECONDS)
        pytest.fail(f"took longer than {TIMEOUT_SECONDS:.0f} s: {''.join(lines)}")
    reader.join(LAST_OUTPUT_SECONDS)
    return code, "".join(lines)


def read(process: subprocess.Popen[str], until: str, lines: list[str]) -> None:
    """Append the output of a process to `lines`, and interrupt the process once a line contains `until`."""
    assert process.stdout is not None
    is_interrupted = not until
    for line in process.stdout:
        lines.append(line)
        if not is_interrupted and until in line:
            is_interrupted = True
            # The process may end by itself.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)


def test_a_command_that_takes_too_long_is_reported_even_if_a_process_of_it_survives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "TIMEOUT_SECONDS", 1.0)
    monkeypatch.setattr(sys.modules[__name__], "LAST_OUTPUT_SECONDS", 0.1)
    survivor = tmp_path / "survivor"
    program = f"echo $$ > {survivor}.new; mv {survivor}.new {survivor}; exec sleep 60"
    with ExitStack() as stack:
        workspace = Workspace(folder=tmp_path, programs=tmp_path, variables=dict(os.environ), stack=stack)
        with pytest.raises(pytest.fail.Exception, match="took longer than 1 s"):
            run(f"setsid sh -c {shlex.quote(program)} & sleep 60", workspace)
    # The command may have been killed before it started the survivor.
    if survivor.exists():
        os.kill(int(survivor.read_text()), signal.SIGKILL)
