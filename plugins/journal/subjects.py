"""The subjects of a journal: list them, delete their files, and read the rates of checkpoints measured before."""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from longctx.plugins.journal.claims import CLAIMS, is_claim, read_claim
from longctx.plugins.journal.file_system import JournalError
from longctx.plugins.journal.heartbeat import SILENT_SECONDS, WORKER_NAME, WORKERS, is_worker_dead, worker_file
from longctx.plugins.journal.lines import SUBJECT, Subject, decode_record
from longctx.plugins.journal.reading import SUFFIX, SubjectReader

DELETED = ".pruned-"
# An interrupted write of `subject.json` leaves such a file.
TEMPORARY = re.compile(rf"\.{re.escape(SUBJECT)}\.[0-9a-f]{{8}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectDirectory:
    folder: Path
    subject: Subject
    cases: int
    samples: int
    size_bytes: int
    idle_seconds: float
    """The time since the last change of a file."""
    busy: bool
    """True if a living worker holds a claim or has a file in it."""
    damage: tuple[str, ...]
    """One line for every file with unreadable lines."""


class SubjectInUse(Exception):
    """A subject that is not deleted, because a worker has started on it."""


def is_journal(directory: Path) -> bool:
    """Return True if the directory contains workers or subjects."""
    return (directory / WORKERS).is_dir() or any(_subject_folders(directory))


def has_results(directory: Path, fingerprint: str) -> bool:
    """Return True if a journal has a subject of the checkpoint with this fingerprint."""
    with contextlib.suppress(OSError):
        return any(subject.fingerprint == fingerprint for _, subject in _subject_folders(directory))
    return False


def subject_directories(directory: Path) -> list[SubjectDirectory]:
    """Return all subjects, the latest first; raises OSError and JournalError."""
    subjects = []
    for folder, subject in _subject_folders(directory):
        reader = SubjectReader(folder)
        reader.refresh()
        files = []
        for file in _own_files(folder):
            with contextlib.suppress(FileNotFoundError):
                files.append(file.stat())
        described = SubjectDirectory(
            folder=folder,
            subject=subject,
            cases=len({entry.case for entry in reader.entries.values()}),
            samples=len(reader.entries),
            size_bytes=sum(file.st_size for file in files),
            idle_seconds=max(0.0, time.time() - max(file.st_mtime for file in files)),
            busy=_is_busy(directory, folder),
            damage=tuple(reader.damage),
        )
        subjects.append(described)
    return sorted(subjects, key=lambda item: (item.idle_seconds, item.folder.name))


def unnamed_subjects(directory: Path) -> list[str]:
    """Return one line for every folder of a subject whose description cannot be read."""
    known = {folder for folder, _ in _subject_folders(directory)}
    names = (folder / SUBJECT for folder in sorted(directory.iterdir()) if folder not in known)
    return [f"{name}: cannot be read; the next result of its model writes it again" for name in names if name.is_file()]


def _is_busy(directory: Path, folder: Path) -> bool:
    """Return True if a living worker has claimed samples in a subject's directory or has written to it."""
    writers = (file.stem for file in folder.glob(f"*{SUFFIX}"))
    if any(_is_alive(directory, name) for name in writers):
        return True
    for claim in _claims(folder):
        with contextlib.suppress(FileNotFoundError):
            owner = read_claim(claim)
            if _is_alive(directory, owner) if owner else time.time() - claim.stat().st_mtime < SILENT_SECONDS:
                return True
    return False


def delete_subject(directory: Path, folder: Path) -> None:
    """Delete a subject's files, and its folder if that has no others; raise SubjectInUse, and OSError."""
    # A worker that starts now creates a new directory; one that started before is visible in this one.
    renamed = folder.with_name(f"{DELETED}{secrets.token_hex(4)}")
    folder.rename(renamed)
    if _is_busy(directory, renamed):
        with contextlib.suppress(OSError):
            renamed.rename(folder)
        raise SubjectInUse
    for path in _own_files(renamed):
        path.unlink(missing_ok=True)
    for emptied in (renamed / CLAIMS, renamed):
        with contextlib.suppress(OSError):
            emptied.rmdir()
    if renamed.is_dir():
        # The files of others get their place back, unless a worker has started there meanwhile.
        with contextlib.suppress(OSError):
            renamed.rename(folder)


def _own_files(folder: Path) -> list[Path]:
    """Return the files that workers made in a subject's folder; `subject.json`, by which it is found, comes last."""
    own = list(_claims(folder))
    for path in folder.iterdir():
        is_result = path.suffix == SUFFIX and WORKER_NAME.fullmatch(path.stem) is not None
        if (is_result or TEMPORARY.fullmatch(path.name)) and path.is_file() and not path.is_symlink():
            own.append(path)
    return [*own, folder / SUBJECT]


def _claims(folder: Path) -> Iterator[Path]:
    """Yield the claims in a subject's folder; another worker may remove them meanwhile."""
    for path in (folder / CLAIMS).glob("*"):
        with contextlib.suppress(FileNotFoundError):
            if is_claim(path):
                yield path


def _subject_folders(directory: Path) -> Iterator[tuple[Path, Subject]]:
    """Yield the directories that are certainly subjects: named by the key of the subject that they describe."""
    for folder in sorted(directory.iterdir()):
        if folder.is_symlink() or not folder.is_dir():
            continue
        with contextlib.suppress(FileNotFoundError):
            subject = decode_record((folder / SUBJECT).read_bytes(), Subject)
            if subject is not None and (folder.name == subject.key or folder.name.startswith(DELETED)):
                yield folder, subject


def _is_alive(directory: Path, name: str) -> bool:
    return WORKER_NAME.fullmatch(name) is not None and not is_worker_dead(worker_file(directory, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rate:
    tokens_per_second: float
    """Prompt tokens per second, those read from a cache included."""
    longest_prompt: int
    """The tokens of the longest prompt behind it; longer ones take more time per token."""


def last_rate(directory: Path, fingerprint: str) -> _Rate | None:
    """Return the rate of a checkpoint, as its last run measured it; None without results that took time."""
    try:
        folders = [
            (max(file.stat().st_mtime for file in folder.glob(f"*{SUFFIX}")), folder)
            for folder, subject in (_subject_folders(directory) if directory.is_dir() else ())
            if subject.fingerprint == fingerprint and any(folder.glob(f"*{SUFFIX}"))
        ]
        if not folders:
            return None
        reader = SubjectReader(max(folders)[1])
        reader.refresh(thorough=True)
    except (OSError, JournalError):
        return None
    generations = [entry.outcome.generation for entry in reader.entries.values()]
    seconds = sum(generation.seconds for generation in generations)
    if seconds <= 0:
        return None
    tokens = [generation.prompt_tokens for generation in generations]
    return _Rate(tokens_per_second=sum(tokens) / seconds, longest_prompt=max(tokens))
