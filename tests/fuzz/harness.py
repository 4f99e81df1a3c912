"""One malformed input of a kind, by its seed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

from longctx.fixtures.seeding import stable_hash
from tests.fuzz.kinds import KINDS
from tests.fuzz.programs import Command, Sound
from tests.fuzz.sandbox import Outcome, run_forked


def findings(kind: str, seed: int, sound: Sound, *, started: bool = False) -> Outcome:
    """Return how the program of a kind ends on the input that a seed makes.

    The program runs in a forked copy of this process or, if it is a command and is to be `started`, in its own.
    """
    with tempfile.TemporaryDirectory() as folder:
        program = KINDS[kind](Random(stable_hash("fuzz", kind, seed)), sound, Path(folder))
        if not isinstance(program, Command):
            return run_forked(program)
        return run_forked(program.started if started else program, program.exit_codes)
