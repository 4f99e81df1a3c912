"""pytest finds the suite even if a path option points outside the repository."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.fixtures.installation import SUITE
from longctx.plugins.config.invocation import join_path_options, pytest_command
from longctx.plugins.config.options import PATH_OPTIONS
from longctx.plugins.rootdir import _moves_rootdir
from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import preloaded

WORDS = st.lists(st.sampled_from([*PATH_OPTIONS, "--model=/tmp", "-n", "2", "/tmp", "/nowhere", ".", "-k", "tests"]))


@pytest.mark.parametrize("option", PATH_OPTIONS)
def test_a_path_outside_the_repository_moves_the_root_directory(option: str, tmp_path: Path) -> None:
    assert _moves_rootdir(["-n", "2", option, str(tmp_path), "-k", "vt"], REPOSITORY)
    assert _moves_rootdir([option, str(tmp_path)], REPOSITORY / "tests")
    assert _moves_rootdir([option, ".."], REPOSITORY)
    # The run may create it before its workers start.
    assert _moves_rootdir([option, str(tmp_path / "missing")], REPOSITORY)


@pytest.mark.parametrize("option", PATH_OPTIONS)
def test_other_arguments_leave_the_root_directory_alone(option: str, tmp_path: Path) -> None:
    assert not _moves_rootdir([f"{option}={tmp_path}"], REPOSITORY)
    assert not _moves_rootdir([option, "calibration:4k"], REPOSITORY)
    assert not _moves_rootdir([option, "tests"], REPOSITORY)
    assert not _moves_rootdir([option], REPOSITORY)
    assert not _moves_rootdir(["-k", str(tmp_path)], REPOSITORY)


def test_pytest_runs_outside_the_repository_are_left_alone(tmp_path: Path) -> None:
    assert not _moves_rootdir(["--model", str(tmp_path)], tmp_path)
    assert not _moves_rootdir(["--model", str(tmp_path)], REPOSITORY.parent)


def test_a_path_option_and_its_value_become_one_word() -> None:
    words = ["--model", "/ckpt", "-n", "2", "--data-dir", "/a b", "--thresholds=/t", "-k", "vt"]
    assert join_path_options(words) == ["--model=/ckpt", "-n", "2", "--data-dir=/a b", "--thresholds=/t", "-k", "vt"]
    assert join_path_options(["-n", "2", "--model"]) == ["-n", "2", "--model"]


@settings(deadline=None)
@given(WORDS)
def test_joined_arguments_need_no_second_restart(words: list[str]) -> None:
    """Otherwise pytest would restart for ever."""
    assert not _moves_rootdir(join_path_options(words), REPOSITORY)


def test_pytest_still_takes_the_value_of_an_unknown_option_for_a_test_directory(tmp_path: Path) -> None:
    """If this fails, pytest has changed and plugins/rootdir.py is no longer needed."""
    from _pytest.config.findpaths import determine_setup

    rootdir, *_ = determine_setup(
        inifile=None, override_ini=None, args=[str(tmp_path)], rootdir_cmd_arg=None, invocation_dir=REPOSITORY
    )
    assert rootdir != REPOSITORY


@pytest.mark.whole_loop
def test_workers_find_the_suite_although_the_run_creates_its_journal_first(tmp_path: Path) -> None:
    command = [str(preloaded("pytest")), "--model", "calibration:512", "--lengths", "512", "--samples", "1", "-n", "2"]
    ended = subprocess.run(
        [*command, "--journal", str(tmp_path / "new"), "-k", "niah_single_1", "-p", "no:hypothesispytest"],
        cwd=REPOSITORY, capture_output=True, text=True, check=False, env=environment(),
    )  # fmt: skip
    assert "1 measured" in ended.stdout, ended.stdout + ended.stderr


def environment() -> dict[str, str]:
    """Return the environment without pytest's own variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


@pytest.mark.parametrize("before", [(), ("-n", "2")])
def test_the_short_id_of_a_case_is_that_of_its_test(before: tuple[str, ...]) -> None:
    command = pytest_command([*before, "test_ruler[vt-1k]", "-k", "test_ruler[vt-1k]"])
    assert command[-3:] == [f"{SUITE}/tests_longctx/test_ruler.py::test_ruler[vt-1k]", "-k", "test_ruler[vt-1k]"]
