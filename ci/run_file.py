"""A file that describes a run: `longctx.toml`, whose keys are the options of the command line."""

from __future__ import annotations

import argparse
import difflib
import os
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fixtures.cli import CommandParser, print_line
from fixtures.installation import PATH_OPTIONS
from fixtures.outside_files import absolute, read_outside

NAME = "longctx.toml"
REPORTS = {
    "json": "--report-json", "html": "--report-html", "md": "--report-md", "junit": "--junitxml",
    "samples": "--samples-jsonl", "inspect": "--inspect-log",
    "tensorboard": "--tensorboard", "wandb": "--wandb",
}  # fmt: skip
RENAMED = {"workers": "-n", "select": "-k", "markers": "-m"}
# Commands of their own, and the options that have a table.
NOT_IN_A_FILE = ("--plan", "--preflight", "--help", "--config", *REPORTS.values())
# A name that is no path stays as it is: a step, a model on a server or in the hub, calibration:4k.
PERHAPS_PATHS = ("--tasks", "--model", "--baseline", "--base-model", "--anchor", "--yardstick")
PATHS = (*PATH_OPTIONS, "--junitxml", "--checkpoints")
TABLES = ("reports", "watch", "bisect")
# The options that these commands set for every run of the suite.
SET_BY_COMMAND = ("--model", "--baseline", "--step", "--confidence", *REPORTS.values())


class RunFileError(ValueError):
    """A file that describes no run; the message is one line with the file, the key and what is accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """The tables of a file, with the directory in which its relative paths start."""

    path: Path
    tables: Mapping[str, Mapping[str, Any]]
    """The tables by name; the keys outside of all tables are in the one without a name."""

    def options(self, table: str, actions: Mapping[str, argparse.Action], leave_out: Collection[str] = ()) -> list[str]:
        """Return a table as options of the command line; raise RunFileError for a key or value that is unknown."""
        words: list[str] = []
        for key, value in self.tables.get(table, {}).items():
            if key not in actions:
                raise self._unknown(table, key, actions)
            option = actions[key].option_strings[-1]
            if option not in leave_out:
                words += self._words(f"[{table}] {key}" if table else key, actions[key], value)
        return words

    def _unknown(self, table: str, key: str, known: Iterable[str]) -> RunFileError:
        near = difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"
        return RunFileError(f"{self.path}: unknown key {key!r}{f' in [{table}]' if table else ''}; {hint}")

    def _words(self, place: str, action: argparse.Action, value: Any) -> list[str]:
        option = action.option_strings[-1]
        if action.nargs == 0:
            if not isinstance(value, bool):
                raise RunFileError(f"{self.path}: {place} is {value!r}; write true or false")
            return [option] if value else []
        values = value if isinstance(value, list) else [value]
        if not values or not all(isinstance(part, str | int | float) and not isinstance(part, bool) for part in values):
            raise RunFileError(f"{self.path}: {place} is {value!r}; write a text, a number or a list of them")
        texts = [self._located(option, action, str(part)) for part in values]
        if action.nargs == "+":
            return [option, *texts]
        # One word, so that a value may begin with a dash.
        return [f"{option}{'=' * option.startswith('--')}{','.join(texts)}"]

    def _located(self, option: str, action: argparse.Action, text: str) -> str:
        """Return a path relative to the file as an absolute one; any other value as it is."""
        path = Path(os.path.join(self.path.parent, os.path.expanduser(text)))
        if option in PERHAPS_PATHS:
            return str(path) if os.path.exists(path) else text
        return str(path) if option in PATHS or action.type is Path else text


def read_run_file(path: Path) -> RunFile:
    """Return a file's tables; raise RunFileError."""
    try:
        content = tomllib.loads(read_outside(path).decode())
    except OSError as error:
        raise RunFileError(f"--config: {path} cannot be read ({error.strerror}); give a file in TOML") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RunFileError(f"{path}: not TOML: {error}") from error
    tables: dict[str, Mapping[str, Any]] = {"": {key: value for key, value in content.items() if key not in TABLES}}
    for name in TABLES:
        table = content.get(name, {})
        if not isinstance(table, dict):
            raise RunFileError(f"{path}: {name} is {table!r}; write a table [{name}]")
        tables[name] = table
    return RunFile(path=absolute(path), tables=tables)


def run_options(file: RunFile, leave_out: Collection[str] = ()) -> list[str]:
    """Return the options of the suite and of pytest in a file."""
    from ci.suite_parser import suite_parser

    actions = by_option(suite_parser("longctx run", ""))
    known = {key: actions[option] for key, option in RENAMED.items()}
    known |= {name[2:]: action for name, action in actions.items() if name[:2] == "--" and name not in NOT_IN_A_FILE}
    reports = {key: actions[option] for key, option in REPORTS.items()}
    return [*file.options("", known, leave_out), *file.options("reports", reports, leave_out)]


def command_options(file: RunFile, command: str, parser: CommandParser) -> list[str]:
    """Return the options of a watch or a bisection in its own table."""
    own = {name[2:]: action for name, action in by_option(parser).items() if name not in NOT_IN_A_FILE}
    return file.options(command, own)


def by_option(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Return the options of a parser by their names."""
    return {name: action for action in parser._actions for name in action.option_strings}


def split_config(arguments: Sequence[str]) -> tuple[RunFile | None, list[str]]:
    """Return the file that --config names, or longctx.toml of the current directory, and the other arguments.

    Raises RunFileError. Says in one line that there is a file, because its options are not on the command line.
    """
    others: list[str] = []
    given: str | None = None
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name != "--config":
            others.append(word)
        elif not (given := value if equals else next(words, "")):
            raise RunFileError(f"--config: give a file in TOML, such as {NAME}")
    path = Path(given or NAME) if given or os.path.isfile(NAME) else None
    if path is None or "-h" in others or "--help" in others:
        return None, others
    print_line(f"options    {path}")
    return read_run_file(path), others
