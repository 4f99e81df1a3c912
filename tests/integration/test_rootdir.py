"""pytest finds the suite also where an option names a path outside the clone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.rootdir import HOME, PATH_OPTIONS, joined, leads_astray

WORDS = st.lists(st.sampled_from([*PATH_OPTIONS, "--model=/tmp", "-n", "2", "/tmp", "/nowhere", ".", "-k", "tests"]))


def test_home_is_where_the_suite_is() -> None:
    assert (HOME / "tests_longctx" / "test_ruler.py").is_file()


@pytest.mark.parametrize("option", PATH_OPTIONS)
def test_an_existing_path_outside_leads_astray(option: str, tmp_path: Path) -> None:
    assert leads_astray(["-n", "2", option, str(tmp_path), "-k", "vt"], HOME)
    assert leads_astray([option, str(tmp_path)], HOME / "tests")
    assert leads_astray([option, ".."], HOME)


@pytest.mark.parametrize("option", PATH_OPTIONS)
def test_other_words_do_not(option: str, tmp_path: Path) -> None:
    assert not leads_astray([f"{option}={tmp_path}"], HOME)
    assert not leads_astray([option, str(tmp_path / "missing")], HOME)
    assert not leads_astray([option, "calibration:4k"], HOME)
    assert not leads_astray([option, "tests"], HOME)
    assert not leads_astray([option], HOME)
    assert not leads_astray(["-k", str(tmp_path)], HOME)


def test_pytest_elsewhere_is_left_alone(tmp_path: Path) -> None:
    assert not leads_astray(["--model", str(tmp_path)], tmp_path)
    assert not leads_astray(["--model", str(tmp_path)], HOME.parent)


def test_an_option_and_its_path_become_one_word() -> None:
    given_words = ["--model", "/ckpt", "-n", "2", "--data-dir", "/a b", "--thresholds=/t", "-k", "vt"]
    assert joined(given_words) == ["--model=/ckpt", "-n", "2", "--data-dir=/a b", "--thresholds=/t", "-k", "vt"]
    assert joined(["-n", "2", "--model"]) == ["-n", "2", "--model"]


@settings(deadline=None)
@given(WORDS)
def test_starting_again_is_needed_once_at_most(words: list[str]) -> None:
    """Else pytest would start itself for ever."""
    assert not leads_astray(joined(words), HOME)


def test_pytest_still_takes_a_second_word_for_a_place_of_tests(tmp_path: Path) -> None:
    """The reason for all this; where it fails, plugins/rootdir.py can go."""
    from _pytest.config.findpaths import determine_setup

    rootdir, *_ = determine_setup(
        inifile=None, override_ini=None, args=[str(tmp_path)], rootdir_cmd_arg=None, invocation_dir=HOME
    )
    assert rootdir != HOME
