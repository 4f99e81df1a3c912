"""The pages of the training loop and on adding tasks: what they say to type is typed, and says what they say."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.clones import copy_repository
from tests.helpers.paths import REPOSITORY
from tests.helpers.runs import PYTEST, UNRELATED_PLUGINS

DOCS = REPOSITORY / "docs"
ADDED = shlex.join(UNRELATED_PLUGINS)


def blocks(page: str, heading: str) -> list[list[str]]:
    """The indented blocks below a heading, without their indent."""
    section = (DOCS / page).read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found: list[list[str]] = [[]]
    for line in section.splitlines():
        if line.startswith("    "):
            found[-1].append(line[4:])
        elif found[-1] and line:
            found.append([])
    return [block for block in found if block]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository in which `python` and `pytest` are those of this test."""
    folder = copy_repository(tmp_path_factory.mktemp("docs") / "repository")
    programs = folder / "programs"
    programs.mkdir()
    for name, command in (("python", sys.executable), ("pytest", str(PYTEST))):
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(command)} "$@"\n')
        (programs / name).chmod(0o755)
    return folder


def typed(clone: Path, lines: list[str]) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    path = f"{clone / 'programs'}:{inherited['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-c", "\n".join(lines)], cwd=clone, capture_output=True, text=True, check=False, timeout=600,
        env=inherited | {"PATH": path, "PYTHONPATH": str(clone), "CUDA_VISIBLE_DEVICES": "", "PYTEST_ADDOPTS": ADDED},
    )  # fmt: skip


def test_a_gate_passes_and_fails_and_its_reports_are_read(clone: Path) -> None:
    """One after the other, since the page on reports reads what that on gates has written."""
    commands, said = blocks("gates.md", "Try it")
    passing = next(at for at, line in enumerate(commands) if not line.endswith("\\")) + 1
    passed, failed = typed(clone, commands[:passing]), typed(clone, commands[passing:])
    assert [(each.returncode, each.stderr) for each in (passed, failed)] == [(0, ""), (1, "")]
    assert [line for line in said if line not in (passed.stdout + failed.stdout).splitlines()] == []

    commands, said = blocks("reports.md", "Try it")
    ended = typed(clone, commands)
    assert (ended.returncode, ended.stderr, ended.stdout.splitlines()) == (0, "", said)
    page, table = ((clone / "out" / f"step-2000.{form}").read_text(encoding="utf-8") for form in ("html", "md"))
    for form in (page, table):
        assert re.search(r"step 2,?000", form)
        assert "needle at 512" in form
        assert "-100.0" in form


def test_a_chain_is_searched_and_then_watched(clone: Path) -> None:
    """One after the other, since the watch looks at the checkpoints of the search."""
    commands, said = blocks("bisect.md", "Try it")
    ended = typed(clone, commands)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [line for line in said if line not in ended.stdout.splitlines()] == []
    again = typed(clone, commands[-2:])
    assert again.stdout.splitlines() == ended.stdout.splitlines()[3:]

    commands, said = blocks("watch.md", "Try it")
    ended = typed(clone, commands)
    assert (ended.returncode, ended.stderr) == (1, "")
    times_cut = [line.partition(" ")[2] if line[2:3] == ":" else line for line in ended.stdout.splitlines()]
    assert [line for line in said if line not in times_cut] == []

    _accept_all(clone / "out" / "watch")
    (proposal,) = blocks("watch.md", "Propose thresholds from accepted runs")
    ended = typed(clone, proposal)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "niah_single_2 = " in (clone / "out" / "proposed.toml").read_text()


def test_a_task_is_added_as_the_page_says(clone: Path) -> None:
    page = "add-a-task.md"
    for heading in re.findall(r"^## `(.+)`$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE):
        lines, target = one_block(page, f"`{heading}`"), clone / heading
        if target.exists():
            changed = with_lines(target.read_text(encoding="utf-8").splitlines(), lines)
            target.write_text("\n".join([*changed, ""]), encoding="utf-8")
        else:
            target.parent.mkdir(exist_ok=True)
            target.write_text("\n".join([*lines, ""]), encoding="utf-8")
    ended = typed(clone, one_block(page, "Is it sound?"))
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    assert len(re.findall(r"^=* ?[1-9]\d* passed", ended.stdout, re.MULTILINE)) == 2
    (clone / "own.toml").write_text("\n".join(one_block(page, "A gate on it")))
    planned = typed(clone, ["pytest --model calibration:full --suite own --lengths 4k --plan --thresholds own.toml"])
    assert (planned.returncode, planned.stderr) == (0, "")
    assert re.search(r"^ *all +1 +500 +2,048,000$", planned.stdout, re.MULTILINE)


def with_lines(content: list[str], shown: list[str]) -> list[str]:
    """Return a file's lines with those that a page shows.

    A line that the file has marks a place. Any other line replaces the one line that starts alike, or is inserted after
    that place.
    """
    changed, place = [*content], None
    for line in shown:
        alike = [index for index, old in enumerate(changed) if old[:20] == line[:20]]
        if line in changed:
            place = changed.index(line)
        elif len(alike) == 1:
            changed[alike[0]] = line
        else:
            assert place is not None, line
            changed.insert(place := place + 1, line)
    return changed


def one_block(page: str, heading: str) -> list[str]:
    """All blocks below a heading as one, with empty lines between."""
    section = (DOCS / page).read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = section.splitlines()
    inside = [at for at, line in enumerate(lines) if line.startswith("    ")]
    return [line[4:] for line in lines[inside[0] : inside[-1] + 1]]


def _accept_all(folder: Path) -> None:
    """The report of the one that passed, in place of the others."""
    (passed,) = folder.glob("step-1000-*.json")
    for report in folder.glob("step-?000-*.json"):
        if report != passed:
            shutil.copy(passed, report)


@pytest.mark.parametrize(("page", "module"), [("bisect.md", "ci.bisect"), ("watch.md", "ci.watch")])
def test_every_option_of_the_page_is_one_of_the_command(page: str, module: str) -> None:
    """Options of the tables; those of pytest are said to be pytest's."""
    text = (DOCS / page).read_text(encoding="utf-8")
    rows = [line.split("|")[1].strip().strip("`").split()[0] for line in text.splitlines() if line.startswith("| `--")]
    helped = subprocess.run(
        [sys.executable, "-m", module, "--help"], cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert len(rows) >= 6
    assert [row for row in rows if f"{row} " not in helped and row != "--budget"] == []
