"""The command `longctx`: one program for everything that the suite does."""

import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

from longctx.fixtures.cli import print_line, report_wrong_use
from longctx.fixtures.heavy_imports import exempt_from_garbage_collection
from longctx.fixtures.shown_text import known_names

HELP, VERSION = ("-h", "--help"), ("-V", "--version")
INTERRUPTED = 130
BROKEN_PIPE = 141  # the exit code of a shell's command that SIGPIPE ended


class Command(NamedTuple):
    """A subcommand."""

    module: str
    """The module below `longctx` whose `main` runs it."""
    summary: str
    """One line for the list of commands."""
    first: tuple[str, ...] = ()
    """Arguments that come before those of the user."""


COMMANDS = {
    "run": Command("run", "measure a checkpoint and evaluate its gates", ("run",)),
    "plan": Command("run", "print cases, tokens and memory of a run", ("plan",)),
    "watch": Command("ci.watch.__main__", "measure every checkpoint while training writes it"),
    "bisect": Command("ci.bisect.__main__", "find the step at which a training run became worse"),
    "diagnose": Command("ci.diagnose.__main__", "compare a bad checkpoint with a good one, file by file"),
    "compare": Command("ci.compare_servers", "ask two servers, or a server and its checkpoint, the same samples"),
    "gate": Command("ci.gate.__main__", "gate finished results of any program against a base"),
    "thresholds": Command(
        "ci.propose_thresholds", "propose thresholds from reports of accepted checkpoints (alias: calibrate)"
    ),
    "history": Command("ci.history_command", "draw reports over training steps, and correlate them"),
    "journal": Command("plugins.journal.__main__", "list stored results, or delete old ones"),
    "tasks": Command("tasks", "list all tasks with their lengths and metrics"),
    "checkpoint": Command("checkpoint", "show what the suite reads from a checkpoint"),
    "convert": Command(
        "fixtures.conversion.__main__", "turn a torch distributed checkpoint into a directory to measure"
    ),
    "calibration": Command("fixtures.calibration.__main__", "write a checkpoint whose effective length is known"),
    "fetch": Command("fixtures.corpora.__main__", "download published data, or read a benchmark's own prompts"),
    "docs": Command("shipped", "print where the pages are", ("docs",)),
    "recipes": Command("shipped", "write scripts for CI systems and schedulers to a directory", ("recipes",)),
    "completion": Command("completion", "print a script that completes commands and options"),
}
ALIASES = {"calibrate": "thresholds"}
REMOVED: dict[str, str] = {
    "faults": "use python -m benchmarks.faults in a clone of the suite",
    "analysis": "use longctx history, whose page has the correlations",
    "alerts": "see the page of a watch, index.html in its --out; a step that passes closes an alert",
    "preflight": "use longctx run --preflight",
    "prompts": "use longctx fetch helmet-prompts --from CLONE --to FILE",
    "validate": "use longctx plan --config FILE, with --model calibration:full if the file names no model",
}
"""What to use instead of a command that earlier versions had; the sentence begins with a verb."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand and return its exit code: 0, or 4 with one line for a command that does not exist."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(words)
    except KeyboardInterrupt:
        print_line("interrupted", sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of the output, such as `head`, has ended. Python would fail again when it flushes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        file, why = error.filename or "a file", error.strerror or error
        return report_wrong_use(f"{words[0]}: cannot use {file} ({why}); make room, or name one that can be used")


def _run(words: Sequence[str]) -> int:
    if words and words[0] in VERSION:
        from importlib.metadata import version

        print_line(f"longctx {version('longctx-gates')}")
        return 0
    if not words or words[0] in HELP:
        for line in _help_lines():
            print_line(line)
        return 0
    command = COMMANDS.get(ALIASES.get(words[0], words[0]))
    if words[0] in REMOVED:
        return report_wrong_use(f"longctx {words[0]}: gone; {REMOVED[words[0]]}")
    if command is None and words[0].startswith("-"):
        return report_wrong_use(f"{words[0]}: an option needs a command before it; write longctx run {words[0]} ...")
    if command is None:
        return report_wrong_use(f"unknown command {words[0]!r}; {known_names(words[0], COMMANDS)}")
    exit_code: int = import_command(command.module).main([*command.first, *words[1:]])
    return exit_code


def import_command(module: str) -> ModuleType:
    with exempt_from_garbage_collection():
        return importlib.import_module(f"longctx.{module}")


def _help_lines() -> list[str]:
    return [
        "usage: longctx COMMAND [OPTIONS]",
        "",
        "Measure how much of its context window a language model really uses.",
        "",
        *(f"  {name:<13}{command.summary}" for name, command in COMMANDS.items()),
        "",
        "longctx --version (-V) prints the version, and longctx COMMAND --help the options of a command. Begin with:",
        "",
        "  longctx run --model path/to/checkpoint --lengths 4k,8k -n 2",
    ]
