"""A file that describes a run: `longctx.toml`, whose keys are the options of the command line."""

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from longctx.fixtures.cli import print_line
from longctx.fixtures.outside_files import absolute, read_outside
from longctx.fixtures.shown_text import known_names
from longctx.plugins.config.options import OPTIONS, PATHS, RUN_OPTIONS, Caller, Option, declared_by, removed_option

NAME = "longctx.toml"
# All tables of a file but the top, which has no name.
TABLES = tuple(dict.fromkeys(option.table for option in OPTIONS if option.table))


class RunFileError(ValueError):
    """A file that describes no run; the message is one line with the file, the key and the accepted values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """The tables of a file, with the directory in which its relative paths start."""

    path: Path
    tables: Mapping[str, Mapping[str, Any]]
    """The tables by name; the keys outside of all tables are in the one without a name."""

    def options(self, table: str, options: Iterable[Option]) -> Iterator[tuple[Option, list[str]]]:
        """Yield the options that a table sets, each with its words; raise RunFileError for an unknown key or type."""
        known = {option.file_key: option for option in options if option.table == table and option.key is not None}
        for key, value in self.tables.get(table, {}).items():
            if key not in known:
                if gone := removed_option(key):
                    raise RunFileError(f"{self.path}: {gone}")
                hint = known_names(key, sorted(known))
                raise RunFileError(f"{self.path}: unknown key {key!r}{f' in [{table}]' if table else ''}; {hint}")
            yield known[key], self._words(known[key], value)

    def _words(self, option: Option, value: Any) -> list[str]:
        if option.kind == "flag":
            if not isinstance(value, bool):
                raise RunFileError(f"{self.path}: {option.place} is {value!r}; write true or false")
            return [option.flag] if value else []
        values = value if isinstance(value, list) else [value]
        if not values or not all(isinstance(part, str | int | float) and not isinstance(part, bool) for part in values):
            raise RunFileError(f"{self.path}: {option.place} is {value!r}; write a text, a number or a list of them")
        texts = [str(part) for part in values]
        if "\0" in "".join(texts):
            raise RunFileError(f"{self.path}: {option.place} holds a NUL; write a text without one")
        if option.kind in PATHS:
            paths = [path for text in texts for path in (text.split(",") if option.is_list else [text])]
            texts = []
            for path in paths:
                located = Path(os.path.join(self.path.parent, os.path.expanduser(path)))
                # A name that is no path stays as it is.
                is_name = option.kind == "perhaps path" and not os.path.exists(located)
                texts.append(path if is_name else str(located))
        if option.takes_words:
            return [option.flag, *texts]
        # One word, so that a value may begin with a dash.
        start = f"{option.flag}=" if option.flag.startswith("--") else option.flag
        return [f"{start}{text}" for text in (texts if option.repeats else [",".join(texts)])]


def read_run_file(path: Path) -> RunFile:
    """Return a file's tables; raise RunFileError."""
    try:
        content = tomllib.loads(read_outside(path).decode())
    except OSError as error:
        raise RunFileError(f"--config: {path} cannot be read ({error.strerror}); give a file in TOML") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RunFileError(f"{path}: not TOML: {error}") from error
    tables = {name: content.pop(name, {}) for name in TABLES}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise RunFileError(f"{path}: {name} is {table!r}; write a table [{name}]")
    return RunFile(path=absolute(path), tables={"": content, **tables})


def run_options(file: RunFile, command: Caller = "run") -> list[str]:
    """Return the options of a file for the runs of a command, without those that it does not pass on."""
    return [word for option, words in _of_a_run(file) if not option.instead(command) for word in words]


def _unused_keys(file: RunFile, command: Caller) -> str:
    unused = []
    for option, _ in _of_a_run(file):
        if instead := option.instead(command):
            unused.append(f"{option.place} ({instead.removeprefix('and ')})")
    return f"not used   {', '.join(unused)}" if unused else ""


def _of_a_run(file: RunFile) -> Iterator[tuple[Option, list[str]]]:
    for table in ("", "reports"):
        yield from file.options(table, RUN_OPTIONS.values())


def command_options(file: RunFile, command: Literal["watch", "bisect"]) -> list[str]:
    """Return the options of a watch or a bisection in its own table."""
    return [word for _, words in file.options(command, declared_by(command)) for word in words]


def split_config(arguments: Sequence[str], command: Caller) -> tuple[RunFile | None, list[str]]:
    """Return the file that --config names, or longctx.toml of the current directory, and the other arguments.

    Raises RunFileError. Says in one line that there is a file, because its options are not on the command line, and in
    another one which of them the command does not use.
    """
    others: list[str] = []
    given: str | None = None
    # All options are one list here, so "--" before those of the suite separates nothing.
    words = iter([word for word in arguments if word != "--"])
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
    file = read_run_file(path)
    if unused := _unused_keys(file, command):
        print_line(unused)
    return file, others
