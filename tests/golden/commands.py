"""Golden recordings of what a user sees: the commands, and the normal form of their outputs.

`python -m tests.golden.record_commands` records them anew. A record is plain text, so that a change of it can be read.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longctx.cli import COMMANDS
from tests.golden.wrong_uses import EVERYWHERE, Command, command, wrong_uses
from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import preloaded

RECORDED = Path(__file__).parent / "recorded" / "commands"
SHELLS = ("bash", "fish", "zsh")
SUITE_GROUP = re.compile(r"^long-context evaluation:\n(?:(?: .*)?\n)*", re.MULTILINE)
ENVIRONMENT = {
    "COLUMNS": "100", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "NO_COLOR": "1", "OMP_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore", "TERM": "dumb", "TZ": "UTC",
}  # fmt: skip
SECONDS_FOR_A_GROUP = 300


def help_commands() -> dict[str, Command]:
    """Return the commands that print help, and the scripts that complete commands, by the name of their record."""
    return {
        "longctx": command("longctx --help"),
        **{name: command(f"longctx {name} --help") for name in COMMANDS},
        "pytest": command(
            f"pytest --help -c {REPOSITORY}/pyproject.toml --rootdir {REPOSITORY} {REPOSITORY}/tests_longctx"
        ),
        **{f"completion {shell}": command(f"longctx completion {shell}") for shell in SHELLS},
        "tasks listed": command("longctx tasks"),
    }


def help_records(folder: Path) -> dict[str, str]:
    """Return the records of all help texts by path."""
    commands = help_commands()
    records = {}
    for (name, asked), ended in zip(commands.items(), run_commands([*commands.values()], folder), strict=True):
        text = block(asked, ended, folder)
        if name == "pytest" and (found := SUITE_GROUP.search(ended["out"])):
            text = found[0]
        records[f"help/{name}.txt"] = text
    return records


def error_records(group: str, folder: Path) -> dict[str, str]:
    """Return the record of one group of wrong uses by path."""
    commands = wrong_uses()[group]
    results = run_commands(commands, folder)
    blocks = [block(asked, ended, folder) for asked, ended in zip(commands, results, strict=True)]
    return {f"errors/{group}.txt": "\n".join(blocks)}


def run_commands(commands: Sequence[Command], folder: Path) -> list[dict[str, Any]]:
    """Run commands, each in a directory of its own, in forks of one process; return codes and outputs."""
    described = []
    for number, asked in enumerate(commands):
        directory = folder / str(number)
        write_files(directory, {**EVERYWHERE, **asked.files})
        described.append({"words": asked.words, "directory": str(directory), "environment": ENVIRONMENT})
    source, target = folder / "commands.json", folder / "results.json"
    source.write_text(json.dumps(described))
    subprocess.run(
        [str(preloaded("python")), "-m", "tests.golden.command_process", str(source), str(target)],
        cwd=REPOSITORY, env=environment(), check=True, timeout=SECONDS_FOR_A_GROUP,
    )  # fmt: skip
    results: list[dict[str, Any]] = json.loads(target.read_text())
    return results


def environment() -> dict[str, str]:
    """Return the environment of all commands: none of the calling pytest's variables, and no key of a server."""
    dropped = ("PYTEST_", "LONGCTX_", "OPENAI_")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)} | ENVIRONMENT


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write texts by path below a folder; a path that ends with a slash is a directory."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def block(asked: Command, ended: Mapping[str, Any], folder: Path) -> str:
    """Return the record of one command: its words, the file with the mistake, its exit code and its outputs."""
    lines = ["$ " + " ".join(map(_quoted, asked.words))]
    if asked.shown:
        lines += [f"{asked.shown}:", *(f"> {line}" for line in asked.files[asked.shown].splitlines())]
    lines.append(f"exit {ended['code']}")
    for name in ("out", "err"):
        lines += [f"{name}| {line}".rstrip(" ") for line in normal(ended[name], folder).splitlines()]
    return "\n".join(lines) + "\n"


def _quoted(word: str) -> str:
    return word if re.fullmatch(r"[^\s'\"()]+", word) else "'" + word.replace("'", "'\\''") + "'"


def normal(text: str, folder: Path) -> str:
    """Return an output without what differs between two runs or two machines: places, processes, times, versions."""
    text = re.sub(rf"{re.escape(str(folder))}(?:/\d+(?=/|\b))?", "<here>", text)
    text = text.replace(str(REPOSITORY), "<clone>").replace(str(Path.home()), "<home>")
    text = text.replace(platform.node(), "<host>") if len(platform.node()) > 3 else text
    for pattern, replacement in PATTERNS:
        text = pattern.sub(replacement, text)
    return text


PATTERNS = tuple(
    (re.compile(pattern, re.MULTILINE), replacement)
    for pattern, replacement in (
        (r"(?:<clone>/|\S*/)bin/(?:python[\d.]*|pytest)\b", "<python>"),
        (r"^platform linux.*$", "platform <platform>"),
        (r"^plugins: .*$", "plugins: <plugins>"),
        (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:[+-]\d\d:\d\d|Z)?", "<time>"),
        (r"^\d\d:\d\d:\d\d ", "<time> "),
        (r"serve-\d+\.log", "serve-<process>.log"),
        (r"\.[0-9a-f]{8}\.partial\b", ".<random>.partial"),
        (r"--port \d+", "--port <port>"),
        (r" in \d+\.\d\ds\b(?: \(.*?\))?", " in <seconds>"),
        (r"^=+ (.*?) =+$", r"=== \1 ==="),
        (r" +\[ *(\d+)%\]$", r"  [\1%]"),
        (r"^-+ (generated xml file: .*?) -+$", r"--- \1 ---"),
        (r"(?:\.\./)+\S*?tests_longctx/", "<clone>/tests_longctx/"),
        (r"\.\.<clone>/tests_longctx/", "<clone>/tests_longctx/"),
        (r"(?<![\w.])0x[0-9a-f]{6,}", "<address>"),
    )
)


def differences(records: Mapping[str, str]) -> list[str]:
    """Return one line for every record that is not as recorded, with its first line that differs."""
    found = []
    for name, text in records.items():
        path = RECORDED / name
        if not path.is_file():
            found.append(f"{name}: not recorded; run python -m tests.golden.record_commands")
        elif (recorded := path.read_text(encoding="utf-8")) != text:
            found.append(f"{name}: {_first_difference(recorded, text)}")
    return found


def _first_difference(recorded: str, text: str) -> str:
    before, after = recorded.splitlines(), text.splitlines()
    number = next((at for at, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), None)
    if number is None:
        return f"{len(before)} lines were recorded, now there are {len(after)}"
    return f"line {number + 1} was {before[number]!r}, and is {after[number]!r}"


def write(records: Mapping[str, str]) -> None:
    """Write records as those to compare with."""
    write_files(RECORDED, records)
