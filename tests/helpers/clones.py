"""Copies of this repository in which its recipes and pages are tried."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.helpers.paths import REPOSITORY

NOT_COPIED = (".git", ".longctx", ".venv", "out", "runs", "__pycache__", ".mypy_cache", ".ruff_cache", ".hypothesis")


def copy_repository(folder: Path, source: Path = REPOSITORY) -> Path:
    """`folder`, with what others would get of the source: the files that git tracks, as they are now.

    A file that was never added is therefore missed. Where git does not know the source, all that looks like it.
    """
    names = _tracked(source)
    if names is None:
        return Path(shutil.copytree(source, folder, ignore=shutil.ignore_patterns(*NOT_COPIED)))
    for name in names:
        # One that was deleted and not yet committed is tracked still.
        if (source / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, folder / name)
    return folder


def _tracked(source: Path) -> list[str] | None:
    """None without git, and in a copy that lies unpacked in somebody else's checkout."""
    if shutil.which("git") is None or not (source / ".git").exists():
        return None
    # In a hook they name another repository.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=source, env=inherited, capture_output=True, text=True, check=False
    )
    return [name for name in listed.stdout.split("\0") if name] if listed.returncode == 0 else None
