"""The command of `--serve`: it is known to have ended, and the lines of its output say why."""

import os
import time
from pathlib import Path

import pytest

from longctx.fixtures.engines.openai.endpoint import StartedServer
from longctx.fixtures.engines.openai.server_process import ServeError, ServerProcess

LONG_SECONDS = 60.0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_does_not_hide_that_the_command_has_ended() -> None:
    process = ServerProcess(["sh", "-c", "echo $0", "started"], Path("/dev/full"), grace_seconds=0.1)
    server = StartedServer(process_id=process.process_id, log=str(process.log))
    deadline = time.monotonic() + LONG_SECONDS
    while server.is_running() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not server.is_running()
    process.stop()


@pytest.mark.parametrize(
    ("command", "cause"),
    [
        ("echo 'ValueError: no such model'; echo 'UserWarning: leaked'; exit 1", "(ValueError: no such model)"),
        ("echo loading; exit 1", "(loading)"),
        ("exit 1", "(no output)"),
        # A server that still runs has overcome its error.
        ("echo 'ImportError: no flash kernels'; echo 'loading weights'; sleep 60", "(loading weights)"),
    ],
)
def test_the_output_says_why_a_command_does_not_serve(command: str, cause: str, tmp_path: Path) -> None:
    process = ServerProcess(["sh", "-c", command], tmp_path / "log", grace_seconds=0.1)
    deadline = time.monotonic() + LONG_SECONDS
    while "sleep" in command and "weights" not in process.log.read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(ServeError) as raised:
        process.wait(lambda: False, seconds=0.1 if "sleep" in command else LONG_SECONDS)
    process.stop()
    assert cause in str(raised.value)
