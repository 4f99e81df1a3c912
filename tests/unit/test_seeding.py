"""Random draws depend on a sample's identity only."""

import subprocess
import sys

from longctx.fixtures.seeding import random_for, stable_hash


def test_draws_do_not_depend_on_the_process() -> None:
    script = "from longctx.fixtures.seeding import random_for; print(random_for('vt', 4096, 0).random())"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {f"{random_for('vt', 4096, 0).random()}\n"}


def test_the_hash_keeps_neighbouring_parts_apart() -> None:
    assert stable_hash("a", "bc") != stable_hash("ab", "c")
