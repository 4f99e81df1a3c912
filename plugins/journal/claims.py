"""Claims: who is working on which element. A claim is a file that holds its worker's name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from fixtures.atomic_files import write_all
from plugins.journal.heartbeat import Heartbeat

CLAIMS = "claims"


class Claims:
    """One worker's claims in a subject's directory, and its view of those of others.

    `lost(element)` is called when a claim is broken whose worker died in this run.
    """

    def __init__(self, folder: Path, presence: Heartbeat, lost: Callable[[str], None]):
        self.folder = folder / CLAIMS
        self.presence = presence
        self.lost = lost
        self.held: set[str] = set()

    def listed(self) -> set[str]:
        """The elements that somebody claims at this moment; OSError where that cannot be read."""
        # Claims that are being removed stand here too; a dot in their names tells them from elements.
        return set(os.listdir(self.folder))

    def take(self, element: str) -> bool:
        """Claim a free element; False where another worker was quicker. OSError where it cannot be written."""
        path = self.folder / element
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            return False
        # Held from here on, so that a claim whose name did not fit on the disk is given back.
        self.held.add(element)
        try:
            write_all(descriptor, f"{self.presence.name}\n".encode("ascii"))
        finally:
            os.close(descriptor)
        return True

    def is_free(self, element: str, is_gone: Callable[[str], bool]) -> bool:
        """Whether a listed claim is void; if its worker is gone it is removed."""
        path = self.folder / element
        try:
            owner = owner_of(path)
            touched = path.stat().st_mtime_ns
        except FileNotFoundError:
            return True
        except OSError:
            return False
        # Between creation and its first write a claim has no name; its worker may die there.
        void = self.presence.watch.is_over(f"{CLAIMS}/{element}", touched) if owner is None else is_gone(owner)
        return void and self._remove(path, owner)

    def give_back(self, element: str) -> None:
        """Remove a claim of ours; harmless where there is none, and never another worker's."""
        if element not in self.held:
            return
        self.held.discard(element)
        path = self.folder / element
        with contextlib.suppress(OSError):
            # It is another's if this worker was held up for so long that its claim was broken.
            if owner_of(path) in (self.presence.name, None):
                path.unlink()

    def give_all_back(self) -> None:
        """Remove all claims of ours, as far as that is possible."""
        for element in tuple(self.held):
            self.give_back(element)

    def _remove(self, path: Path, owner: str | None) -> bool:
        """Remove the claim of a worker that is gone, unless it has become another's meanwhile."""
        # Of all who try, only one renames the file.
        aside = path.with_name(f"{path.name}.{self.presence.name}")
        try:
            path.rename(aside)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        try:
            if owner_of(aside) != owner:
                # Another one broke the claim and made its own between our look and our rename.
                with contextlib.suppress(OSError):
                    os.link(aside, path)
                return False
            if owner is not None and self.presence.run_of(owner) == self.presence.run:
                self.lost(path.name)
        finally:
            with contextlib.suppress(OSError):
                aside.unlink()
        return True


def owner_of(path: Path) -> str | None:
    """The worker's name in a claim, None while it is not (wholly) written; OSError without a claim."""
    name = path.read_text(encoding="ascii", errors="replace")
    return name[:-1] if name.endswith("\n") else None
