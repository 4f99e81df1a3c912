"""A file system (FUSE) that shows the changes of other clients late, as NFS and sshfs do; each mount is one client.

    python -m tests.helpers.delayed_files BACKING MOUNT [--seconds 3] [--fault exclusive|writes]

A client keeps attributes, listings and the absence of a name for so many seconds, and reads a file only up to the size
that it knows, even after it opens the file again (NFS promises to ask the server then, sshfs does not). It sees its own
changes at once, and the server creates a file for one client only. `--fault` breaks such a promise: `exclusive` forgets
new names and creates them again, `writes` shows no written data. Needs root or fusermount3, and the package mfusepy.
"""

from __future__ import annotations

import argparse
import errno
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.helpers.paths import REPOSITORY

START_SECONDS = 30
FAULTS = ("exclusive", "writes")
STATE = ("st_mode", "st_nlink", "st_size", "st_uid", "st_gid", "st_ino", "st_atime_ns", "st_mtime_ns", "st_ctime_ns")


def missing() -> str | None:
    """Return one line that says why there can be no such mount here, None if there can."""
    if importlib.util.find_spec("mfusepy") is None:
        return "mfusepy is not installed (pip install mfusepy)"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse cannot be used"
    return None if shutil.which("fusermount3") else "fusermount3 is not installed (apt-get install fuse3)"


@contextmanager
def delayed_mount(backing: Path, mount: Path, *, seconds: float = 3.0, fault: str | None = None) -> Iterator[Path]:
    """Mount `backing` as one client sees it, and unmount it at the end."""
    command = [sys.executable, "-m", "tests.helpers.delayed_files", str(backing), str(mount), f"--seconds={seconds}"]
    with mounted(mount, [*command, *([f"--fault={fault}"] if fault else [])]):
        yield mount


@contextmanager
def mounted(mount: Path, command: Sequence[str]) -> Iterator[None]:
    """Run the command that mounts a directory; raise RuntimeError if it ends without. Unmount also with open files."""
    mount.mkdir()
    client = subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.DEVNULL)
    try:
        while not mount.is_mount():
            if client.poll():
                raise RuntimeError(f"{mount} was not mounted, code {client.returncode}")
            time.sleep(0.05)
        yield
    finally:
        subprocess.run(["fusermount3", "-u", "-z", str(mount)], check=False, capture_output=True)
        client.kill()
        client.wait()


class Client:
    """One client's view of the files, with the operations that mfusepy calls."""

    use_ns = True

    def __init__(self, backing: Path, seconds: float, fault: str | None):
        self._backing, self._seconds, self._fault = str(backing), seconds, fault
        self._known: dict[tuple[str, str], tuple[float, Any]] = {}
        """Attributes and listings by path, with the times until which they are kept."""
        self._unseen: dict[str, float] = {}

    def getattr(self, path: str, handle: Any = None) -> dict[str, int]:
        if handle is None and time.monotonic() < self._unseen.get(path, 0):
            raise OSError(errno.ENOENT, path)
        status = self._kept("state", path, lambda: _state(self._real(path)))
        if status is None:
            raise OSError(errno.ENOENT, path)
        return {name.removesuffix("_ns"): getattr(status, name) for name in STATE}

    def readdir(self, path: str, handle: Any = None) -> list[str]:
        return [".", "..", *self._kept("names", path, lambda: os.listdir(self._real(path)))]

    def create(self, path: str, mode: int, info: Any) -> int:
        flags = info.flags & ~os.O_EXCL if self._fault == "exclusive" else info.flags
        info.fh = os.open(self._real(path), flags & ~os.O_APPEND | os.O_CREAT, mode)
        self._changed(path)
        if self._fault == "exclusive":
            self._unseen[path] = time.monotonic() + START_SECONDS
        info.direct_io = 1
        return 0

    def open(self, path: str, info: Any) -> int:
        info.fh = os.open(self._real(path), info.flags & ~os.O_APPEND)
        info.direct_io = 1
        return 0

    def read(self, path: str, size: int, offset: int, info: Any) -> bytes:
        end = self.getattr(path)["st_size"]
        return b"" if self._fault == "writes" else os.pread(info.fh, max(0, min(size, end - offset)), offset)

    def write(self, path: str, data: bytes, offset: int, info: Any) -> int:
        written = os.pwrite(info.fh, data, offset)
        self._changed(path)
        return written

    def truncate(self, path: str, length: int, handle: Any = None) -> int:
        os.truncate(self._real(path), length)
        return self._changed(path)

    def fsync(self, path: str, datasync: int, info: Any) -> int:
        return 0

    def flush(self, path: str, info: Any) -> int:
        return 0

    def release(self, path: str, info: Any) -> int:
        os.close(info.fh)
        return 0

    def unlink(self, path: str) -> int:
        os.unlink(self._real(path))
        return self._changed(path)

    def rename(self, old: str, new: str) -> int:
        os.rename(self._real(old), self._real(new))
        self._changed(old)
        return self._changed(new)

    def link(self, target: str, source: str) -> int:
        os.link(self._real(source), self._real(target))
        self._changed(source)
        return self._changed(target)

    def mkdir(self, path: str, mode: int) -> int:
        os.mkdir(self._real(path), mode)
        return self._changed(path)

    def rmdir(self, path: str) -> int:
        os.rmdir(self._real(path))
        return self._changed(path)

    def chmod(self, path: str, mode: int) -> int:
        os.chmod(self._real(path), mode)
        return self._changed(path)

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        os.utime(self._real(path), ns=times) if times else os.utime(self._real(path))
        return self._changed(path)

    def _real(self, path: str) -> str:
        return self._backing + path

    def _kept(self, kind: str, path: str, read: Callable[[], Any]) -> Any:
        now = time.monotonic()
        until, value = self._known.get((kind, path), (0.0, None))
        if now >= until:
            value = read()
            self._known[kind, path] = now + self._seconds, value
        return value

    def _changed(self, path: str) -> int:
        """Forget what is known about a path that this client has changed."""
        for kind, place in (("state", path), ("names", path), ("names", os.path.dirname(path))):
            self._known.pop((kind, place), None)
        return 0


def _state(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def main() -> None:
    """Serve one client until it is unmounted."""
    import mfusepy

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("backing", type=Path)
    parser.add_argument("mount", type=Path)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--fault", choices=FAULTS)
    args = parser.parse_args()
    operations = type("Operations", (Client, mfusepy.Operations), {})
    client = operations(args.backing.resolve(), args.seconds, args.fault)
    timeouts = dict.fromkeys(("attr_timeout", "entry_timeout", "negative_timeout"), 0)
    mfusepy.FUSE(client, str(args.mount), foreground=True, nothreads=True, raw_fi=True, **timeouts)


if __name__ == "__main__":
    main()
