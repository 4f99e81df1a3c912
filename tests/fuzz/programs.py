"""The programs that read malformed inputs: commands as a user calls them, and the sound inputs they start from."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from longctx.fixtures.calibration import build, parse_spec
from tests.helpers.paths import REPOSITORY

SMALL = ("--suite=ruler", "--lengths=512", "--samples=2", "-k", "niah_single_1", "-p", "no:xdist")


@dataclass(frozen=True, slots=True)
class Sound:
    """Inputs that nothing is wrong with, which the kinds start from."""

    checkpoint: Path
    report: Path
    journal: Path

    @property
    def document(self) -> Any:
        """The JSON report of a small run."""
        return json.loads(self.report.read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Command:
    """`python -m MODULE ARGUMENTS`, called in this process."""

    module: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def exit_codes(self) -> tuple[int, ...]:
        """Return the exit codes that the command documents."""
        return (0, 1, 2, 3, 4) if self.module == "longctx.ci.bisect" else (0, 1, 4)

    def __call__(self) -> int:
        """Run the command in this process and return its exit code."""
        os.environ.update(self.environment)
        if self.module == "pytest":
            root = (f"--rootdir={REPOSITORY}", f"-c={REPOSITORY / 'pyproject.toml'}")
            return int(pytest.main([*root, *self.arguments]))
        module = importlib.import_module(self.module)
        if hasattr(module, "__path__"):
            module = importlib.import_module(f"{self.module}.__main__")
        if self.module == "longctx.ci.watch":
            # It would collect the tests in a process of its own, which takes seconds.
            module.check_suite_options = lambda *_: None  # type: ignore[attr-defined]  # a name that it imported
        code: int = module.main(list(self.arguments))
        return code


Program = Callable[[], int]
Kind = Callable[[Random, Sound, Path], Program]


def suite(*arguments: str, environment: Mapping[str, str] | None = None) -> Command:
    """Return a run of the suite."""
    return Command("pytest", arguments, environment or {})


def sound_inputs(folder: Path) -> Sound:
    """Build a calibration checkpoint with a chat template, measure it, and return what that wrote."""
    checkpoint = build(parse_spec("512-chat"), folder / "checkpoint")
    sound = Sound(checkpoint, folder / "report.json", folder / "journal")
    suite(f"--model={checkpoint}", *SMALL, f"--journal={sound.journal}", f"--report-json={sound.report}")()
    return sound
