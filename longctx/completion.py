"""`longctx completion bash|zsh|fish`: print a script that completes the commands and their options."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
from collections.abc import Mapping, Sequence

from fixtures.cli import CommandParser, print_line

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
INSTALL = {
    "bash": 'eval "$(longctx completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(longctx completion zsh)" in ~/.zshrc',
    "fish": "longctx completion fish > ~/.config/fish/completions/longctx.fish",
}
BASH = """_longctx() {
    local word=${COMP_WORDS[COMP_CWORD]} options=""
    case ${COMP_WORDS[1]} in
%s
    esac
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "%s" -- "$word"))
    elif [ "${word#-}" != "$word" ]; then
        COMPREPLY=($(compgen -W "$options" -- "$word"))
    fi
}
complete -o default -F _longctx longctx"""
ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the script and return 0."""
    parser = CommandParser(
        prog="longctx completion",
        description="Print a script that completes commands and options. " + "; ".join(INSTALL.values()) + ".",
    )
    parser.add_argument("shell", choices=sorted(INSTALL), help="the shell that reads the script")
    shell = parser.parse_args(arguments).shell
    for line in script(shell, options_by_command()).splitlines():
        print_line(line)
    return 0


def options_by_command() -> dict[str, tuple[str, ...]]:
    """Return the options in the help text of every command."""
    from longctx.cli import COMMANDS

    return {
        name: tuple(dict.fromkeys(OPTION.findall(_help(command.module, command.first))))
        for name, command in COMMANDS.items()
        if command.module != __name__
    }


def script(shell: str, options: Mapping[str, Sequence[str]]) -> str:
    """Return the script for a shell."""
    if shell == "fish":
        names = " ".join(options)
        lines = [f"complete -c longctx -n __fish_use_subcommand -f -a '{names}'"]
        for name, found in options.items():
            lines += [
                f"complete -c longctx -n '__fish_seen_subcommand_from {name}' -l {option[2:]}" for option in found
            ]
        return "\n".join(lines)
    cases = "\n".join(f'        {name}) options="{" ".join(found)}" ;;' for name, found in options.items())
    return (ZSH if shell == "zsh" else "") + BASH % (cases, " ".join(options))


def _help(module: str, first: Sequence[str]) -> str:
    """Return the help text that a command prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        importlib.import_module(module).main([*first, "--help"])
    return printed.getvalue()
