"""Copy this repository, so that tests can run its recipes and documented commands."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.helpers.paths import REPOSITORY

NOT_COPIED = (".git", ".longctx", ".venv", "out", "runs", "__pycache__", ".mypy_cache", ".ruff_cache", ".hypothesis")


def copy_repository(folder: Path, source: Path = REPOSITORY) -> Path:
    """Copy the files that other users get to `folder`, and return it.

    These are the files that git tracks, in their current state, so a test notices a file that was never added. Without
    git, all files but those of NOT_COPIED are copied.
    """
    names = _tracked(source)
    if names is None:
        return Path(shutil.copytree(source, folder, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED)))
    for name in names:
        # A file that was deleted but not committed is still tracked.
        if (source / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            # A link within longctx/ stays one.
            shutil.copy2(source / name, folder / name, follow_symlinks=False)
    return folder


def _tracked(source: Path) -> list[str] | None:
    """Return the paths of tracked files; None without git, or if the source is not the root of a checkout."""
    if shutil.which("git") is None or not (source / ".git").exists():
        return None
    # In a git hook these variables name another repository.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=source, env=inherited, capture_output=True, text=True, check=False
    )
    return [name for name in listed.stdout.split("\0") if name] if listed.returncode == 0 else None
