"""Jobs of a scheduler: the words of --launch, lost jobs, cancellation, and what a user sees of them."""

import json
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.ci import launch
from longctx.ci.launch import _filled, _LaunchedJobs, _read_template
from longctx.ci.suite_process import Cancelled, Ended
from longctx.fixtures.supervisor import job_command

WORDS = st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1), min_size=1, max_size=4)


@settings(deadline=None)
@given(WORDS)
def test_a_command_reaches_the_job_word_by_word_whatever_it_contains(command: list[str]) -> None:
    alone = _filled(_read_template("env -i {command} --name={name}"), command, "longctx-1")
    assert alone == ["env", "-i", *command, "--name=longctx-1"]
    quoted = ("sh --wrap '{command}'", "ssh node '{command}'", 'bash -ec "{command}"')
    for template in (*quoted, "sh --wrap={command}", "sh -c {command}"):
        assert shlex.split(_filled(_read_template(template), command, "n")[-1].removeprefix("--wrap=")) == command
    inside = _filled(_read_template("sh -c 'cd /srv && {command}'"), command, "n")
    assert shlex.split(inside[-1].removeprefix("cd /srv && ")) == command


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("srun --gpus=8", "no {command} in 'srun --gpus=8'; write it where the command belongs"),
        ("", "no {command} in ''"),
        ("sh {command} {gpus}", "unknown field {gpus} in 'sh {command} {gpus}'; use {command} or {name}"),
        ("sh '{command}", "no closing quotation; close every quote"),
        ("no-such-program {command}", "no program 'no-such-program' on this machine"),
    ],
)
def test_a_template_that_cannot_be_used_is_one_line(template: str, line: str) -> None:
    with pytest.raises(ValueError, match=r"^--launch: ") as error:
        _read_template(template)
    assert line in str(error.value)
    assert "\n" not in str(error.value)


def scheduler(folder: Path, script: str) -> str:
    """Write a shell script that stands for a scheduler, and return the template that calls it."""
    path = folder / "scheduler"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return f"{path} {{command}}"


def execute(folder: Path, template: str, command: list[str], lines: list[str] | None = None) -> Ended:
    shown: list[str] = [] if lines is None else lines
    jobs = _LaunchedJobs(template=_read_template(template), show=shown.append, cancelled=threading.Event())
    return jobs.execute(command, report=folder / "step-1.json", environment=None)


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "LAUNCH_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(launch, "VISIBLE_SECONDS", 0.3)


def test_the_exit_code_is_that_of_the_command_whatever_the_scheduler_returns(tmp_path: Path) -> None:
    template = scheduler(tmp_path, 'echo queued; "$@"; exit 1')
    command = ["sh", "-c", 'echo out; echo "$0"; exit 5', "it's $HOME; *"]
    assert execute(tmp_path, template, command) == Ended(exit_code=5)
    assert (tmp_path / "step-1.log").read_text() == "out\nit's $HOME; *\n"
    assert (tmp_path / "step-1.launch.log").read_text() == "queued\n"
    assert [path.name for path in tmp_path.glob(".*")] == []


@pytest.mark.usefixtures("no_pauses")
def test_a_job_that_is_lost_is_launched_again(tmp_path: Path) -> None:
    """Lose a job before it begins, lose one with its machine, and have one preempted; then let one end."""
    count, began = tmp_path / "count", tmp_path / "began"
    script = f"""
        echo x >> {count}
        case $(wc -l < {count}) in
            1) echo "no such partition"; exit 1;;
            2) "$@" & while [ ! -e {began} ]; do sleep 0.05; done; rm {began}; kill -KILL $!; exit 137;;
            3) "$@" & while [ ! -e {began} ]; do sleep 0.05; done; kill $!; wait $!; exit $?;;
        esac
        "$@"
    """
    # The second and the third job end only when they are killed.
    command = ["sh", "-c", f"touch {began}; [ $(wc -l < {count}) = 4 ] || exec sleep 60; sleep 1; exit 1"]
    lines: list[str] = []
    assert execute(tmp_path, scheduler(tmp_path, script), command, lines) == Ended(exit_code=1)
    lost = [line for line in lines if "launching it again" in line]
    assert lost[0] == "step-1: the job did not begin, code 1: no such partition; launching it again (1 of 5)"
    assert ["was lost" in line for line in lost] == [False, True, False]
    assert ["was stopped, code 143" in line for line in lost] == [False, False, True]
    assert any("running on " in line for line in lines)


@pytest.mark.usefixtures("no_pauses")
def test_a_job_that_never_begins_is_launched_a_bounded_number_of_times(tmp_path: Path) -> None:
    count = tmp_path / "count"
    ended = execute(tmp_path, scheduler(tmp_path, f"echo x >> {count}; echo rejected; exit 1"), ["true"])
    assert ended == Ended(exit_code=1, reason="--launch: the job did not begin, code 1: rejected")
    assert len(count.read_text().split()) == 6


@pytest.mark.usefixtures("no_pauses")
def test_a_command_that_does_not_wait_is_named_and_its_job_does_nothing(tmp_path: Path) -> None:
    submit = scheduler(tmp_path, f'echo "$@" > {tmp_path}/submitted; echo Submitted 7')
    ended = execute(tmp_path, submit, ["touch", str(tmp_path / "made")])
    assert "must wait for the job's end, as in 'sbatch --wait'" in ended.reason
    assert "(last line: Submitted 7)" in ended.reason
    launched_job = (tmp_path / "submitted").read_text().split()
    later = subprocess.run(launched_job, stderr=subprocess.PIPE, check=False)
    assert b"the job was cancelled, or this machine does not see that directory" in later.stderr
    assert not (tmp_path / "made").exists()


def test_cancelling_ends_the_job_even_if_the_scheduler_passes_no_signal_on(tmp_path: Path) -> None:
    """Detach the job, as a batch system does: it must see by itself that its file is gone."""
    template = scheduler(tmp_path, 'setsid "$@" & sleep 60')
    cancelled, begun, ended = threading.Event(), tmp_path / "begun", tmp_path / "ended"

    def cancel(_: str) -> None:
        deadline = time.monotonic() + 60
        while not begun.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        cancelled.set()

    jobs = _LaunchedJobs(template=_read_template(template), show=cancel, cancelled=cancelled)
    program = (
        f"import time, pathlib\ntry: pathlib.Path({str(begun)!r}).touch(); time.sleep(60)\n"
        f"finally: pathlib.Path({str(ended)!r}).touch()"
    )
    with pytest.raises(Cancelled):
        jobs.execute(
            [sys.executable, "-S", "-c", program],
            report=tmp_path / "r.json", environment=None,
        )  # fmt: skip
    deadline = time.monotonic() + 60
    while not ended.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert ended.exists()


def test_a_job_of_an_earlier_launch_does_nothing(tmp_path: Path) -> None:
    job_file, made = tmp_path / "job", tmp_path / "made"
    job = {"id": "new", "directory": str(tmp_path), "log": str(tmp_path / "log"), "command": ["touch", str(made)]}
    job_file.write_text(json.dumps(job))
    old, new = (
        subprocess.run(job_command(str(job_file), name), stderr=subprocess.PIPE, check=False) for name in ("old", "new")
    )
    assert old.returncode == 75
    assert b"the job was cancelled" in old.stderr
    assert (new.returncode, made.exists()) == (0, True)
    assert json.loads((tmp_path / "job.new").read_text())["state"] == "ended"
    assert not (tmp_path / "job.old").exists()
