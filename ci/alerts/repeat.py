"""The commands that measure exactly the cases of an alert again, on its checkpoint and its baseline."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from longctx.ci.alerts.log import Alert
from longctx.fixtures.lengths import format_length
from longctx.fixtures.outside_files import absolute
from longctx.plugins.config.option import PATHS
from longctx.plugins.config.options import RUN_OPTIONS, declare

# What a repetition sets itself, or does not write.
OWN = ("--lengths", "--tensorboard", "--wandb", "-k", "-m")
# Few users have seeds like these; the survey of a search has others.
FRESH_SEED = 20_000_000


def repeat_options(options: Sequence[str], most_samples: int | None = None) -> tuple[str, ...]:
    """Return the options of a watch's runs that a repetition of some of their cases keeps, with absolute paths.

    `most_samples` takes the place of their --samples, for a measurement that took more.
    """
    others = _without(options, OWN if most_samples is None else (*OWN, "--samples"))
    words: list[str] = []
    for before, word in zip(("", *others), others, strict=False):
        flag, equals, value = word.partition("=")
        if equals and flag in RUN_OPTIONS:
            words.append(f"{flag}={_located(flag, value)}")
        else:
            words.append(_located(before, word) if before in RUN_OPTIONS and not word.startswith("-") else word)
    return (*words, *([] if most_samples is None else ["--samples", str(most_samples)]))


def _without(options: Sequence[str], flags: Sequence[str]) -> list[str]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    declare(parser.add_argument, [RUN_OPTIONS[flag] for flag in flags])
    return parser.parse_known_args(list(options))[1]


def _located(flag: str, value: str) -> str:
    """Return the value of an option with absolute paths; a name that is no path stays as it is."""
    option = RUN_OPTIONS[flag]
    if option.kind not in PATHS:
        return value
    parts = value.split(",") if option.is_list else [value]
    return ",".join(
        str(absolute(part)) if option.kind != "perhaps path" or os.path.exists(part) else part for part in parts
    )


def repeat_command(alert: Alert, folder: Path) -> str | None:
    """Return the command that computes the answers of an alert's cases anew; None if it is not about cases.

    `folder` is that of the watch, where the repetition has a journal of its own.
    """
    options = _without(alert.options, ["--journal"])
    return _command(alert, [*options, "--journal", str(absolute(folder) / f"alert-{alert.id}" / "journal")])


def fresh_command(alert: Alert) -> str | None:
    """Return the command that measures an alert's cases on other samples; None if it is not about cases.

    Also None if the baseline's checkpoint is gone: its report knows answers to the same samples only.
    """
    baseline = alert.episode.compared_with
    if baseline is not None and not os.path.isdir(baseline):
        return None
    return _command(alert, [*_without(alert.options, ["--seed"]), "--seed", str(FRESH_SEED + alert.id)])


def diagnose_command(alert: Alert, folder: Path) -> str | None:
    """Return the command that looks for the cause of an alert's worst case; None without two checkpoints on disk.

    It compares the neighbours that a search has named, which differ least, or else those that were measured.
    """
    culprit, episode = alert.culprit, alert.episode
    pairs = [(culprit.last_good_path, culprit.last_path)] if culprit is not None else []
    pairs.append((episode.compared_with or "", _failed_checkpoint(alert)))
    good, bad = next((pair for pair in pairs if all(map(os.path.isdir, pair))), ("", ""))
    if not episode.cases or not good:
        return None
    words = ["longctx", "diagnose", good, bad, "--report", episode.first.report, "--case", episode.cases[0].id]
    return shlex.join([*words, "--out", str(absolute(folder) / f"alert-{alert.id}")])


def _failed_checkpoint(alert: Alert) -> str:
    """Return the first bad checkpoint, or the first one after it that is still on disk."""
    steps = alert.episode.steps
    return next((step for step in steps if os.path.isdir(step.checkpoint)), alert.episode.first).checkpoint


def _command(alert: Alert, options: Sequence[str]) -> str | None:
    episode = alert.episode
    if not episode.cases:
        return None
    baseline = ["--baseline", episode.compared_with] if episode.compared_with else []
    lengths = ",".join(map(format_length, sorted({case.length for case in episode.cases})))
    selected = ["--lengths", lengths, "-k", " or ".join(case.id for case in episode.cases)]
    return shlex.join(["longctx", "run", "--model", _failed_checkpoint(alert), *baseline, *selected, *options])
