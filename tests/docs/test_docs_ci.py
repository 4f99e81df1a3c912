"""Run the commands of the how-to pages on gates, reports, bisecting, watching and new tasks, and compare the output."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.clones import copy_repository
from tests.helpers.page_commands import DOCS, PageCommand, takes_minutes
from tests.helpers.preloaded import preloaded
from tests.helpers.runs import UNRELATED_PLUGINS

ADDOPTS = shlex.join(UNRELATED_PLUGINS)
# The sections whose blocks these tests run, by page and heading.
SECTIONS = GATES, REPORTS, BISECT, WATCH, PROPOSE, JOURNAL, SOUND = (
    ("gates.md", "Try it"),
    ("reports.md", "Try it"),
    ("bisect.md", "Try it"),
    ("watch.md", "Try it"),
    ("watch.md", "Propose thresholds from accepted runs"),
    ("command.md", "The journal"),
    ("add-a-task.md", "Is it sound?"),
)


def is_in_section(command: PageCommand) -> bool:
    """Return True for a command that these tests run."""
    return command.is_block and (command.page, command.heading) in SECTIONS


def blocks(place: tuple[str, str]) -> list[list[str]]:
    """Return the indented blocks below a heading of a page, without their indent."""
    page, heading = place
    section = (DOCS / page).read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines_of_blocks: list[list[str]] = [[]]
    for line in section.splitlines():
        if line.startswith("    "):
            lines_of_blocks[-1].append(line[4:])
        elif lines_of_blocks[-1] and line:
            lines_of_blocks.append([])
    return [block for block in lines_of_blocks if block]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository."""
    return copy_repository(tmp_path_factory.mktemp("docs") / "repository")


def run_commands(clone: Path, lines: list[str], *, fresh: bool = False) -> subprocess.CompletedProcess[str]:
    """Run commands in the copy; `fresh` ones run the programs that a user runs, all others start faster."""
    programs = Path(sys.executable).parent if fresh else preloaded("python").parent
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    path = f"{programs}:{inherited['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-c", "\n".join(lines)], cwd=clone, capture_output=True, text=True, check=False, timeout=600,
        env=inherited | {"PATH": path, "PYTHONPATH": str(clone), "CUDA_VISIBLE_DEVICES": "", "PYTEST_ADDOPTS": ADDOPTS},
    )  # fmt: skip


@takes_minutes
def test_the_pages_on_gates_and_reports_show_the_real_output(clone: Path) -> None:
    """Run both pages in one test, because the page on reports reads the files that the page on gates writes."""
    commands, output = blocks(GATES)
    passing = next(index for index, line in enumerate(commands) if not line.endswith("\\")) + 1
    passed, failed = run_commands(clone, commands[:passing], fresh=True), run_commands(clone, commands[passing:])
    assert [(process.returncode, process.stderr) for process in (passed, failed)] == [(0, ""), (1, "")]
    assert [line for line in output if line not in (passed.stdout + failed.stdout).splitlines()] == []

    commands, output = blocks(REPORTS)
    ended = run_commands(clone, commands)
    assert (ended.returncode, ended.stderr, ended.stdout.splitlines()) == (0, "", output)
    page, table = ((clone / "out" / f"step-2000.{form}").read_text(encoding="utf-8") for form in ("html", "md"))
    for form in (page, table):
        assert re.search(r"step 2,?000", form)
        assert "needle at 512" in form
        assert "-100.0" in form


@takes_minutes
def test_the_pages_on_bisecting_and_watching_show_the_real_output(clone: Path) -> None:
    """Run both pages in one test, because the watch reads the checkpoints of the search."""
    commands, output = blocks(BISECT)
    ended = run_commands(clone, commands)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [line for line in output if line not in ended.stdout.splitlines()] == []
    rerun = run_commands(clone, commands[-2:])
    # It knows more answers from the start, so it may need fewer steps and be surer, but it names the same step.
    first, second = ([line.partition(",")[0] for line in each.stdout.splitlines() if line.startswith("first bad step")]
                     for each in (ended, rerun))  # fmt: skip
    assert rerun.returncode == 0
    assert len(first) == 1
    assert second == first

    commands, output = blocks(WATCH)
    ended = run_commands(clone, commands)
    assert (ended.returncode, ended.stderr) == (1, "")
    without_times = [line.partition(" ")[2] if line[2:3] == ":" else line for line in ended.stdout.splitlines()]
    assert [line for line in output if line not in without_times] == []

    _accept_all(clone / "out" / "watch")
    (proposal,) = blocks(PROPOSE)
    ended = run_commands(clone, proposal)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "niah_single_2 = " in (clone / "out" / "proposed.toml").read_text()

    journal = [line.partition("#")[0] for line in one_block(JOURNAL)]
    assert all(line.startswith("longctx journal .longctx/journal") for line in journal)
    listed, pruned = (run_commands(clone, [line]) for line in journal)
    assert [(ended.returncode, ended.stderr) for ended in (listed, pruned)] == [(0, ""), (0, "")]
    assert "runs/a/step-3000" in listed.stdout


@takes_minutes
def test_the_steps_of_the_page_add_a_task(clone: Path) -> None:
    page = "add-a-task.md"
    for heading in re.findall(r"^## `(.+)`$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE):
        lines, target = one_block((page, f"`{heading}`")), clone / heading
        if target.exists():
            changed = with_lines(target.read_text(encoding="utf-8").splitlines(), lines)
            target.write_text("\n".join([*changed, ""]), encoding="utf-8")
        else:
            target.parent.mkdir(exist_ok=True)
            target.write_text("\n".join([*lines, ""]), encoding="utf-8")
    ended = run_commands(clone, one_block(SOUND))
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    assert len(re.findall(r"^=* ?[1-9]\d* (?:checked|passed)", ended.stdout, re.MULTILINE)) == 2
    (clone / "own.toml").write_text("\n".join(one_block((page, "A gate on it"))))
    planned = run_commands(
        clone, ["pytest --model calibration:full --suite own --lengths 4k --plan --thresholds own.toml"]
    )
    assert (planned.returncode, planned.stderr) == (0, "")
    assert re.search(r"^ *all +1 +500 +2,048,000$", planned.stdout, re.MULTILINE)


def with_lines(content: list[str], shown: list[str]) -> list[str]:
    """Return a file's lines after the edit that a page shows.

    A shown line that the file contains marks a position. Any other line replaces the only line that starts with the
    same characters, or is inserted after that position.
    """
    changed, position = [*content], None
    for line in shown:
        similar = [index for index, old in enumerate(changed) if old[:24] == line[:24]]
        if line in changed:
            position = changed.index(line)
        elif len(similar) == 1:
            changed[similar[0]] = line
        else:
            assert position is not None, line
            changed.insert(position := position + 1, line)
    return changed


def one_block(place: tuple[str, str]) -> list[str]:
    """Return all blocks below a heading as one block, with the lines between them."""
    page, heading = place
    section = (DOCS / page).read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = section.splitlines()
    inside = [index for index, line in enumerate(lines) if line.startswith("    ")]
    return [line[4:] for line in lines[inside[0] : inside[-1] + 1]]


def _accept_all(folder: Path) -> None:
    """Replace the reports of all other checkpoints by the one that passed."""
    (passed,) = folder.glob("step-1000-*.json")
    for report in folder.glob("step-?000-*.json"):
        if report != passed:
            shutil.copy(passed, report)
