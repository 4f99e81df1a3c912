"""`longctx run` and `longctx plan` start pytest on the suite."""

import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from longctx.ci.run_file import RunFileError, command_options, run_options, split_config
from longctx.fixtures.cli import report_wrong_use
from longctx.plugins.config.invocation import SHORT_ID, pytest_command
from longctx.plugins.config.options import RUN_OPTIONS, Caller, run_parser

# Options of pytest without a value.
SHORT_FLAGS = re.compile(r"-[qvxsl]+")
DESCRIPTIONS = {
    "run": "Measure a checkpoint and evaluate its gates.",
    "plan": "Print the cases, tokens and estimated memory of a run, and check its longctx.toml; load no model.",
}


def main(arguments: Sequence[str]) -> int:
    """Run the command that the first argument names; return 0 after --help, and 4 for a file that cannot be used."""
    name, *words = arguments
    if "-h" in words or "--help" in words:
        run_parser(f"longctx {name}", DESCRIPTIONS[name]).print_help()
        return 0
    mode = ["--plan"] if name == "plan" else []
    caller: Caller = "run" if {"--plan", "--preflight"}.isdisjoint([*mode, *words]) else "plan"
    try:
        file, words = split_config(words, caller)
        from_file = [] if file is None else run_options(file, caller)
        if file is not None and name == "plan":
            for command in ("watch", "bisect"):
                command_options(file, command)
    except RunFileError as error:
        return report_wrong_use(str(error))
    return _become(pytest_command([*mode, *from_file, *with_model(words)]))


def with_model(words: Sequence[str]) -> list[str]:
    """Return the words of a run; without --model, the first word that is no option's value becomes its value."""
    without_value = {option.flag for option in RUN_OPTIONS.values() if option.kind == "flag"}
    before = ""
    for place, word in enumerate(words):
        is_value = before.startswith("-") and not (
            "=" in before or before in without_value or SHORT_FLAGS.fullmatch(before)
        )
        before = word
        if word.partition("=")[0] == "--model":
            break
        if not (is_value or word.startswith("-") or "::" in word or word.endswith(".py") or SHORT_ID.fullmatch(word)):
            return [*words[:place], f"--model={word}", *words[place + 1 :]]
    return [*words]


def _become(command: Sequence[str]) -> NoReturn:
    """Replace this process by another one, which gets its signals and gives its exit code."""
    sys.stdout.flush()
    os.execv(command[0], [*command])
