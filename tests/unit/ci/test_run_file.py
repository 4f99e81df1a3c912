"""`longctx.toml`: its keys are the options of the command line, and every mistake is one line with the remedy."""

from pathlib import Path

import pytest

from longctx.ci.run_file import (
    NAME,
    command_options,
    read_run_file,
    run_options,
    split_config,
)
from longctx.ci.watch.__main__ import _parse
from tests.helpers.paths import REPOSITORY

FILE = """
model = "ckpt"
baseline = "calibration:4k"
suite = "ruler"
lengths = ["4k", 8192]
workers = 2
select = "niah and not -x"
full = true
trust-remote-code = false
thresholds = "gates.toml"
series = 2

[reports]
json = "out/report.json"
junit = "/elsewhere/report.xml"

[watch]
every = "10s"
once = true

[bisect]
good = "runs/a/step-1"
checkpoints = ["runs/a/step-*", "/b/step-*"]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "ckpt").mkdir()
    (tmp_path / NAME).write_text(FILE)
    return tmp_path / NAME


def test_keys_become_options_and_paths_start_at_the_file(path: Path) -> None:
    assert run_options(read_run_file(path)) == [
        f"--model={path.parent}/ckpt", "--baseline=calibration:4k", "--suite=ruler", "--lengths=4k,8192", "-n2",
        "-kniah and not -x", "--full", f"--thresholds={path.parent}/gates.toml", "--series=2",
        f"--report-json={path.parent}/out/report.json", "--junitxml=/elsewhere/report.xml",
    ]  # fmt: skip


def test_a_watch_and_a_bisection_get_their_table_and_what_they_do_not_set_themselves(path: Path) -> None:
    file = read_run_file(path)
    assert run_options(file, "watch") == [
        "--suite=ruler", "--lengths=4k,8192", "-n2", "-kniah and not -x", "--full",
        f"--thresholds={path.parent}/gates.toml",
    ]  # fmt: skip
    assert command_options(file, "watch") == ["--every=10s", "--once"]
    assert command_options(file, "bisect") == [
        f"--good={path.parent}/runs/a/step-1", "--checkpoints", f"{path.parent}/runs/a/step-*", "/b/step-*",
    ]  # fmt: skip


def test_a_watch_takes_its_directory_from_the_command_line_and_the_rest_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / NAME).write_text(
        "model = 'x'\nlengths = '8kb'\nselect = 'a or b'\n[watch]\nevery = '7s'\nonce = true\n"
    )
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("longctx.ci.watch.__main__.check_suite_options", lambda *_: None)
    settings = _parse(["runs", "--every", "3s", "--lengths", "4k"])
    assert (settings.directory, settings.interval_seconds, settings.once) == (tmp_path / "runs", 3, True)
    assert list(settings.runner.options.given) == ["--lengths=8kb", "-ka or b", "--lengths", "4k"]


def test_the_file_of_the_current_directory_is_read_and_named(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(path.parent)
    file, others = split_config(["--lengths", "4k"], "run")
    assert file is not None
    assert (file.path, others) == (path, ["--lengths", "4k"])
    assert capsys.readouterr().out == f"options    {NAME}\n"
    monkeypatch.chdir(REPOSITORY)
    assert split_config(["--", "--lengths", "4k"], "run") == (None, ["--lengths", "4k"])
    file, others = split_config(["-k", "vt", f"--config={path}", "--full"], "run")
    assert file is not None
    assert (file.path, others) == (path, ["-k", "vt", "--full"])
