"""The command line of one run: built for a new process of pytest, or parsed by one into plain values."""

import re
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from longctx.fixtures.installation import CASES_DIRECTORY, IS_CLONE, SUITE, scratch_directory
from longctx.fixtures.outside_files import absolute
from longctx.plugins.config.options import PATH_OPTIONS

CONFTEST = "conftest.py"
# Arguments that a process of pytest gets besides those of the user. No case needs the plugins of hypothesis and anyio,
# which pytest would load because their packages are installed, at a quarter of a second for every process.
_OF_SUITE = (
    "-c", str(SUITE / "pyproject.toml"), "--rootdir", str(SUITE), "-p", "no:hypothesispytest", "-p", "no:anyio",
)  # fmt: skip
_EVERYTHING = (str(SUITE / CONFTEST), str(SUITE / CASES_DIRECTORY))
_NO_IMPORT_PATH = ("--override-ini", "pythonpath=")
SHORT_ID = re.compile(r"(test_\w+)\[[^\[\]]+\]")
# The word after these options of pytest is their value, even if it looks like the id of a test.
TAKING_IDS = ("-k", "-m", "-p", "--deselect")


class ConfigError(ValueError):
    """Options from which no run can be built; the message is one line with the option, its value and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """A parsed command line and the process that it was given to."""

    arguments: Namespace
    """The parsed options, with pytest's own among them; the values of numeric options may still be text."""
    root: Path
    """pytest's root directory: the clone of this repository, or the installed package."""
    directory: Path
    """The directory in which the command was typed; relative paths start here."""
    local_workers: int | None
    """The number of workers on this machine; None if some of them run on other machines."""
    is_narrowed: bool
    """True if -k, -m, --tasks or a test id selects some of the cases, so that a problem of one case need not stop the
    run."""
    selection: str = ""
    """The words that select cases, which may name tasks."""
    add_cleanup: Callable[[Callable[[], None]], object]
    """Registers a function to be called when the run ends."""
    announce: Callable[[str], None] = lambda line: None
    """Shows a line before something that may take long."""

    @property
    def scratch(self) -> Path:
        """The directory for journals, built checkpoints and server logs."""
        return scratch_directory(self.root)

    def path(self, given: str | None) -> str | None:
        """Return a path option as an absolute path; None if the option was not given."""
        return None if given is None else str(absolute(given, directory=self.directory))


def pytest_command(arguments: Sequence[str]) -> list[str]:
    """Return the command line of a process that runs the suite from any directory.

    Ids of cases and gates are those that a run prints. All other paths start in the current directory. pytest would
    load the conftest.py of a project around the value of a path option, unless the two are one word.
    """
    words: list[str] = []
    has_case = has_gate = False
    before = ""
    for word in join_path_options(arguments):
        is_value = before in TAKING_IDS
        before = word
        if is_value:
            words.append(word)
            continue
        # The short id of a case, as tables and errors have it.
        if short := SHORT_ID.fullmatch(word):
            word = f"{CASES_DIRECTORY}/{short[1]}.py::{word}"
        is_case = word.partition("/")[0] == CASES_DIRECTORY
        has_case |= is_case
        has_gate |= not is_case and ".toml::" in word
        # The id of a case gets the full path of its file; the id of a gate has none.
        words.append(f"{SUITE}/{word}" if is_case else word)
    # pytest takes the suite's conftest.py, which has its options, for that of an existing path among the arguments.
    missing = CONFTEST if has_gate else CASES_DIRECTORY
    everything = [] if has_case else [str(SUITE / missing)]
    # The import path of a clone would give the folders of an installed package a second name.
    import_path = () if IS_CLONE else _NO_IMPORT_PATH
    # They stand before the user's words, the last of which may be an option without its value.
    # Without -P, modules of the current directory could take the place of those of the suite.
    return [sys.executable, "-P", "-m", "longctx.suite", *_OF_SUITE, *import_path, *everything, *words]


def typed_command(words: Sequence[str]) -> str:
    """Return the command line that a user typed, given the arguments of its process of pytest."""
    if tuple(words[: len(_OF_SUITE)]) != _OF_SUITE:
        return shlex.join(["pytest", *words])
    words = words[len(_OF_SUITE) :]
    if tuple(words[: len(_NO_IMPORT_PATH)]) == _NO_IMPORT_PATH:
        words = words[len(_NO_IMPORT_PATH) :]
    own = [word.removeprefix(f"{SUITE}/") if "::" in word else word for word in words if word not in _EVERYTHING]
    return shlex.join(["longctx", "run", *own])


def join_path_options(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with every path option and its value joined by "="."""
    words: list[str] = []
    for argument in arguments:
        if words and words[-1] in PATH_OPTIONS and not argument.startswith("-"):
            words[-1] += f"={argument}"
        else:
            words.append(argument)
    return words
