"""The options of the suite as an argument parser, for help texts and for files that describe a run.

pytest owns the command line of a run. This parser has the same options, declared by the same functions.
"""

from __future__ import annotations

import argparse
from typing import Any

from fixtures.cli import CommandParser
from plugins import invariance, options, reports

# The plugins that declare options, in the order of the help text.
DECLARING = (options, invariance, reports)

PYTEST_OPTIONS = (
    ("-n", "N", "number of workers, each with a model of its own"),
    ("-k", "EXPRESSION", "cases or gates to select, such as 'multikey and 32k'"),
    ("-m", "EXPRESSION", "groups of cases to select, such as ruler or 'helmet and rag'"),
    ("--junitxml", "FILE", "write the report as JUnit XML"),
)


class _Groups:
    """The part of pytest's parser that plugins use to declare options."""

    def __init__(self, parser: argparse.ArgumentParser):
        self.group = parser.add_argument_group("options of the suite")

    def getgroup(self, name: str, description: str = "") -> _Groups:
        return self

    def addoption(self, *names: str, **attributes: Any) -> None:
        self.group.add_argument(*names, **attributes)


def suite_parser(prog: str, description: str) -> CommandParser:
    """Return a parser with all options of the suite, and with those of pytest that most runs need."""
    parser = CommandParser(prog=prog, description=description, allow_abbrev=False)
    groups: Any = _Groups(parser)
    for plugin in DECLARING:
        plugin.pytest_addoption(groups)
    ours = parser.add_argument_group("options of pytest", "pytest's other options work too.")
    parser.add_argument(
        "--config", metavar="FILE", help="a file with options, in TOML (default: longctx.toml, if there is one)"
    )
    for option, metavar, text in PYTEST_OPTIONS:
        ours.add_argument(option, metavar=metavar, help=text)
    return parser
