"""A short form of the fuzzing: a malformed input of each kind, and inputs that once ended in a traceback."""

from __future__ import annotations

import pytest

from tests.fuzz.kinds import KINDS, findings
from tests.fuzz.programs import Sound, sound_inputs
from tests.fuzz.sandbox import MOST_BYTES, run_forked

# Seeds of inputs that ended in a traceback or an internal error before they were mended.
ONCE_BROKEN = (
    ("baseline report", 7167), ("baseline report", 7212), ("bisect reports", 6001), ("bisect reports", 6003),
    ("calibration.json", 20383), ("calibration.json", 60012), ("chat template", 7157), ("environment", 7181),
    ("environment", 100114), ("file shapes", 2037), ("file shapes", 20012), ("history reports", 70245),
    ("longctx.toml", 20386), ("longctx.toml", 20404), ("longctx.toml", 400067), ("option values", 20267),
    ("options of commands", 30004), ("published data", 2043), ("published data", 20010), ("tasks files", 40107),
    ("tasks files", 200133), ("tokenizer_config.json", 20333), ("watch history", 40044),
)  # fmt: skip
INPUTS = (
    *((kind, 0) for kind in KINDS),
    *(pytest.param(kind, seed, marks=pytest.mark.whole_loop) for kind, seed in ONCE_BROKEN),
)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Sound:
    return sound_inputs(tmp_path_factory.mktemp("sound"))


@pytest.mark.parametrize(("kind", "seed"), INPUTS)
def test_a_malformed_input_ends_in_one_line(kind: str, seed: int, sound: Sound) -> None:
    outcome = findings(kind, seed, sound)
    assert outcome.problem is None, outcome.output + outcome.errors


def raises() -> int:
    raise KeyError("x")


def prints_an_escape() -> int:
    print("\x1b[31mred")  # noqa: T201  # into the forked process's own output
    return 0


def takes_memory() -> int:
    held = b"x" * (MOST_BYTES + 2**26)
    return int(not held)


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        (lambda: 0, None),
        (takes_memory, "too much memory"),
        (lambda: 4, "not one line"),
        (lambda: 3, "exit code 3"),
        (raises, "Traceback (most recent call last)"),
        (prints_an_escape, "control characters"),
    ],
)
def test_a_bad_end_is_noticed(program: object, problem: str | None) -> None:
    assert callable(program)
    assert run_forked(program).problem == problem
