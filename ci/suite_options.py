"""The options of the runs that a command starts: read, refused, and checked by pytest before anything is measured."""

import argparse
import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from longctx.fixtures.installation import CASES_DIRECTORY
from longctx.fixtures.tasks import find_tasks_files, known_families, required_scores
from longctx.plugins.config.invocation import pytest_command
from longctx.plugins.config.options import Option, declare, refused_option
from longctx.plugins.thresholds.records import SHIPPED, Thresholds, ThresholdsError, load_thresholds

CHECK_SECONDS = 120
# A line of pytest about wrong use, or of its option parser.
ERROR_LINE = re.compile(r"(?:ERROR|.*: error): (?!usage: )(.*)")
NO_CASE_SELECTED = 5
LISTED_CASE = re.compile(rf"^{CASES_DIRECTORY}/|<Function ", re.MULTILINE)
SEED_BY_STEP = "step"
INVARIANCE = "--invariance"


def suite_thresholds(path: Path, options: Sequence[str]) -> Thresholds:
    """Return a thresholds file as runs with these pytest options read it; raise ThresholdsError."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--tasks-file")
    parser.add_argument("--suite")
    parsed, _ = parser.parse_known_args(options)
    try:
        files = find_tasks_files(parsed.tasks_file, Path.cwd(), suite=parsed.suite)
        families, required = known_families(files), required_scores(files)
    except ValueError as error:
        raise ThresholdsError(str(error)) from error
    return load_thresholds(path, known_tasks=families, required=required)


def without_options(words: Sequence[str], options: Iterable[Option]) -> list[str]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    declare(parser.add_argument, options)
    return parser.parse_known_args(list(words))[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteOptions:
    """The user's pytest options of a watch."""

    given: Sequence[str]
    """All of them but `--seed step` and `--invariance`."""
    checks_engine: bool
    """True with `--invariance`."""
    seed_by_step: bool
    """True to draw the samples of every checkpoint with its step as the seed."""
    confidence: float
    """The probability, 0 to 1, that a run has no wrong blocking verdict, from the thresholds file."""
    drop_points: float
    """The loss that a comparison with a baseline allows, from the thresholds file."""

    def for_step(self, step: int) -> list[str]:
        return [*self.given, *(["--seed", str(step)] if self.seed_by_step else [])]


def read_suite_options(options: Sequence[str]) -> SuiteOptions:
    """Return the options as the watch uses them; raise ValueError, with one line, for one that it sets itself."""
    if refused := refused_option(options, "watch"):
        raise ValueError(refused)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--seed")
    parser.add_argument("--thresholds", type=Path, default=SHIPPED)
    parsed, others = parser.parse_known_args(options)
    seed_by_step = parsed.seed == SEED_BY_STEP
    thresholds = suite_thresholds(parsed.thresholds, options)
    given = [*others, "--thresholds", str(parsed.thresholds)] if seed_by_step else options
    return SuiteOptions(
        given=tuple(option for option in given if option != INVARIANCE),
        checks_engine=INVARIANCE in options,
        seed_by_step=seed_by_step,
        confidence=thresholds.verdict.confidence,
        drop_points=thresholds.regression.drop,
    )


def check_suite_options(options: SuiteOptions) -> None:
    """Have pytest read the options for a checkpoint that is always there; raise ValueError with its reason.

    Without this check, a misspelt option would come to light with the first checkpoint, hours later.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    words = ["--collect-only", "-q", *options.for_step(0), "--model", "calibration:full"]
    try:
        ended = subprocess.run(
            pytest_command(words), env=inherited, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=CHECK_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"pytest has not listed the cases of these options in {CHECK_SECONDS:g} s; try them with --collect-only"
        ) from None
    # The check of --invariance is listed too, even if no case is left beside it.
    if ended.returncode == NO_CASE_SELECTED or (ended.returncode == 0 and not LISTED_CASE.search(ended.stdout)):
        raise ValueError("the options select no case; see --lengths, --suite, -k and -m")
    if ended.returncode != 0:
        lines = [line.strip() for line in (ended.stderr + ended.stdout).splitlines() if line.strip()]
        errors = [match[1] for line in lines if (match := ERROR_LINE.match(line))]
        raise ValueError((errors or lines or [f"pytest ended with code {ended.returncode}"])[-1])
