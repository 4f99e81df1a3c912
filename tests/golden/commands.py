"""Golden recordings of what a user sees: the commands, and the normal form of their outputs.

A record of wrong uses is the list of its commands, too: a new one is a line `$ longctx ...`, with the file that it
reads below it, and `python -m tests.golden.record_commands` adds what comes of it.
"""

import os
import platform
import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from longctx.cli import COMMANDS
from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import preloaded
from tests.helpers.runs import UNRELATED_PLUGINS

RECORDED = Path(__file__).parent / "recorded" / "commands"
GROUPS = tuple(sorted(path.stem for path in (RECORDED / "errors").iterdir()))
SUITE_GROUP = re.compile(r"^long-context evaluation:\n(?:(?: .*)?\n)*", re.MULTILINE)
ENVIRONMENT = {
    "COLUMNS": "80", "CUDA_VISIBLE_DEVICES": "", "NO_COLOR": "1", "TERM": "dumb",
    "PYTEST_ADDOPTS": shlex.join(UNRELATED_PLUGINS),
}  # fmt: skip
SECONDS_FOR_A_COMMAND = 1200
HELP = {
    "longctx": "longctx --help",
    **{name: f"longctx {name} --help" for name in COMMANDS},
    "pytest": f"pytest --help -c {REPOSITORY}/pyproject.toml --rootdir {REPOSITORY} {REPOSITORY}/tests_longctx",
    **{f"completion {shell}": f"longctx completion {shell}" for shell in ("bash", "fish", "zsh")},
    "tasks listed": "longctx tasks",
}
OWN_QUESTIONS = """[[dataset]]
name = "rooms"
version = 1
category = "lookup"
source = {file = "rooms.jsonl"}
fields = {context = "doc", question = "q", references = "a"}
prompt = {text = "{context}\\n{question}", lead_in = " Color:"}
budget = 10
metric = {name = "f1"}
"""
ROOMS = "".join(
    f'{{"doc": "Room {number} is painted {color}.", "q": "Which color has room {number}?", "a": "{color}"}}\n'
    for number, color in enumerate(("red", "green", "blue", "white"))
)
# What stands in the directory of every wrong use.
EVERYWHERE = {
    **dict.fromkeys(("empty/", "runs/", "step-1/", "step-5/"), ""),
    "occupied": "a file, where a directory is wanted\n",
    "broken/config.json": '{"model_type": "llama", ', "broken/model.safetensors": "no weights",
    "own.toml": OWN_QUESTIONS, "rooms.jsonl": ROOMS,
}  # fmt: skip
# The program `measure` of the records.
MEASURE = """
import json, sys, longctx
try:
    longctx.measure(sys.argv[1], **json.loads(sys.argv[2]))
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


@dataclass(frozen=True, slots=True)
class WrongUse:
    """A command with a mistake, as its record has it."""

    command: str
    shown: str
    """The name of the file with the mistake, if it is in one."""
    content: str


def help_records(folder: Path) -> dict[str, str]:
    """Return the records of all help texts by path."""
    records = {}
    for name, text in HELP.items():
        ended = run(text, folder)
        found = SUITE_GROUP.search(ended.stdout) if name == "pytest" else None
        records[f"help/{name}.txt"] = found[0] if found else block(WrongUse(text, "", ""), ended, folder)
    return records


def error_records(group: str, folder: Path) -> dict[str, str]:
    """Return the record of one group of wrong uses by path; each runs in a directory of its own."""
    path = f"errors/{group}.txt"
    blocks = []
    for number, wrong_use in enumerate(wrong_uses((RECORDED / path).read_text(encoding="utf-8"))):
        directory = folder / str(number)
        write_files(directory, EVERYWHERE)
        if wrong_use.shown:
            write_files(directory, {wrong_use.shown: wrong_use.content})
        blocks.append(block(wrong_use, run(wrong_use.command, directory), folder))
    return {path: "\n".join(blocks)}


def wrong_uses(record: str) -> list[WrongUse]:
    """Return the commands of a record, with the files that it shows."""
    found = []
    for text in record.split("\n\n"):
        command, *lines = text.splitlines()
        shown = lines[0].removesuffix(":") if lines and lines[0].endswith(":") else ""
        content = "\n".join(line[2:] for line in lines if line.startswith("> "))
        found.append(WrongUse(command.removeprefix("$ "), shown, content))
    return found


def run(text: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a command, written as for a shell, to its end."""
    program, *words = shlex.split(text)
    if program == "measure":
        program, words = "python", ["-c", MEASURE, *words]
    return subprocess.run(
        [str(preloaded(program)), *words], cwd=directory, env=environment(), capture_output=True, check=False,
        stdin=subprocess.DEVNULL, timeout=SECONDS_FOR_A_COMMAND, encoding="utf-8", errors="backslashreplace",
    )  # fmt: skip


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


def block(wrong_use: WrongUse, ended: subprocess.CompletedProcess[str], folder: Path) -> str:
    """Return the record of one command: its words, the file with the mistake, its exit code and its outputs."""
    lines = [f"$ {wrong_use.command}"]
    if wrong_use.shown:
        lines += [f"{wrong_use.shown}:", *(f"> {line}" for line in wrong_use.content.splitlines())]
    lines.append(f"exit {ended.returncode}")
    for name, output in (("out", ended.stdout), ("err", ended.stderr)):
        lines += [f"{name}| {line}".rstrip(" ") for line in normal(output, folder).splitlines()]
    return "\n".join(lines) + "\n"


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
