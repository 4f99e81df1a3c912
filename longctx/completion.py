"""`longctx completion bash|zsh|fish`: print a script that completes the commands and their options.

Collecting the options imports every command, which takes seconds. `python -m longctx.completion` does so and writes
them to `completion.json`, from which the script is made.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from longctx.cli import COMMANDS, HELP, VERSION, import_command
from longctx.fixtures.cli import CommandParser, print_line
from longctx.plugins.config.options import RUN_OPTIONS

FILE = Path(__file__).with_name("completion.json")
# A line of a help text that begins with an option.
OPTION = re.compile(r"^  (?:-\w[^,\n]*, )?(--[a-z][a-z-]*[a-z])", re.MULTILINE)
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
    for line in script(shell, json.loads(FILE.read_text(encoding="utf-8"))).splitlines():
        print_line(line)
    return 0


def options_by_command() -> dict[str, tuple[str, ...]]:
    """Return the options that every command takes."""
    options = {}
    for name, command in COMMANDS.items():
        if command.module == "completion":
            continue
        # A command's own options, which its help text lists, and the ones that it passes on.
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            import_command(command.module).main([*command.first, "--help"])
        found = OPTION.findall(printed.getvalue())
        for passing_on in ("watch", "bisect"):
            if name == passing_on:
                taken = (flag for flag, option in RUN_OPTIONS.items() if not option.refused_by(passing_on))
                found += (flag for flag in taken if flag.startswith("--"))
        options[name] = tuple(dict.fromkeys(found))
    return options


def script(shell: str, options: Mapping[str, Sequence[str]]) -> str:
    """Return the script for a shell."""
    if shell == "fish":
        names = " ".join(options)
        lines = [f"complete -c longctx -n __fish_use_subcommand -f -a '{names}'"]
        lines += [
            f"complete -c longctx -n __fish_use_subcommand -s {short[1:]} -l {long[2:]}"
            for short, long in (HELP, VERSION)
        ]
        for name, found in options.items():
            lines += [
                f"complete -c longctx -n '__fish_seen_subcommand_from {name}' -l {option[2:]}" for option in found
            ]
        return "\n".join(lines)
    first = " ".join((*options, HELP[-1], VERSION[-1]))
    cases = "\n".join(f'        {name}) options="{" ".join(found)}" ;;' for name, found in options.items())
    return (ZSH if shell == "zsh" else "") + BASH % (cases, first)


if __name__ == "__main__":
    found = ",\n".join(f" {json.dumps(name)}: {json.dumps(options)}" for name, options in options_by_command().items())
    FILE.write_text(f"{{\n{found}\n}}\n", encoding="utf-8")
