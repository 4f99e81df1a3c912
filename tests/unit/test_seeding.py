"""Random draws depend on a sample's identity only."""

from __future__ import annotations

import subprocess
import sys
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from longctx.fixtures.seeding import choice, random_for, shuffle, stable_hash


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


@given(seed=st.integers(0, 2**64), size=st.integers(0, 70))
def test_shuffle_and_choice_draw_as_random_does(seed: int, size: int) -> None:
    """Samples depend on these draws, so a faster implementation must not change them."""
    ours, reference = Random(seed), Random(seed)
    items, expected = list(range(size)), list(range(size))
    shuffle(ours, items)
    reference.shuffle(expected)
    assert items == expected
    if items:
        assert [choice(ours, items) for _ in range(5)] == [reference.choice(expected) for _ in range(5)]
    assert ours.random() == reference.random()
