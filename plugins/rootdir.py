"""Keeps pytest at home when a path option points elsewhere.

pytest looks for its root directory before it knows any option of ours, so in `pytest --model /ckpt` it
takes an existing /ckpt for a place of tests and finds neither the suite nor its options; in
`pytest --model=/ckpt` it does not. This module is the one that pytest loads as an installed plugin (an
entry point), early enough to start again with the second form.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
PATH_OPTIONS = (
    "--model", "--length-tokenizer", "--data-dir", "--prompts", "--thresholds", "--journal", "--baseline",
    "--nli-model", "--report-json", "--report-html", "--report-md", "--tensorboard",
)  # fmt: skip


def pytest_addoption() -> None:
    """The first hook that runs once this plugin is loaded; nothing has been collected or captured yet."""
    arguments = sys.argv[1:]
    started_as_command = Path(sys.argv[0]).name in ("pytest", "py.test", "__main__.py")
    if started_as_command and leads_astray(arguments, Path.cwd()):
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-m", "pytest", *joined(arguments)])


def leads_astray(arguments: Sequence[str], directory: Path) -> bool:
    """Whether pytest, run here with these arguments, would look for its root outside the suite."""
    at_home = directory == HOME or HOME in directory.parents
    values = [value for option, value in pairwise(arguments) if option in PATH_OPTIONS]
    paths = [Path(directory, value).resolve() for value in values]
    return at_home and any(path.exists() and HOME not in path.parents for path in paths)


def joined(arguments: Sequence[str]) -> list[str]:
    """The same arguments with each path option and its value in one word."""
    words: list[str] = []
    for argument in arguments:
        if words and words[-1] in PATH_OPTIONS and not argument.startswith("-"):
            words[-1] += f"={argument}"
        else:
            words.append(argument)
    return words
