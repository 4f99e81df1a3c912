"""What is tried in a copy of the repository is tried with the files that others get."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.clones import copy_repository


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Files of a repository, and what lies beside them after a run."""
    place = tmp_path / "source"
    for name in ("kept.py", "ci/run.sh", "docs/deleted.md", "out/report.json", ".venv/bin/python"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(name)
    (place / "ci" / "run.sh").chmod(0o755)
    return place


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def git(folder: Path, *arguments: str) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(["git", *arguments], cwd=folder, check=True, env=inherited)


@pytest.mark.skipif(shutil.which("git") is None, reason="asks git what it tracks")
def test_of_a_checkout_what_git_tracks_is_copied_as_it_is_now(source: Path, tmp_path: Path) -> None:
    git(source, "init", "-q")
    git(source, "add", "kept.py", "ci", "docs")
    (source / "kept.py").write_text("changed")
    (source / "forgotten.py").touch()
    (source / "docs" / "deleted.md").unlink()
    copy = copy_repository(tmp_path / "copy", source)
    assert files(copy) == {"kept.py", "ci/run.sh"}
    assert (copy / "kept.py").read_text() == "changed"
    assert os.access(copy / "ci" / "run.sh", os.X_OK)


def test_elsewhere_all_is_copied_but_what_runs_leave(source: Path, tmp_path: Path) -> None:
    assert files(copy_repository(tmp_path / "copy", source)) == {"kept.py", "ci/run.sh", "docs/deleted.md"}


@pytest.mark.skipif(shutil.which("git") is None, reason="is about somebody else's checkout")
def test_a_copy_inside_another_checkout_is_not_asked_of_its_git(source: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert "kept.py" in files(copy_repository(tmp_path / "copy", source))
