"""Claims: files that name the workers of the samples of a run, in progress or finished."""

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from longctx.fixtures.atomic_files import write_all
from longctx.plugins.journal.heartbeat import WORKER_NAME, Heartbeat
from longctx.plugins.journal.lines import KEY

CLAIMS = "claims"
MOST_NAME_BYTES = 256
# So many claims of other workers are checked at a time, in turn, for the death of their worker.
CHECKED_CLAIMS = 3


class Claims:
    """One worker's claims on the samples of a subject.

    A claim is a file in `folder/claims`, named by the sample's key, that contains the worker's name. The file system
    creates a file for one process only, so a sample has one worker. A claim stays after its result, which a network
    file system may show late to others; the last worker removes all. If two workers remove the claim of a dead one at
    once, both may answer the sample; all readers choose the same of the two results.
    """

    def __init__(self, folder: Path, heartbeat: Heartbeat, on_lost: Callable[[str, str], None]):
        self.folder = folder / CLAIMS
        self.heartbeat = heartbeat
        self.on_lost = on_lost
        """Called with a sample's key and a worker's name before the claim of a dead worker of this run is removed."""
        self.held: set[str] = set()
        """The keys of the samples in progress that this worker has claimed."""
        self._checked_claims = 0
        heartbeat.when_last.append(self._remove_all)

    def claim_first(self, keys: Sequence[str], at_most: int, has_result: Callable[[str, str], bool]) -> list[str]:
        """Claim the first free samples in order, and those of dead workers, and return their keys.

        `has_result` returns whether the worker with this name has answered the sample with this key. Raises OSError.
        """
        existing = set(os.listdir(self.folder))
        others = [key for key in keys if key in existing and key not in self.held]
        # Each call continues where the last one ended, so that all of them are checked in the course of time.
        start = self._checked_claims % max(1, len(others))
        self._checked_claims = start + CHECKED_CLAIMS
        checked = set([*others[start:], *others[:start]][:CHECKED_CLAIMS])
        claimed: list[str] = []
        for key in keys:
            if len(claimed) >= at_most:
                break
            if key in self.held:
                continue
            is_free = key not in existing or (key in checked and self._free_if_dead(key, has_result))
            if is_free and self.claim(key):
                claimed.append(key)
        return claimed

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

    def release(self, key: str) -> None:
        """Remove this worker's claim; does nothing if it has none."""
        if key not in self.held:
            return
        self.held.discard(key)
        path = self.folder / key
        with contextlib.suppress(OSError):
            # If this worker was suspended for longer than a lease, another one may own the claim now.
            if read_claim(path) in (self.heartbeat.name, None):
                path.unlink()

    def release_all(self) -> None:
        """Remove the claims of this worker on samples in progress, as far as possible."""
        for key in tuple(self.held):
            self.release(key)

    def _free_if_dead(self, key: str, has_result: Callable[[str, str], bool]) -> bool:
        """Remove the claim of a dead worker without a result; returns True if the sample is free now."""
        path = self.folder / key
        try:
            touched = path.stat().st_mtime_ns
            owner = read_claim(path)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        if owner is None:
            # Its worker is still writing its name, or died right after it created the file.
            if not self.heartbeat.is_silent(f"{CLAIMS}/{key}", touched):
                return False
        elif not self.heartbeat.is_dead(owner) or has_result(owner, key):
            return False
        elif self.heartbeat.run_of(owner) == self.heartbeat.run:
            # Whoever finds the sample free must find this death in the journal too.
            self.on_lost(key, owner)
        path.unlink(missing_ok=True)
        return True

    def _remove_all(self) -> None:
        """Remove the claims of all workers, as far as possible, when none of them is left."""
        with contextlib.suppress(OSError):
            for path in self.folder.iterdir():
                if KEY.fullmatch(path.name):
                    path.unlink(missing_ok=True)


def read_claim(path: Path) -> str | None:
    """Return the worker of a claim; None if it has no complete name. Raises OSError."""
    with path.open("rb") as file:
        name, end, _ = file.read(MOST_NAME_BYTES).decode("ascii", errors="replace").partition("\n")
    return name if end and WORKER_NAME.fullmatch(name) else None
