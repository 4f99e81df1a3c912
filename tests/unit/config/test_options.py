"""The table of options: every command treats every option as the table says, and drops none without a word."""

import re
from pathlib import Path
from typing import Any

import pytest

from longctx.ci.bisect.__main__ import _parse as parse_bisect
from longctx.ci.run_file import RunFile, RunFileError, _unused_keys, read_run_file, run_options
from longctx.ci.watch.__main__ import _parse as parse_watch
from longctx.fixtures.tasks.questions.read_tasks import shipped_suites
from longctx.measurement import _arguments as parse_keywords
from longctx.plugins.config.options import OPTIONS, PATHS, RUN_OPTIONS, SUITE_OPTIONS, Caller, Option, declared_by
from longctx.plugins.thresholds.records import SHIPPED
from tests.helpers.paths import REPOSITORY

OF_RUNS = [option for option in RUN_OPTIONS.values() if option.declarer != "command"]
EVERY = pytest.mark.parametrize("option", OF_RUNS, ids=lambda option: option.flag)
# A search has options of its own with these names, which set those of its runs.
OF_A_SEARCH = ("--samples", "--confidence", "--thresholds")


def value_of(option: Option) -> str | None:
    """Return a value that the option takes; None for an option without one."""
    files = {"--thresholds": str(SHIPPED), "--only-samples": "test_ruler[vt-4k]:3"}
    by_kind = {"flag": None, "choice": option.choices[-1:], "number": "0.75", "whole number": "7"}
    value = files.get(option.flag) or by_kind.get(option.kind, "auto")
    return value[0] if isinstance(value, tuple) else value


def words_of(option: Option) -> list[str]:
    value = value_of(option)
    if option.flag == "--tasks":
        value = "vt,niah_single_1"
    if option.flag == "--tasks-file":
        value = str(next((REPOSITORY / "fixtures").rglob("longbench2.toml")))
    return [option.flag] if value is None else [option.flag, value]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("longctx.ci.watch.__main__.check_suite_options", lambda *_: None)
    return tmp_path


@EVERY
def test_a_watch_passes_an_option_on_or_says_what_to_use_instead(option: Option, folder: Path) -> None:
    words = words_of(option)
    if option.watch:
        with pytest.raises(ValueError, match=rf"^{option.flag}: .+; leave it out, {re.escape(option.watch)}$"):
            parse_watch(["runs", *words])
        return
    suite = parse_watch(["runs", *words]).runner.options
    assert suite.checks_engine if option.flag == "--invariance" else list(suite.given) == words


@EVERY
def test_a_search_passes_an_option_on_or_says_what_to_use_instead(option: Option, folder: Path) -> None:
    words = words_of(option)
    endpoints = ["--good", "a-1", "--bad", "a-9"]
    if option.flag in OF_A_SEARCH:
        assert parse_bisect([*endpoints, *words]).suite.options == []
    elif option.bisect:
        with pytest.raises(ValueError, match=rf"^{option.flag}: .+; leave it out, {re.escape(option.bisect)}$"):
            parse_bisect([*endpoints, *words])
    else:
        assert parse_bisect([*endpoints, *words]).suite.options == words


@EVERY
@pytest.mark.parametrize("in_memory", [False, True])
def test_python_passes_an_option_on_or_says_what_to_use_instead(option: Option, in_memory: bool) -> None:
    name = (option.name if option.is_report else option.file_key).replace("-", "_")
    instead = option.instead("in memory" if in_memory else "measure")
    value: Any = True if option.kind == "flag" else value_of(option)
    if instead:
        with pytest.raises(TypeError, match=rf"^{name.replace('_', '-')}: .+ longctx.measure.*; {instead}"):
            parse_keywords("m", {name: value}, in_memory=in_memory)
        return
    parsed = getattr(parse_keywords("m", {name: value}, in_memory=in_memory), option.attribute)
    located = str(Path.cwd() / str(value)) if option.kind == "path" and not str(value).startswith("/") else value
    assert parsed == ([located] if option.repeats else located)


@EVERY
@pytest.mark.parametrize("command", ["run", "watch", "bisect"])
def test_a_file_sets_an_option_or_one_line_names_what_is_used_instead(
    option: Option, command: Caller, tmp_path: Path
) -> None:
    value = value_of(option)
    line = f"{option.file_key} = {'true' if value is None else repr(value)}"
    (tmp_path / "longctx.toml").write_text(f"[{option.table}]\n{line}\n" if option.table else line)
    file = read_run_file(tmp_path / "longctx.toml")
    if option.key is None:
        with pytest.raises(RunFileError, match=f"unknown key '{option.name}'"):
            run_options(file, command)
        return
    words, unused = run_options(file, command), _unused_keys(file, command)
    instead = option.instead(command)
    if not instead:
        assert [word[: len(option.flag)] for word in words] == [option.flag]
        assert unused == ""
    else:
        assert words == []
        assert unused == f"not used   {option.place} ({instead.removeprefix('and ')})"


@EVERY
def test_no_command_lets_its_runs_overwrite_a_file(option: Option) -> None:
    if option.kind in ("file", "folder") and option.writes != "scores":
        assert option.watch
        assert option.bisect
    if option.is_report:
        assert option.bisect
        assert option.measure


def test_other_names_of_an_option_are_refused_too(folder: Path) -> None:
    with pytest.raises(ValueError, match="--junit-xml: not for the runs of a watch; leave it out, use --out"):
        parse_watch(["runs", "--junit-xml=r.xml"])


def test_the_suites_that_come_with_the_project_are_named() -> None:
    (suite,) = (option for option in OPTIONS if option.flag == "--suite")
    assert {name.replace("-", "_") for name in suite.choices} >= {*shipped_suites()}
    assert all(name in suite.problem("else") and name in suite.help for name in suite.choices)


def test_a_flag_has_one_record_for_each_command() -> None:
    declared = [(option.declarer, option.flag) for option in OPTIONS]
    assert len(declared) == len({*declared})
    keys = [(option.table, option.file_key) for option in OPTIONS if option.key is not None]
    assert len(keys) == len({*keys})
    assert [one.flag for one in declared_by("watch") if one.table != "watch"] == []


@pytest.mark.parametrize("flag", [option.flag for option in SUITE_OPTIONS if option.kind in PATHS])
def test_a_path_that_no_file_system_holds_is_refused_before_any_look_at_it(flag: str, tmp_path: Path) -> None:
    file = RunFile(
        path=tmp_path / "longctx.toml", tables={RUN_OPTIONS[flag].table: {RUN_OPTIONS[flag].file_key: "a\0b"}}
    )
    with pytest.raises(RunFileError, match="holds a NUL; write a text without one"):
        run_options(file)
    for path in ("a" * 300, "folder/" + "é" * 130):
        assert "as no file has; give a path" in RUN_OPTIONS[flag].problem(path)
    assert "no file has" not in RUN_OPTIONS[flag].problem(",".join(["b/" + "a" * 200] * 3))


def test_a_value_is_checked_by_its_record() -> None:
    assert RUN_OPTIONS["--seed"].problem("1e3") == "'1e3'; give a whole number of at least 0"
    assert RUN_OPTIONS["--budget"].problem("nan").startswith("'nan'; give a number of minutes")
