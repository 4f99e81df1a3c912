"""One watch at a time holds the lock on a folder, and the system releases it whatever ends the process."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

import pytest

from longctx.ci.watch import history as lock
from longctx.ci.watch.history import LOCK, locked, open_lock
from tests.helpers.paths import REPOSITORY

HOLD = """
import sys, time
from pathlib import Path
from longctx.ci.watch.history import locked, open_lock
folder = Path(sys.argv[1])
with locked(open_lock(folder), folder, waits=False, show=print) as holds:
    print(holds, flush=True)
    time.sleep(600)
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    """Start a process that holds the lock until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    return process


def test_the_second_one_names_the_holder_and_the_lock_of_a_killed_one_is_free(tmp_path: Path) -> None:
    process = holder(tmp_path / "out")
    try:
        lines: list[str] = []
        with locked(open_lock(tmp_path / "out"), tmp_path / "out", waits=False, show=lines.append) as holds:
            assert not holds
        (line,) = lines
        assert line.startswith(
            f"another watch measures into {tmp_path}/out (process {process.pid} on {platform.node()}, since 20"
        )
        assert line.endswith("; nothing to do here")
    finally:
        process.kill()
        process.wait()
    with locked(open_lock(tmp_path / "out"), tmp_path / "out", waits=False, show=lines.append) as holds:
        assert holds
        assert f"process {os.getpid()} on" in (tmp_path / "out" / LOCK).read_text()
    assert (tmp_path / "out" / LOCK).read_text() == ""
    assert len(lines) == 1


def test_one_that_waits_gets_the_lock_when_the_holder_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "POLL_SECONDS", 0.01)
    process = holder(tmp_path)
    killed: list[float] = []

    def kill() -> None:
        killed.append(time.monotonic())
        os.kill(process.pid, signal.SIGKILL)

    timer = threading.Timer(0.2, kill)
    timer.start()
    lines: list[str] = []
    with locked(open_lock(tmp_path), tmp_path, waits=True, show=lines.append) as holds:
        assert holds
        assert killed
        assert time.monotonic() > killed[0]
    timer.join()
    process.wait()
    assert [line.partition("; ")[2] for line in lines] == ["waiting until it ends"]


def test_a_file_system_without_locks_is_named_and_the_watch_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    lines: list[str] = []
    with locked(open_lock(tmp_path), tmp_path, waits=False, show=lines.append) as holds:
        assert holds
    assert lines == [
        f"the file system of {tmp_path} has no locks (Function not implemented); start only one watch with this --out"
    ]
