"""`longctx completion bash|zsh|fish`: print a script that completes commands, their options and their values.

Write its output to a file that the shell reads.
"""

import contextlib
from argparse import Action, ArgumentParser
from collections.abc import Sequence
from typing import Literal

import shtab

from longctx.cli import COMMANDS, HELP, VERSION, Command, import_command
from longctx.fixtures.cli import CommandParser, print_line
from longctx.fixtures.tasks import SUITES, TASKS
from longctx.plugins.config.options import OPTIONS, PATHS, RUN_OPTIONS, add_own_options, declare

INSTALL = {
    "bash": "longctx completion bash > ~/.local/share/bash-completion/completions/longctx",
    "fish": "longctx completion fish > ~/.config/fish/completions/longctx.fish",
    "zsh": "longctx completion zsh > DIR/_longctx with a DIR of fpath",
}
VALUES = {
    "--suite": ("all", *SUITES),
    "-k": tuple(TASKS),
    "-m": tuple(dict.fromkeys((*SUITES, *(task.category for task in TASKS.values())))),
}
"""The words that an option completes if they are not its choices."""

PASSING_ON: tuple[Literal["watch", "bisect"], ...] = ("watch", "bisect")
"""The commands that pass options of a run on."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="longctx completion",
        description="Print a script that completes commands, options and values. " + "; ".join(INSTALL.values()) + ".",
    )
    parser.add_argument("shell", choices=sorted(INSTALL), help="the shell that reads the script")
    shell = parser.parse_args(arguments).shell
    for line in shtab.complete(whole_parser(), shell).splitlines():
        print_line(line)
    return 0


def whole_parser() -> ArgumentParser:
    """Return a parser of all commands, for completion only."""
    parser = ArgumentParser(prog="longctx", add_help=False)
    parser.add_argument(*HELP, action="help", help="list the commands")
    parser.add_argument(*VERSION, action="version", version="", help="print the version")
    commands = parser.add_subparsers()
    passing: dict[str, CommandParser] = {name: _passing_parser(name) for name in PASSING_ON}
    for name, command in COMMANDS.items():
        own = passing.get(name) or _parser_of(command)
        for action in own._actions:
            _complete_values(action)
        commands.add_parser(name, parents=[own], add_help=False, help=command.summary)
    return parser


def _passing_parser(name: Literal["watch", "bisect"]) -> CommandParser:
    """Return a parser with the own options of a command and those of a run that it passes on, from their table."""
    parser = CommandParser(prog=f"longctx {name}")
    add_own_options(parser, name)
    own = {flag for action in parser._actions for flag in action.option_strings}
    passed = [option for option in RUN_OPTIONS.values() if option.flag not in own and not option.instead(name)]
    declare(parser.add_argument, passed)
    return parser


def _parser_of(command: Command) -> CommandParser:
    """Return the parser of a command, which is the one that prints its help."""
    parsers: list[CommandParser] = []
    CommandParser.on_help = parsers.append
    try:
        with contextlib.suppress(SystemExit):
            import_command(command.module).main([*command.first, "--help"])
    finally:
        CommandParser.on_help = None
    return parsers[0]


def _complete_values(action: Action) -> None:
    flags = action.option_strings
    option = next((option for flag in flags for option in OPTIONS if option.flag == flag), None)
    if option is None:
        return
    if words := VALUES.get(option.flag, option.choices):
        action.choices = words
    elif option.kind in PATHS:
        action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab reads it
