"""Programs accept every command of the README and the pages, and the files and headings that these name exist."""

import argparse
import importlib
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest

from longctx.ci.run_file import command_options, read_run_file, run_options
from longctx.cli import COMMANDS as COMMANDS_OF_LONGCTX
from longctx.cli import HELP, VERSION
from longctx.fixtures.lengths import parse_length
from longctx.plugins.config.options import RUN_OPTIONS, declared_by
from longctx.plugins.config.resolve import check_values
from tests.docs import option_tables
from tests.helpers.page_commands import PAGES, page_commands, suite_commands, words
from tests.helpers.paths import REPOSITORY

README = REPOSITORY / "README.md"
AcceptsArguments = Callable[[Sequence[str]], None]
TOP = ("ci", "fixtures", "plugins", "docs", "tests", "tests_longctx", "benchmarks")
# Programs that pass unknown options on to pytest.
PASSING_ON = ("bisect", "compare", "watch")
# Commands of `longctx` that are pytest with other words.
RUNS = ("run", "plan", "preflight")
# Files that a page tells its reader to create.
CREATED = re.compile(r"fixtures/tasks/(own|<)|tests_longctx/test_own")


COMMANDS = [
    pytest.param(line, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, line in enumerate(
        line for command in page_commands() if command.page == page.name for line in suite_commands(command.text)
    )
]


class ArgumentsParsed(BaseException):
    """Raised instead of running a program once its arguments are parsed.

    It is no Exception, so that programs cannot catch it by accident.
    """

    def __init__(self, unknown: Sequence[str]):
        super().__init__()
        self.unknown = unknown
        """The arguments that the program does not know."""


@pytest.fixture
def accepted_by_pytest(pytestconfig: pytest.Config) -> AcceptsArguments:
    """A function that parses arguments with all options of pytest and of this suite, and fails on an unknown one."""

    def check(arguments: Sequence[str]) -> None:
        # Only this parser knows the options of all plugins, and pytest has no public access to it.
        parsed, unknown = pytestconfig._parser.parse_known_and_unknown_args(list(arguments))
        assert unknown == []
        # The page on adding a task adds a suite named `own`.
        parsed.suite = None if parsed.suite == "own" else parsed.suite
        check_values(parsed)
        for length in (parsed.lengths or "4k").split(","):
            parse_length(length)
        for target in parsed.file_or_dir:
            assert (REPOSITORY / target.partition("::")[0]).exists()
        assert (
            parsed.thresholds is None or parsed.thresholds == "own.toml" or (REPOSITORY / parsed.thresholds).is_file()
        )

    return check


@pytest.mark.parametrize("command", COMMANDS)
def test_a_program_accepts_its_command(
    command: str, accepted_by_pytest: AcceptsArguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, *arguments = words(command)
    if program == "pytest":
        accepted_by_pytest(arguments)
    elif program == "longctx":
        accepted_by_longctx(arguments[0], arguments[1:], accepted_by_pytest, monkeypatch)
    elif arguments[:2] != ["-m", "venv"]:
        assert arguments[0] == "-m"
        assert unknown_arguments(arguments[1], arguments[2:], monkeypatch) == []


def accepted_by_longctx(
    name: str, arguments: Sequence[str], accepted_by_pytest: AcceptsArguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fail on a subcommand or an option that does not exist; a subcommand without arguments is only named."""
    if name in (*HELP, *VERSION):
        return
    subcommand = COMMANDS_OF_LONGCTX[name]
    if name in RUNS:
        accepted_by_pytest(arguments)
    elif arguments:
        unknown = unknown_arguments(f"longctx.{subcommand.module}", [*subcommand.first, *arguments], monkeypatch)
        if name in PASSING_ON:
            accepted_by_pytest(unknown)
        else:
            assert unknown == []


def unknown_arguments(module: str, arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> Sequence[str]:
    """Return the arguments that a program's module does not know; the program stops after parsing."""
    real = argparse.ArgumentParser.parse_known_args

    def parse_and_stop(self: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> Any:
        raise ArgumentsParsed(real(self, args, namespace)[1])

    with monkeypatch.context() as patched:
        patched.setattr(argparse.ArgumentParser, "parse_known_args", parse_and_stop)
        patched.setattr(sys, "argv", [module, *arguments])
        with pytest.raises(ArgumentsParsed) as parsed_arguments:
            entry_point(module).main()
    return parsed_arguments.value.unknown


def entry_point(name: str) -> ModuleType:
    module = importlib.import_module(name)
    return importlib.import_module(f"{name}.__main__") if hasattr(module, "__path__") else module


TARGETS = sorted({
    target for page in PAGES for target in re.findall(r"(?:^ {4}|`)make ([\w./]+)", page.read_text(), re.MULTILINE)
})  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
def test_make_has_every_target_of_a_page(target: str) -> None:
    assert {"demo", "check", "test"} <= set(TARGETS)
    made = subprocess.run(["make", "--dry-run", target], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr


def test_the_tables_of_the_page_of_options_are_made_from_the_table_of_options() -> None:
    assert option_tables.PAGE.read_text(encoding="utf-8") == option_tables.current(), "run " + option_tables.COMMAND


def test_the_page_of_options_names_every_option() -> None:
    rows = re.findall(r"^\| `(-[\w-]+)` \|", option_tables.current().partition("## Exit codes")[0], re.MULTILINE)
    assert sorted(rows) == sorted(option.flag for option in (*declared_by("suite"), RUN_OPTIONS["--junitxml"]))


@pytest.mark.parametrize(("page", "command"), [("watch.md", "watch"), ("bisect.md", "bisect")])
def test_the_page_of_a_command_names_its_options(page: str, command: Literal["watch", "bisect"]) -> None:
    text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
    assert [option.flag for option in declared_by(command) if f"{option.flag} " not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = {link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link}
    assert sorted(link for link in links if not (page.parent / link).exists()) == []
    named = {name.rstrip("/.,") for name in re.findall(rf"`((?:{'|'.join(TOP)})/[\w./<>-]*)`", text)}
    assert sorted(name for name in named if not CREATED.match(name) and not (REPOSITORY / name).exists()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_link_to_a_heading_has_its_heading(page: Path) -> None:
    for target, heading in re.findall(r"\]\(([^)\s#]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
        text = (page.parent / target if target else page).read_text(encoding="utf-8")
        headings = [re.sub(r"[^\w -]", "", line.lstrip("# ")).lower().replace(" ", "-")
                    for line in text.splitlines() if line.startswith("#")]  # fmt: skip
        assert heading in headings


def test_the_file_that_the_page_shows_describes_a_run(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "command.md").read_text(encoding="utf-8")
    block = page.partition("## Describe a run in a file")[2].partition("    model = ")[2].partition("\nPaths start")[0]
    (tmp_path / "longctx.toml").write_text(re.sub(r"^    ", "", f"    model = {block}", flags=re.MULTILINE))
    file = read_run_file(tmp_path / "longctx.toml")
    assert len(run_options(file)) == 8
    assert command_options(file, "watch")[-1] == "--every=30s"
    assert command_options(file, "bisect")[-1] == f"{tmp_path}/runs/a/step-*"
