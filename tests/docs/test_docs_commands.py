"""Every command that the README and the pages tell is one that its program takes; files that they name are there."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fixtures.lengths import parse_length
from plugins import options, reports
from plugins.config import check_values as option_values
from tests.helpers.paths import REPOSITORY

README = REPOSITORY / "README.md"
OPTIONS = REPOSITORY / "docs" / "options.md"
PAGES = (README, REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md")))
Takes = Callable[[Sequence[str]], None]
TOP = ("ci", "fixtures", "plugins", "docs", "tests", "tests_longctx", "benchmarks")
# A command with its continued lines, without the comment behind it or the quote around it.
TYPED = r"^ {4,}(?:\.venv/bin/)?((?:pytest|python) (?:.*\\\n)*(?:[^'\n#]|'[^'\n]*')*)(?:#.*|')?$"
# Named on the page of options although they are pytest's own.
PYTEST_OPTIONS = {"--junitxml"}
# What these do not know they give to pytest.
PASSING_ON = ("ci.bisect", "ci.watch")
# What a page tells its reader to create.
CREATED = re.compile(r"fixtures/tasks/(own|<)|tests_longctx/test_own")


def commands(page: Path) -> list[str]:
    """Shell lines of the indented blocks, and whole commands between backticks; continued lines are one."""
    text = page.read_text(encoding="utf-8")
    typed = re.findall(TYPED, text, re.MULTILINE)
    told = re.findall(r"`((?:pytest|python3?) [^`]+)`", text)
    return [re.sub(r"\\\n\s*", " ", command) for command in (*typed, *told)]


def words(command: str) -> list[str]:
    """Of its first part: what comes behind `&&` or a pipe is another command."""
    found = shlex.split(command, comments=True)
    end = next((at for at, word in enumerate(found) if word in ("&&", "||", "|", ">", "…", "...")), len(found))
    return found[:end]


TOLD = [
    pytest.param(command, id=f"{page.stem}-{number}") for page in PAGES for number, command in enumerate(commands(page))
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_command_is_passed_over(page: Path) -> None:
    begun = re.findall(r"^ {4,}(?:\.venv/bin/)?(?:pytest|python) ", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(re.findall(TYPED, page.read_text(encoding="utf-8"), re.MULTILINE)) == len(begun)


class Read(BaseException):
    """The arguments were understood; what is left is pytest's. Passes through a program that survives exceptions."""

    def __init__(self, left: Sequence[str]):
        super().__init__()
        self.left = left


@pytest.fixture
def pytest_takes(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> Takes:
    """Parses words with all options that this pytest has, ours included; an unknown one ends the test."""
    # The page on tasks adds a suite.
    monkeypatch.setitem(option_values.CHOICES, "suite", (*option_values.CHOICES["suite"], "own"))

    def takes(arguments: Sequence[str]) -> None:
        # The one parser that knows the options of all plugins; pytest offers no other way to it.
        read, unknown = pytestconfig._parser.parse_known_and_unknown_args(list(arguments))
        assert unknown == []
        option_values.check_values(read)
        for length in (read.lengths or "4k").split(","):
            parse_length(length)
        for place in read.file_or_dir:
            assert (REPOSITORY / place.partition("::")[0]).exists()
        assert read.thresholds is None or read.thresholds == "own.toml" or (REPOSITORY / read.thresholds).is_file()

    return takes


@pytest.mark.parametrize("command", TOLD)
def test_a_command_is_understood(command: str, pytest_takes: Takes, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *arguments = words(command)
    if program == "pytest":
        pytest_takes(arguments)
    elif arguments[:2] != ["-m", "venv"]:
        assert arguments[0] == "-m"
        left = left_over(arguments[1], arguments[2:], monkeypatch)
        if arguments[1] in PASSING_ON:
            pytest_takes(left)
        else:
            assert left == []


def left_over(module: str, arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> Sequence[str]:
    """What `python -m module` leaves unread; it is stopped before it does anything."""
    real = argparse.ArgumentParser.parse_known_args

    def parsed(self: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> Any:
        raise Read(real(self, args, namespace)[1])

    with monkeypatch.context() as patched:
        patched.setattr(argparse.ArgumentParser, "parse_known_args", parsed)
        patched.setattr(sys, "argv", [module, *arguments])
        with pytest.raises(Read) as read:
            entry(module).main()
    return read.value.left


def entry(name: str) -> ModuleType:
    module = importlib.import_module(name)
    return importlib.import_module(f"{name}.__main__") if hasattr(module, "__path__") else module


def offered() -> set[str]:
    """The suite's own options."""
    found: set[str] = set()
    for plugin in (options, reports):
        parser = pytest.Parser(_ispytest=True)
        plugin.pytest_addoption(parser)
        found |= {name for option in parser.getgroup("longctx").options for name in option.names()}
    return found


def test_the_page_of_options_names_every_option() -> None:
    text = OPTIONS.read_text(encoding="utf-8")
    assert sorted(option for option in offered() if f"`{option}" not in text) == []


def test_every_option_in_a_table_of_the_page_is_one() -> None:
    rows = [line.split("|")[1] for line in OPTIONS.read_text(encoding="utf-8").splitlines() if line.startswith("| `--")]
    told = {option for row in rows for option in re.findall(r"--[a-z-]+", row)}
    assert len(told) >= 30
    assert sorted(told - offered() - PYTEST_OPTIONS) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = {link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link}
    assert sorted(link for link in links if not (page.parent / link).exists()) == []
    named = {name.rstrip("/.,") for name in re.findall(rf"`((?:{'|'.join(TOP)})/[\w./<>-]*)`", text)}
    assert sorted(name for name in named if not CREATED.match(name) and not (REPOSITORY / name).exists()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_link_into_a_page_finds_its_heading(page: Path) -> None:
    for target, heading in re.findall(r"\]\(([^)\s#]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
        text = (page.parent / target if target else page).read_text(encoding="utf-8")
        headings = [re.sub(r"[^\w -]", "", line.lstrip("# ")).lower().replace(" ", "-")
                    for line in text.splitlines() if line.startswith("#")]  # fmt: skip
        assert heading in headings
