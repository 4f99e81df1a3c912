"""Which training step a checkpoint is of, as its path says."""

from __future__ import annotations

import re

# step_1000, checkpoint-500, global_step2000, iter_0001000, ckpt.300: a word, and its number after it.
STEP = re.compile(
    r"(?:^|[/\\_.\-])(?:global[_-]?)?(?:steps?|checkpoint|ckpt|iter(?:ation)?)[_.\-]?([0-9]{1,18})(?![0-9])"
)


def step_of(path: str) -> int | None:
    """The number of the last part of a path that names a step; None where none does."""
    found = STEP.findall(path.lower())
    return int(found[-1]) if found else None
