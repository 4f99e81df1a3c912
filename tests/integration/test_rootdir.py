"""pytest finds the suite even if a path option points outside the repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.fixtures.installation import SUITE
from longctx.plugins.config.invocation import join_path_options, pytest_command
from longctx.plugins.config.options import PATH_OPTIONS
from longctx.plugins.rootdir import _moves_rootdir
from tests.helpers.paths import REPOSITORY

WORDS = st.lists(st.sampled_from([*PATH_OPTIONS, "--model=/tmp", "-n", "2", "/tmp", "/nowhere", ".", "-k", "tests"]))


@pytest.mark.parametrize("option", PATH_OPTIONS)
def test_an_existing_path_outside_the_repository_moves_the_root_directory(option: str, tmp_path: Path) -> None:
    assert _moves_rootdir(["-n", "2", option, str(tmp_path), "-k", "vt"], REPOSITORY)
    assert _moves_rootdir([option, str(tmp_path)], REPOSITORY / "tests")
    assert _moves_rootdir([option, ".."], REPOSITORY)


@pytest.mark.parametrize("option", PATH_OPTIONS)
def test_other_arguments_leave_the_root_directory_alone(option: str, tmp_path: Path) -> None:
    assert not _moves_rootdir([f"{option}={tmp_path}"], REPOSITORY)
    assert not _moves_rootdir([option, str(tmp_path / "missing")], REPOSITORY)
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


@pytest.mark.parametrize("before", [(), ("-n", "2")])
def test_the_short_id_of_a_case_is_that_of_its_test(before: tuple[str, ...]) -> None:
    command = pytest_command([*before, "test_ruler[vt-1k]", "-k", "test_ruler[vt-1k]"])
    assert command[-3:] == [f"{SUITE}/tests_longctx/test_ruler.py::test_ruler[vt-1k]", "-k", "test_ruler[vt-1k]"]
