"""Claims: files that name the workers of samples in progress."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

from fixtures.atomic_files import write_all
from plugins.journal.heartbeat import Heartbeat

CLAIMS = "claims"
MOST_NAME_BYTES = 256


class Claims:
    """One worker's claims on the samples of a subject.

    Claims that this worker holds are files in `folder/claims`, named by the sample's key, that contain the worker's
    name. The file system creates a file for one process only, so a sample has one worker.
    """

    def __init__(self, folder: Path, heartbeat: Heartbeat, on_lost: Callable[[str], None]):
        self.folder = folder / CLAIMS
        self.heartbeat = heartbeat
        self.on_lost = on_lost
        """Called with the sample's key when a worker of this run died and its claim is removed."""
        self.held: set[str] = set()
        """The keys that this worker has claimed."""

    def list_keys(self) -> set[str]:
        """Return the keys of all current claims, of any worker; raises OSError."""
        # A claim that is being removed is in the list too, but its name contains a dot, which no key does.
        return set(os.listdir(self.folder))

    def claim(self, key: str) -> bool:
        """Claim a sample; returns False if another worker was faster. Raises OSError."""
        try:
            descriptor = os.open(self.folder / key, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            return False
        # Even if the name does not fit on the disk, the file is there and must be released.
        self.held.add(key)
        try:
            write_all(descriptor, f"{self.heartbeat.name}\n".encode("ascii"))
        finally:
            os.close(descriptor)
        return True

    def is_lost(self, key: str) -> bool | None:
        """Return True if another worker owns this worker's claim, None if nobody does, and False if all is well.

        Others remove the claim of a worker that was stopped for longer than a lease.
        """
        if key not in self.held:
            return False
        try:
            return read_owner(self.folder / key) not in (self.heartbeat.name, None)
        except FileNotFoundError:
            return None

    def remove_if_dead(self, key: str, is_dead: Callable[[str], bool]) -> bool:
        """Remove the claim of a dead worker; returns True if the sample is free now.

        Raises OSError for a link or directory in the place of a claim that cannot be removed.
        """
        path = self.folder / key
        try:
            status = path.lstat()
        except FileNotFoundError:
            return True
        if not stat.S_ISREG(status.st_mode):
            return _move_aside(path)
        touched = status.st_mtime_ns
        try:
            owner = read_owner(path)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        # A worker that died right after it created the file has left no name.
        dead = self.heartbeat.is_silent(f"{CLAIMS}/{key}", touched) if owner is None else is_dead(owner)
        return dead and self._remove(path, owner)

    def release(self, key: str) -> None:
        """Remove this worker's claim; does nothing if it has none."""
        if key not in self.held:
            return
        self.held.discard(key)
        path = self.folder / key
        with contextlib.suppress(OSError):
            # If this worker was suspended for longer than a lease, another one may own the claim now.
            if read_owner(path) in (self.heartbeat.name, None):
                path.unlink()

    def release_all(self) -> None:
        """Remove all claims of this worker, as far as possible."""
        for key in tuple(self.held):
            self.release(key)

    def _remove(self, path: Path, owner: str | None) -> bool:
        """Remove a dead worker's claim; returns False if another worker owns it now."""
        # Several workers may get here at once, but only one of them can rename the file.
        removed = path.with_name(f"{path.name}.{self.heartbeat.name}")
        try:
            path.rename(removed)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        try:
            if read_owner(removed) != owner:
                # Another worker removed the claim and made its own before the rename: restore that one.
                with contextlib.suppress(OSError):
                    os.link(removed, path)
                return False
            if owner is not None and self.heartbeat.run_of(owner) == self.heartbeat.run:
                self.on_lost(path.name)
        finally:
            with contextlib.suppress(OSError):
                removed.unlink()
        return True


def read_owner(path: Path) -> str | None:
    """Return the worker's name in a claim; None if it is not completely written. Raises OSError without a claim."""
    with path.open("rb") as file:
        name = file.read(MOST_NAME_BYTES).decode("ascii", errors="replace")
    return name[:-1] if name.endswith("\n") else None


def _move_aside(path: Path) -> bool:
    """Remove a link, a directory or the like, which no worker makes, from the place of a claim; raises OSError.

    A directory that is not empty keeps its content under another name.
    """
    aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return True
    with contextlib.suppress(OSError):
        if stat.S_ISDIR(aside.lstat().st_mode):
            aside.rmdir()
        else:
            aside.unlink()
    return True
