"""The server that forks Python processes for tests goes on when a client is killed."""

from __future__ import annotations

import array
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import HELPERS

# The server without the packages to import, which take seconds.
SERVER = """
import sys
from pathlib import Path
from tests.helpers import preloaded_server
preloaded_server.PACKAGES, preloaded_server.SUITE = (), ("longctx.fixtures.lengths",)
preloaded_server.ExitCode().of(preloaded_server.Server(Path(sys.argv[1]), int(sys.argv[2])).serve())
"""
START_SECONDS = 60
UNSUPPORTED = json.dumps({"arguments": ["-V"], "directory": "/", "environment": {}}).encode()
pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the server needs pidfd_open of Linux")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(tmp_path), str(os.getpid())], cwd=REPOSITORY)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def connect(directory: Path) -> socket.socket:
    """Return a connection to a server that may still be starting."""
    connection = socket.socket(socket.AF_UNIX)
    deadline = time.monotonic() + START_SECONDS
    while connection.connect_ex(f"{directory}/socket"):
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.02)
    return connection


@pytest.mark.parametrize(
    ("length", "text"),
    [(None, b""), (len(UNSUPPORTED), UNSUPPORTED[:9]), (len(UNSUPPORTED), UNSUPPORTED)],
    ids=["nothing", "a part", "a request that is refused"],
)
def test_a_client_that_is_killed_does_not_end_the_server(
    length: int | None, text: bytes, server: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    sent = tmp_path / "sent"
    with connect(tmp_path) as killed, sent.open("w") as file:
        if length is not None:
            files = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()] * 3))]
            killed.sendmsg([length.to_bytes(8, "big")], files)
        killed.sendall(text)
    # A client whose server has ended would run `false`, or exit with 70.
    client = [sys.executable, "-I", "-S", str(HELPERS / "preloaded_client.py"), str(tmp_path), "/bin/false"]
    assert subprocess.run([*client, "-c", "raise SystemExit(7)"], check=False).returncode == 7
    assert server.poll() is None
    assert sent not in [path.resolve() for path in Path(f"/proc/{server.pid}/fd").iterdir()]


def test_a_process_gets_the_copy_of_the_suite_that_a_fresh_one_would_import(
    server: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    copy = tmp_path / "copy" / "longctx" / "__init__.py"
    copy.parent.mkdir(parents=True)
    copy.touch()
    connect(tmp_path).close()
    client = [sys.executable, "-I", "-S", str(HELPERS / "preloaded_client.py"), str(tmp_path), "/bin/false"]
    places = [
        subprocess.run(
            [*client, "-c", "import longctx; print(longctx.__file__)"],
            cwd=folder, env=os.environ | {"PYTHONPATH": ""}, capture_output=True, text=True, check=True,
        ).stdout.strip()
        for folder in (REPOSITORY, tmp_path / "copy")
    ]  # fmt: skip
    assert places == [str(REPOSITORY / "longctx" / "__init__.py"), str(copy)]
    assert server.poll() is None
