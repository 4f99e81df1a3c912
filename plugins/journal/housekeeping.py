"""What a journal holds, and what of it can go."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from plugins.journal.claims import CLAIMS, owner_of
from plugins.journal.heartbeat import NAME, WORKERS, is_silent, worker_file
from plugins.journal.lines import ELEMENT, Subject, decode_subject
from plugins.journal.reading import SUFFIX, Reading
from plugins.journal.store import SUBJECT

# A worker of another machine counts as gone when not heard of for so long: clocks are less apart.
SILENT_SECONDS = 3600.0
PRUNED = ".pruned-"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectDirectory:
    """One subject's directory as it is now. `busy`: a living worker holds a claim or has a file in it.
    `foreign`: it holds something that is not ours."""

    folder: Path
    subject: Subject
    cases: int
    samples: int
    size_bytes: int
    idle_seconds: float
    busy: bool
    foreign: bool


def is_journal(directory: Path) -> bool:
    """Whether workers or subjects were ever kept here."""
    return (directory / WORKERS).is_dir() or any(_folders(directory))


def shelves(directory: Path) -> list[SubjectDirectory]:
    """All subjects, the one written last first. OSError and JournalError where they cannot be read."""
    found = (_shelf(directory, folder, subject) for folder, subject in _folders(directory))
    return sorted(found, key=lambda shelf: (shelf.idle_seconds, shelf.folder.name))


def is_busy(directory: Path, folder: Path) -> bool:
    """Whether somebody lives who claims something in a subject's directory or has written to it."""
    writers = (file.stem for file in folder.glob(f"*{SUFFIX}"))
    if any(_lives(directory, name) for name in writers):
        return True
    for claim in (folder / CLAIMS).glob("*"):
        with contextlib.suppress(FileNotFoundError):
            owner = owner_of(claim)
            if _lives(directory, owner) if owner else time.time() - claim.stat().st_mtime < SILENT_SECONDS:
                return True
    return False


def delete(directory: Path, folder: Path) -> bool:
    """Delete a subject that is neither busy nor foreign; False where a worker came to it meanwhile."""
    aside = folder
    if not folder.name.startswith(PRUNED):
        # Whoever begins now makes a new directory; whoever began before is seen in this one.
        aside = folder.with_name(f"{PRUNED}{secrets.token_hex(4)}")
        folder.rename(aside)
        if is_busy(directory, aside):
            with contextlib.suppress(OSError):
                aside.rename(folder)
            return False
    for file in (*aside.glob(f"{CLAIMS}/*"), *(file for file in aside.iterdir() if file.is_file())):
        # What tells the directory from a stranger's goes last.
        if file.name != SUBJECT:
            file.unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        (aside / CLAIMS).rmdir()
    (aside / SUBJECT).unlink()
    aside.rmdir()
    return True


def left_over(directory: Path) -> list[Path]:
    """Files of workers that are gone, and of writes that never ended."""
    found = (directory / WORKERS).glob("*.json*") if (directory / WORKERS).is_dir() else ()
    ours = (file for file in found if NAME.fullmatch(file.name.lstrip(".").partition(".json")[0]))
    return [file for file in sorted(ours) if file.is_file() and is_silent(file, SILENT_SECONDS)]


def _folders(directory: Path) -> Iterator[tuple[Path, Subject]]:
    """The directories that are certainly ours: named after the subject that they describe."""
    for folder in sorted(directory.iterdir()):
        if folder.is_symlink() or not folder.is_dir():
            continue
        with contextlib.suppress(FileNotFoundError):
            subject = decode_subject((folder / SUBJECT).read_bytes())
            if subject is not None and (folder.name == subject.key or folder.name.startswith(PRUNED)):
                yield folder, subject


def _shelf(directory: Path, folder: Path, subject: Subject) -> SubjectDirectory:
    reading = Reading(folder, run=None, own=None)
    reading.refresh(thorough=False)
    files = [file.stat() for file in folder.iterdir() if file.is_file()]
    return SubjectDirectory(
        folder=folder,
        subject=subject,
        cases=len({entry.case for entry in reading.entries.values()}),
        samples=len(reading.entries),
        size_bytes=sum(file.st_size for file in files),
        idle_seconds=max(0.0, time.time() - max(file.st_mtime for file in files)),
        busy=is_busy(directory, folder),
        foreign=not all(map(_is_ours, (*folder.iterdir(), *(folder / CLAIMS).glob("*")))),
    )


def _is_ours(path: Path) -> bool:
    if path.is_symlink():
        return False
    if path.is_dir():
        return path.name == CLAIMS and path.parent.name != CLAIMS
    # A claim's name, also aside while it is broken, holds no more than keys and names of workers.
    of_subject = path.suffix == SUFFIX or path.name == SUBJECT or path.name.startswith(f".{SUBJECT}.")
    return ELEMENT.fullmatch(path.name.partition(".")[0]) is not None if path.parent.name == CLAIMS else of_subject


def _lives(directory: Path, name: str) -> bool:
    return NAME.fullmatch(name) is not None and not is_silent(worker_file(directory, name), SILENT_SECONDS)
