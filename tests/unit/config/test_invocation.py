"""A report shows the command that was typed, not that of the process of pytest behind it."""

import shlex

import pytest

from longctx.plugins.config import invocation
from longctx.plugins.config.invocation import pytest_command, typed_command

# python -P -m longctx.suite
OF_PYTHON = 4


@pytest.mark.parametrize("is_clone", [True, False])
@pytest.mark.parametrize(
    "words",
    [
        ["--model=ckpt", "-k", "vt or qa_1", "--report-html=out/r.html"],
        ["--model=ckpt", "tests_longctx/test_ruler.py::test_ruler[vt-4k]"],
        ["--model=ckpt", "thresholds.toml::gate[effective length]"],
    ],
)
def test_a_run_shows_the_command_that_was_typed(
    words: list[str], is_clone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invocation, "IS_CLONE", is_clone)
    assert typed_command(pytest_command(words)[OF_PYTHON:]) == shlex.join(["longctx", "run", *words])


def test_an_option_without_its_value_takes_no_case_for_it() -> None:
    assert pytest_command(["--lengths", "1k", "--model"])[-1] == "--model"


def test_pytest_itself_is_shown_as_it_was_called() -> None:
    assert typed_command(["--model", "ckpt", "-n", "8"]) == "pytest --model ckpt -n 8"
