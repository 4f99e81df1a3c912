"""The pytest options of a watch: those that it sets itself, and those that it reads."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ci.check_options import list_cases
from ci.suite_thresholds import suite_thresholds
from plugins.gates.thresholds import SHIPPED

SEED_BY_STEP = "step"
INVARIANCE = "--invariance"
# The options that every measurement sets, with what to use instead.
RESERVED = {
    "--model": "it is every checkpoint of DIR",
    "--baseline": "use --anchor",
    "--step": "it is the number in the checkpoint's name",
    "--report-json": "use --out",
    "--report-html": "use --out",
    "--junitxml": "use --out",
    "--confidence": "set [verdict] confidence in the thresholds file",
    "--plan": "use pytest itself",
    "--preflight": "use pytest itself",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteOptions:
    """The user's pytest options."""

    given: Sequence[str]
    """All of them but `--seed step` and `--invariance`."""
    checks_engine: bool
    """True with `--invariance`."""
    seed_by_step: bool
    """True to draw the samples of every checkpoint with its step as the seed."""
    confidence: float
    """The probability, 0 to 1, that a run has no wrong blocking verdict, from the thresholds file."""

    def for_step(self, step: int) -> list[str]:
        """Return the options for a checkpoint."""
        return [*self.given, *(["--seed", str(step)] if self.seed_by_step else [])]


def read_suite_options(options: Sequence[str]) -> SuiteOptions:
    """Return the options as the watch uses them; raise ValueError, with one line, for one that it sets itself."""
    for option in options:
        name = option.partition("=")[0]
        if name in RESERVED:
            raise ValueError(f"{name}: a watch sets it for every checkpoint; leave it out, {RESERVED[name]}")
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
    )


def check_suite_options(options: SuiteOptions, *more: str) -> None:
    """Have pytest read the options for a checkpoint that is always there; raise ValueError with its reason.

    `more` are the options of other runs on a checkpoint. Without this check, a misspelt option would come to light with
    the first checkpoint, hours later.
    """
    list_cases([*options.for_step(0), *more, "--model", "calibration:full"])
