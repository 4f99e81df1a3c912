"""The record of one option of the command line, and the check of its values."""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from longctx.fixtures.shown_text import known_names

Kind = Literal[
    "text", "served name", "flag", "choice", "whole number", "number", "path", "perhaps path", "file", "folder",
]  # fmt: skip
"""The type of a value. A `served name` is a text that may look like a path. A `perhaps path` is a path if the file
exists, and else a name. A run writes a `file` and a `folder`."""

Declarer = Literal["suite", "pytest", "command", "watch", "bisect"]
"""The declarer of an option: the suite, pytest, every command that reads `longctx.toml`, a watch or a bisection."""

Caller = Literal["run", "plan", "watch", "bisect", "measure", "in memory"]
"""The user of an option: a command that reads `longctx.toml`, or `longctx.measure` of a path or a model in memory."""

Section = Literal["", "What is measured", "How prompts are made and scored", "How the model runs", "What is written"]
"""A heading of docs/command.md."""

WHOLE_NUMBER = re.compile(r"[0-9]{1,18}")
PATHS: Collection[Kind] = ("path", "perhaps path", "file", "folder")


NOT_TAKEN: Mapping[Caller, str] = {
    "plan": "nothing is measured",
    "watch": "not for the runs of a watch",
    "bisect": "not for the runs of a search",
    "measure": "has no meaning in longctx.measure",
    "in memory": "has no meaning in longctx.measure of a model in memory",
}
"""Why a command does not take an option for its runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of the command line."""

    flag: str
    """Its name, with dashes."""
    kind: Kind
    help: str
    """Its meaning, for `--help` and docs/command.md, without the default."""
    metavar: str | None = None
    aliases: tuple[str, ...] = ()
    """Other names of it, which users bring from other programs."""
    default: Any = None
    shown_default: str = ""
    """The default as help texts show it; empty for `default` itself."""
    declarer: Declarer = "suite"
    choices: tuple[str, ...] = ()
    minimum: int = 0
    """The least whole number."""
    is_valid: Callable[[float], bool] = math.isfinite
    """Accepts the numbers that can be used."""
    pattern: str = ""
    """A regular expression of the texts that can be used; empty if any can."""
    accepted: str = ""
    """The values that can be used, in words, for an error line; may be empty."""
    is_list: bool = False
    """True if the value is a list with commas."""
    repeats: bool = False
    """True if the option may be given several times."""
    takes_words: bool = False
    """True if the option may have several words as its value."""
    is_required: bool = False
    is_alternative: bool = False
    """True if only one of a command's options with this mark can be given."""
    engine: Literal["", "hf", "openai"] = ""
    """The only engine for which it has a meaning; empty if it has one for both."""
    key: str | None = ""
    """Its key in longctx.toml; empty for the name without dashes, None if it has none."""
    is_report: bool = False
    """True for a report that a run writes besides its terminal and its journal."""
    watch: str = ""
    """The replacement in a watch; empty if it passes the option on to its runs or reads it."""
    bisect: str = ""
    measure: str = ""
    in_memory: str = ""
    """The replacement in `longctx.measure` of a model in memory, of an option that it has for a path."""
    writes: Literal["", "report", "shown report", "answers", "scores"] = ""
    """The content of a file or folder: the report as data, the report with all texts visible, answers, or curves."""
    section: Section = ""

    @property
    def name(self) -> str:
        """The name without dashes."""
        return self.flag.lstrip("-")

    @property
    def attribute(self) -> str:
        return self.name.replace("-", "_")

    @property
    def place(self) -> str:
        """The key in longctx.toml, with its table, for a message; the name without a key."""
        return f"[{self.table}] {self.file_key}" if self.table else self.file_key

    @property
    def file_key(self) -> str:
        """The key in its table; the name for an option without one."""
        return self.key or self.name

    @property
    def table(self) -> str:
        """The table of longctx.toml that has the key; empty for the top."""
        if self.is_report:
            return "reports"
        return self.declarer if self.declarer in ("watch", "bisect") else ""

    @property
    def default_text(self) -> str:
        """The default for help texts; empty without one."""
        return self.shown_default or ("" if self.default in (None, []) else str(self.default))

    def instead(self, caller: Caller) -> str:
        """Return the replacement for the option in the runs of a command; empty if it takes the option."""
        remedies = {
            "plan": NOT_TAKEN["plan"] if self.is_report else "",
            "watch": self.watch,
            "bisect": self.bisect,
            "measure": self.measure,
            "in memory": self.measure or self.in_memory,
        }
        return remedies.get(caller, "")

    def problem(self, value: object) -> str:
        """Return the problem with a value, to stand after the option's name; empty if a run may use it."""
        text, accepted = str(value), self.accepted
        if self.kind in ("path", "perhaps path"):
            impossible = [part for part in (text.split(",") if self.is_list else [text]) if _is_impossible(part)]
            if impossible:
                return (
                    f"no file can have the name {impossible[0][:40]!r}..., which is too long or holds a NUL; "
                    "give a path that the file system can hold"
                )
        match self.kind:
            case "choice":
                is_good, accepted = text in self.choices, ""
            case "whole number":
                is_good = bool(WHOLE_NUMBER.fullmatch(text)) and int(text) >= self.minimum and self.is_valid(int(text))
                accepted = accepted or f"a whole number of at least {self.minimum}"
            case "number":
                try:
                    is_good = self.is_valid(float(text))
                except ValueError:
                    is_good = False
            case _:
                is_good = not self.pattern or bool(re.fullmatch(self.pattern, text))
        if is_good:
            return ""
        if accepted:
            return f"{value!r}; give {accepted}"
        return f"unknown {value!r}; {known_names(text, self.choices, words='use one of')}"

    @property
    def declaration(self) -> dict[str, Any]:
        """The keyword arguments that declare the option to argparse or pytest.

        The values of the suite's options stay texts, because the suite words the errors about them.
        """
        default = f" (default: {self.default_text})" if self.default_text else ""
        attributes: dict[str, Any] = {"help": self.help + default}
        if self.kind == "flag":
            return attributes | {"action": "store_true"}
        if self.metavar is not None:
            attributes["metavar"] = self.metavar
        if self.default is not None:
            attributes["default"] = self.default
        if self.repeats:
            attributes["action"] = "append"
        if self.declarer in ("watch", "bisect"):
            # Words are patterns of paths, which a Path would not keep as they are.
            path_type = str if self.takes_words else Path
            types: Mapping[str, type] = {"whole number": int, "number": float, "path": path_type}
            attributes |= {"type": types[self.kind]} if self.kind in types else {}
            attributes |= {"choices": self.choices} if self.choices else {}
            attributes |= {"nargs": "+"} if self.takes_words else {}
            attributes |= {"required": True} if self.is_required else {}
        return attributes


def _is_impossible(path: str) -> bool:
    """Return True if the operating system rejects the path itself, so that every look at it would raise an error."""
    try:
        os.lstat(path)
    except ValueError:
        return True
    except OSError as error:
        return error.errno == errno.ENAMETOOLONG
    return False
