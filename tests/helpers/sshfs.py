"""sshfs over the loopback address: an sshd of the tests' own, and any number of clients that mount one directory."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.helpers.delayed_files import START_SECONDS, mounted

PROGRAMS = ("sshfs", "fusermount3", "ssh-keygen", "/usr/sbin/sshd")
CONFIGURATION = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
PermitRootLogin yes
UsePAM no
PidFile none
Subsystem sftp internal-sftp
"""
# The longest times that sshfs has by default, for all kinds of knowledge.
CACHES = "attr_timeout=5,entry_timeout=5,dcache_timeout=20"


def missing() -> str | None:
    """Return one line that says why there can be no such mount here, None if there can."""
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "sshfs over the loopback address needs root and /dev/fuse"
    programs = [program for program in PROGRAMS if shutil.which(program) is None]
    return f"{programs[0]} is not installed (apt-get install sshfs openssh-server)" if programs else None


class Server:
    """An sshd that accepts the key in its folder."""

    def __init__(self, folder: Path, port: int):
        self.folder, self.port = folder, port

    @contextmanager
    def mount(self, directory: Path, mount: Path) -> Iterator[Path]:
        """Mount a directory as a client of its own, and unmount it at the end."""
        options = f"IdentityFile={self.folder}/user,StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null,{CACHES}"
        command = ["sshfs", "-f", "-p", str(self.port), "-o", options, f"root@127.0.0.1:{directory}", str(mount)]
        with mounted(mount, command):
            yield mount


@contextmanager
def sshd(folder: Path) -> Iterator[Server]:
    """Run an sshd on a free port of the loopback address; it ends with the block."""
    folder.mkdir(mode=0o700)
    Path("/run/sshd").mkdir(exist_ok=True)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "sshd_config").write_text(CONFIGURATION.format(folder=folder, port=port))
    server = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", folder / "sshd_config"], stderr=subprocess.DEVNULL)
    try:
        _await_port(port)
        yield Server(folder, port)
    finally:
        server.terminate()
        server.wait()


def _await_port(port: int) -> None:
    deadline = time.monotonic() + 4 * START_SECONDS
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"sshd does not listen on port {port}")
