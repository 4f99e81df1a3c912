"""The commands that the README and the pages show, in indented blocks and between backticks."""

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.helpers.paths import REPOSITORY

# `make pages` runs the tests with this mark; together they take longer than all others.
takes_minutes = pytest.mark.skipif(
    "LONGCTX_MEASURE_DOCS" not in os.environ, reason="LONGCTX_MEASURE_DOCS=1 runs the commands of pages"
)
DOCS = REPOSITORY / "docs"
PAGES = (REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md")))
PROGRAMS = (
    "pytest", "python", "python3", "longctx", "make", "pip", "uv", "git", "cd", "ray", "jq", "inspect", "/usr/bin/time",
    "bash", "sh", "curl", "docker", "kubectl", "ssh", "srun", "sbatch", "torchrun", "accelerate", "vllm",
)  # fmt: skip
_PROGRAM = rf"(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?(?:{'|'.join(PROGRAMS)}) "
IN_BLOCK = re.compile(rf"^ {{4,}}(?={_PROGRAM})")
IN_BACKTICKS = re.compile(rf"`({_PROGRAM}[^`]+)`")
SUITE_COMMAND = re.compile(r"\s*(?:[A-Z_]+=\S+ |/usr/bin/time )*((?:pytest|python3?|longctx) .+)")
# Words after which a command line is another command, or not one word further.
ENDS = ("&&", "||", "|", ">", "…", "...")


@dataclass(frozen=True, slots=True)
class PageCommand:
    """A command of a page."""

    page: str
    heading: str
    """The heading of the second level above it."""
    text: str
    """The command line, without the directory of the program and a comment behind it."""
    is_block: bool
    """False for a command between backticks."""


@cache
def page_commands() -> tuple[PageCommand, ...]:
    """Return all commands of all pages, in their order."""
    return tuple(command for page in PAGES for command in _commands(page))


def _commands(page: Path) -> Iterator[PageCommand]:
    heading = ""
    for line in (lines := iter(page.read_text(encoding="utf-8").splitlines())):
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        if IN_BLOCK.match(line):
            text = line.strip()
            while _continues(text):
                text = f"{text}\n{next(lines)[4:]}"
            yield PageCommand(page.name, heading, _normal(text), is_block=True)
    text = re.sub(r"^ {4,}.*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for section in f"\n{text}".split("\n## "):
        for command in IN_BACKTICKS.findall(section):
            yield PageCommand(page.name, section.partition("\n")[0], _normal(command), is_block=False)


def _continues(text: str) -> bool:
    """Return True for a command line that ends with a backslash or inside quotes."""
    try:
        shlex.split(text.removesuffix("\\"), comments=True)
    except ValueError:
        return True
    return text.endswith("\\")


def _normal(text: str) -> str:
    """Return a command in one line, unless a quoted part has several, without a comment and its program's directory."""
    joined = re.sub(r"\s*\\\n\s*", " ", text).removeprefix(".venv/bin/")
    return re.sub(r"\s+#[^'\"]*$", "", joined).strip()


def suite_commands(text: str) -> list[str]:
    """Return the command lines of the suite's own programs in a command, which may be a script of several lines."""
    matches = [SUITE_COMMAND.match(line) for line in text.split("\n")]
    # A script stands in quotes, which its last line closes.
    return [match[1].rstrip("'" if number else "") for number, match in enumerate(matches) if match]


def words(command: str) -> list[str]:
    """Return the words of a command line up to `&&`, a pipe or a redirection."""
    split = shlex.split(command, comments=True)
    end = next((index for index, word in enumerate(split) if word in ENDS), len(split))
    return split[:end]
