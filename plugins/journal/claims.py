"""Claims: files that name the workers of samples in progress, and of samples that were finished lately."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from longctx.fixtures.atomic_files import write_all
from longctx.plugins.journal.file_system import NAME_EXISTS, POLL_SECONDS, VISIBLE_SECONDS
from longctx.plugins.journal.heartbeat import Heartbeat

CLAIMS = "claims"
MOST_NAME_BYTES = 256
FINISHED = "finished"
# A claim stays for this time after its result. So a worker whose view of the journal is younger than half of it cannot
# claim a sample whose result it has not seen, if a file system shows new lines within the other half.
FINISHED_SECONDS = 600.0
# So many claims of other workers are checked at a time for the death of their worker, in turn: while other samples are
# free, and when none is.
CHECKED_CLAIMS = 2
CHECKED_CLAIMS_AT_END = 16


class _ClaimContent(NamedTuple):
    """The content of a claim's file."""

    owner: str | None
    """The worker's name; None if it is not completely written."""
    is_finished: bool
    """True if the worker has written a result."""


class Claims:
    """One worker's claims on the samples of a subject.

    Claims that this worker holds are files in `folder/claims`, named by the sample's key, that contain the worker's
    name. The file system creates a file for one process only, so a sample has one worker. A claim outlives its result
    by FINISHED_SECONDS, so that nobody needs to read the results of all workers to learn that a sample is free.
    """

    def __init__(self, folder: Path, heartbeat: Heartbeat, on_lost: Callable[[str, str], None]):
        self.folder = folder / CLAIMS
        self.heartbeat = heartbeat
        self.on_lost = on_lost
        """Called with a sample's key and a worker's name before the claim of a dead worker of this run is removed."""
        self.held: set[str] = set()
        """The keys of the samples in progress that this worker has claimed."""
        self._finished: deque[tuple[float, str]] = deque()
        """The keys of finished samples whose claims are still there, with the times of their results."""
        self._checked_claims = 0
        heartbeat.when_last.append(self.remove_finished)

    def list_keys(self) -> set[str]:
        """Return the keys of all current claims, of any worker; raises OSError."""
        # A claim that is being removed is in the list too, but its name contains a dot, which no key does.
        return set(os.listdir(self.folder))

    def free_keys(self, keys: Sequence[str], has_result: Callable[[str, str], bool]) -> Iterator[str]:
        """Return the keys without a claim and those, out of a few others, whose worker has died.

        For `has_result` see `remove_if_dead`. Raises OSError.
        """
        claimed = self.list_keys()
        is_dead = functools.cache(self.heartbeat.is_dead)
        wanted = [key for key in keys if key not in self.held]
        others = [key for key in wanted if key in claimed]
        # Each call continues where the last one ended, so that all of them are checked in the course of time.
        count = CHECKED_CLAIMS if len(others) < len(wanted) else CHECKED_CLAIMS_AT_END
        start = self._checked_claims % max(1, len(others))
        self._checked_claims = start + count
        checked = set([*others[start:], *others[:start]][:count])
        return (
            key
            for key in wanted
            if key not in self.held
            and (key not in claimed or (key in checked and self.remove_if_dead(key, is_dead, has_result)))
        )

    def claim(self, key: str) -> bool:
        """Claim a sample; returns False if another worker was faster. Raises OSError."""
        try:
            descriptor = os.open(self.folder / key, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            return False
        except PermissionError as error:
            if _created_elsewhere(self.folder / key, error):
                return False
            raise
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
            return read_claim(self.folder / key).owner not in (self.heartbeat.name, None)
        except FileNotFoundError:
            return None

    def remove_if_dead(self, key: str, is_dead: Callable[[str], bool], has_result: Callable[[str, str], bool]) -> bool:
        """Remove the claim of a dead worker; returns True if the sample is free now.

        `has_result` returns whether the worker with this name has answered the sample with this key. Raises OSError for
        a link or directory in the place of a claim that cannot be removed.
        """
        path = self.folder / key
        try:
            status = path.lstat()
        except FileNotFoundError:
            return True
        if not stat.S_ISREG(status.st_mode):
            return _move_aside(path)
        try:
            owner, is_finished = read_claim(path)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        if owner is not None and (not is_dead(owner) or has_result(owner, key)):
            return False
        # A worker that died right after it created the file has left no name. A finished sample has a result, which the
        # file system may not show yet, or which was deleted.
        waits = owner is None or is_finished
        if waits and not self.heartbeat.is_silent(f"{CLAIMS}/{key}", status.st_mtime_ns):
            return False
        return self._remove(path, owner)

    def finish(self, key: str) -> None:
        """Mark this worker's claim as one with a result; does nothing if it has none."""
        if key not in self.held:
            return
        self.held.discard(key)
        self._finished.append((self.heartbeat.lease.clock(), key))
        # Without the mark, the claim of a dead worker is checked against its results, which may not be visible yet.
        with contextlib.suppress(OSError):
            descriptor = os.open(self.folder / key, os.O_WRONLY | os.O_APPEND)
            try:
                write_all(descriptor, f"{FINISHED}\n".encode("ascii"))
            finally:
                os.close(descriptor)

    def remove_expired(self) -> None:
        """Remove this worker's claims whose results all others have seen."""
        now = self.heartbeat.lease.clock()
        while self._finished and now - self._finished[0][0] >= FINISHED_SECONDS:
            self._remove_own(self._finished.popleft()[1])

    def remove_finished(self) -> None:
        """Remove the claims of all finished samples, of any worker, when no worker is left that could claim them."""
        with contextlib.suppress(OSError):
            for key in self.list_keys():
                with contextlib.suppress(OSError):
                    if read_claim(self.folder / key).is_finished:
                        (self.folder / key).unlink()

    def release(self, key: str) -> None:
        """Remove this worker's claim; does nothing if it has none."""
        if key not in self.held:
            return
        self.held.discard(key)
        self._remove_own(key)

    def release_all(self) -> None:
        """Remove the claims of this worker on samples in progress, as far as possible."""
        for key in tuple(self.held):
            self.release(key)

    def _remove_own(self, key: str) -> None:
        path = self.folder / key
        with contextlib.suppress(OSError):
            # If this worker was suspended for longer than a lease, another one may own the claim now.
            if read_claim(path).owner in (self.heartbeat.name, None):
                path.unlink()

    def _remove(self, path: Path, owner: str | None) -> bool:
        """Remove a dead worker's claim; returns False if another worker owns it now."""
        if owner is not None and self.heartbeat.run_of(owner) == self.heartbeat.run:
            # Whoever finds the sample free must find this death in the journal too.
            self.on_lost(path.name, owner)
        # Several workers may get here at once, but only one of them can rename the file.
        removed = path.with_name(f"{path.name}.{self.heartbeat.name}")
        try:
            path.rename(removed)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        try:
            if read_claim(removed).owner != owner:
                # Another worker removed the claim and made its own before the rename: restore that one.
                with contextlib.suppress(OSError):
                    os.link(removed, path)
                return False
        finally:
            with contextlib.suppress(OSError):
                removed.unlink()
        return True


def read_claim(path: Path) -> _ClaimContent:
    """Return the content of a claim; raises OSError if there is none."""
    with path.open("rb") as file:
        name, end, mark = file.read(MOST_NAME_BYTES).decode("ascii", errors="replace").partition("\n")
    return _ClaimContent(owner=name if end else None, is_finished=mark == f"{FINISHED}\n")


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


def _created_elsewhere(path: Path, error: OSError) -> bool:
    """Return True if a file could not be created because another machine has just created it."""
    if error.errno not in NAME_EXISTS:
        return False
    deadline = time.monotonic() + VISIBLE_SECONDS
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return path.exists()
