"""Listing and deleting the contents of a journal."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from plugins.journal.claims import CLAIMS, read_owner
from plugins.journal.heartbeat import SILENT_SECONDS, WORKER_NAME, WORKERS, is_worker_dead, worker_file
from plugins.journal.lines import KEY, Subject, decode_subject
from plugins.journal.reading import SUFFIX, SubjectReader
from plugins.journal.subject_folder import SUBJECT

DELETED = ".pruned-"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectDirectory:
    """The current state of one subject's directory."""

    folder: Path
    subject: Subject
    cases: int
    samples: int
    size_bytes: int
    idle_seconds: float
    """The time since the last change of any file."""
    busy: bool
    """True if a living worker holds a claim or has a file in it."""
    has_foreign_files: bool
    """True if it contains files that are not the journal's."""


def is_journal(directory: Path) -> bool:
    """Return True if the directory contains workers or subjects."""
    return (directory / WORKERS).is_dir() or any(subject_folders(directory))


def subject_directories(directory: Path) -> list[SubjectDirectory]:
    """Return all subjects, the latest first; raises OSError and JournalError."""
    subjects = [_describe(directory, folder, subject) for folder, subject in subject_folders(directory)]
    return sorted(subjects, key=lambda item: (item.idle_seconds, item.folder.name))


def is_busy(directory: Path, folder: Path) -> bool:
    """Return True if a living worker has claimed samples in a subject's directory or has written to it."""
    writers = (file.stem for file in folder.glob(f"*{SUFFIX}"))
    if any(_is_alive(directory, name) for name in writers):
        return True
    for claim in (folder / CLAIMS).glob("*"):
        # No worker makes a directory or a link there.
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            owner = read_owner(claim)
            if _is_alive(directory, owner) if owner else time.time() - claim.stat().st_mtime < SILENT_SECONDS:
                return True
    return False


def delete_subject(directory: Path, folder: Path) -> bool:
    """Delete a subject that is neither busy nor contains foreign files; returns False if a worker has started on it."""
    renamed = folder
    if not folder.name.startswith(DELETED):
        # A worker that starts now creates a new directory; one that started before is visible in this one.
        renamed = folder.with_name(f"{DELETED}{secrets.token_hex(4)}")
        folder.rename(renamed)
        if is_busy(directory, renamed):
            with contextlib.suppress(OSError):
                renamed.rename(folder)
            return False
    for file in (*renamed.glob(f"{CLAIMS}/*"), *(file for file in renamed.iterdir() if file.is_file())):
        # The subject's file is deleted last: without it an interrupted deletion could not be continued.
        if file.name != SUBJECT:
            file.unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        (renamed / CLAIMS).rmdir()
    (renamed / SUBJECT).unlink()
    renamed.rmdir()
    return True


def leftover_files(directory: Path) -> list[Path]:
    """Return the files of dead workers, and temporary files of interrupted writes."""
    files = (directory / WORKERS).glob("*.json*") if (directory / WORKERS).is_dir() else ()
    own = (file for file in files if WORKER_NAME.fullmatch(file.name.lstrip(".").partition(".json")[0]))
    return [file for file in sorted(own) if file.is_file() and is_worker_dead(file, SILENT_SECONDS)]


def subject_folders(directory: Path) -> Iterator[tuple[Path, Subject]]:
    """Yield the directories that are certainly subjects: named by the key of the subject that they describe."""
    for folder in sorted(directory.iterdir()):
        if folder.is_symlink() or not folder.is_dir():
            continue
        with contextlib.suppress(FileNotFoundError):
            subject = decode_subject((folder / SUBJECT).read_bytes())
            if subject is not None and (folder.name == subject.key or folder.name.startswith(DELETED)):
                yield folder, subject


def _describe(directory: Path, folder: Path, subject: Subject) -> SubjectDirectory:
    reader = SubjectReader(folder, run=None, own_file=None)
    reader.refresh(thorough=False)
    files = [file.stat() for file in folder.iterdir() if file.is_file()]
    return SubjectDirectory(
        folder=folder,
        subject=subject,
        cases=len({entry.case for entry in reader.entries.values()}),
        samples=len(reader.entries),
        size_bytes=sum(file.st_size for file in files),
        idle_seconds=max(0.0, time.time() - max(file.st_mtime for file in files)),
        busy=is_busy(directory, folder),
        has_foreign_files=not all(map(_is_journal_file, (*folder.iterdir(), *(folder / CLAIMS).glob("*")))),
    )


def _is_journal_file(path: Path) -> bool:
    if path.is_symlink():
        return False
    if path.is_dir():
        return path.name == CLAIMS and path.parent.name != CLAIMS
    if path.parent.name == CLAIMS:
        # While a dead worker's claim is removed, the remover's name is appended to it after a dot.
        return KEY.fullmatch(path.name.partition(".")[0]) is not None
    return path.suffix == SUFFIX or path.name == SUBJECT or path.name.startswith(f".{SUBJECT}.")


def _is_alive(directory: Path, name: str) -> bool:
    return WORKER_NAME.fullmatch(name) is not None and not is_worker_dead(worker_file(directory, name), SILENT_SECONDS)
