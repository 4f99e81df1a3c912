"""One malformed input of a kind, by its seed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

from fixtures.seeding import stable_hash
from tests.fuzz.kinds import KINDS, Sound
from tests.fuzz.sandbox import Outcome, run_forked


def findings(kind: str, seed: int, sound: Sound) -> Outcome:
    """Return how the program of a kind ends on the input that a seed makes."""
    with tempfile.TemporaryDirectory() as folder:
        return run_forked(KINDS[kind](Random(stable_hash("fuzz", kind, seed)), sound, Path(folder)))
