"""Copies of the repository for tests hold the files that other users get."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.clones import copy_repository


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with files of a repository, and with files that a run leaves beside them."""
    folder = tmp_path / "source"
    for name in ("tracked.py", "ci/run.sh", "docs/deleted.md", "out/report.json", ".venv/bin/python"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "ci" / "run.sh").chmod(0o755)
    return folder


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def git(folder: Path, *arguments: str) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(["git", *arguments], cwd=folder, check=True, env=inherited)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_checkout_is_copied_with_the_tracked_files_as_they_are_now(source: Path, tmp_path: Path) -> None:
    git(source, "init", "-q")
    git(source, "add", "tracked.py", "ci", "docs")
    (source / "tracked.py").write_text("changed")
    (source / "forgotten.py").touch()
    (source / "docs" / "deleted.md").unlink()
    copy = copy_repository(tmp_path / "copy", source)
    assert files(copy) == {"tracked.py", "ci/run.sh"}
    assert (copy / "tracked.py").read_text() == "changed"
    assert os.access(copy / "ci" / "run.sh", os.X_OK)


def test_a_folder_without_git_is_copied_without_the_files_of_runs(source: Path, tmp_path: Path) -> None:
    assert files(copy_repository(tmp_path / "copy", source)) == {"tracked.py", "ci/run.sh", "docs/deleted.md"}


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_folder_inside_another_checkout_ignores_that_checkout(source: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert "tracked.py" in files(copy_repository(tmp_path / "copy", source))
