"""Order the checkpoint directories of one training run by their steps."""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from longctx.fixtures.checkpoints.checkpoint import CheckpointSource, read_checkpoint, read_source, step_of
from longctx.fixtures.checkpoints.safetensors import CheckpointError
from longctx.fixtures.outside_files import absolute, expanded

NUMBERED = re.compile(r"\d")


class CheckpointsError(ValueError):
    """Checkpoints that are missing or have no order; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A checkpoint's directory and the training step in its name."""

    number: int
    path: Path

    @property
    def name(self) -> str:
        return self.path.name


def read_step(path: Path, *, option: str) -> Step:
    """Return the checkpoint in a directory with its step; raise CheckpointsError if its name gives none.

    A link stands for the directory that it leads to, and so does that directory's name. Only where that has no step,
    such as the hash of a store, the link's name gives it.
    """
    directory = absolute(path)
    for any_number in (False, True):
        for name in (directory.name, path.name):
            number = step_of(name, any_number=any_number)
            if number is not None:
                return Step(number=number, path=directory)
    raise CheckpointsError(f"{option}: {path} has no step in its name; name checkpoints like step-3000")


def steps_in(directory: Path) -> list[Step]:
    """Return the checkpoints of a training run by step, complete or not, every directory once; raises OSError.

    They are the directories with a number in their name, and those elsewhere to which links with a number lead. Hidden
    names are left out, because some writers use one until they rename the finished directory.
    """
    around = absolute(directory)
    steps: dict[Path, Step] = {}
    # A directory's own name comes before those of links to it.
    for path in sorted(directory.iterdir(), key=lambda path: (path.is_symlink(), path.name)):
        if NUMBERED.search(path.name) and not path.name.startswith(".") and os.path.isdir(path):
            step = read_step(path, option="DIR")
            if step.path not in (around, *around.parents):
                steps.setdefault(step.path, step)
    return sorted(steps.values(), key=lambda step: (step.number, step.path))


def fingerprint_of(path: Path, *, option: str, options: Sequence[str]) -> str:
    """Return the fingerprint of a checkpoint, or of what a run with `options` makes it of.

    That is an adapter or a raw checkpoint. Raises CheckpointError.
    """
    source = source_in(path, options)
    if source is not None:
        return source.fingerprint
    return read_checkpoint(str(path), option=option, trust_remote_code="--trust-remote-code" in options).fingerprint


def source_in(path: Path, options: Sequence[str]) -> CheckpointSource | None:
    """Return the adapter or raw checkpoint in a directory, as a run with `options` reads it; None for all others."""
    words = [word.partition("=") for word in options]
    at = next((at for at, (name, _, _) in enumerate(words) if name == "--tokenizer"), None)
    tokenizer = None if at is None else words[at][2] or "".join(options[at + 1 : at + 2])
    try:
        return read_source(
            path,
            converts=any(name == "--convert" for name, _, _ in words),
            tokenizer=tokenizer,
            trust_remote_code="--trust-remote-code" in options,
        )
    except OSError as error:
        raise CheckpointError(f"{error.filename or path}: cannot be read ({error.strerror})") from error


def between(patterns: Sequence[str], good: Path, bad: Path) -> tuple[Step, ...]:
    """Return `good`, all directories that match a pattern and lie between the two, and `bad`, ordered by step.

    Raises CheckpointsError if `good` does not come before `bad`, or if two checkpoints have the same step.
    """
    first, last = _read_endpoint(good, "--good"), _read_endpoint(bad, "--bad")
    if first.number >= last.number:
        raise CheckpointsError(
            f"--good is step {first.number} and --bad step {last.number}; give a good one that came before the bad one"
        )
    matching: dict[Path, Step] = {}
    for pattern in patterns:
        paths = [Path(name) for name in glob.glob(str(expanded(pattern)))]
        if not paths:
            raise CheckpointsError(
                f"--checkpoints: nothing matches {pattern!r}; quote a pattern such as 'runs/a/step-*'"
            )
        given = [read_step(path, option="--checkpoints") for path in paths if path.is_dir()]
        matching |= {step.path: step for step in given}
    steps = [step for step in matching.values() if first.number < step.number < last.number]
    ordered = (first, *sorted(steps, key=lambda step: step.number), last)
    for one, other in itertools.pairwise(ordered):
        if one.number == other.number:
            raise CheckpointsError(f"--checkpoints: {one.path} and {other.path} are both step {one.number}; give one")
    return ordered


def _read_endpoint(path: Path, option: str) -> Step:
    if not os.path.isdir(expanded(path)):
        raise CheckpointsError(f"{option}: no such directory {str(path)!r}; give a checkpoint of the run")
    return read_step(path, option=option)
