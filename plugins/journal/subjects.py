"""The subjects of a journal: list them, and delete their files."""

import contextlib
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from longctx.plugins.journal.file_system import JournalError
from longctx.plugins.journal.heartbeat import SILENT_SECONDS, WORKER_NAME, WORKERS, is_worker_dead
from longctx.plugins.journal.lines import SUBJECT, Subject, decode_record
from longctx.plugins.journal.reading import SUFFIX, SubjectReader

DELETED = ".pruned-"


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
    """True if a file was changed lately, and the journal has a living worker."""
    damage: tuple[str, ...]
    """One line for every file with unreadable lines."""


def subject_directories(directory: Path) -> list[SubjectDirectory]:
    """Return all subjects, the latest first; raises OSError and JournalError."""
    subjects, is_used = [], _has_living_worker(directory)
    for folder, subject in _subject_folders(directory):
        reader = SubjectReader(folder)
        reader.refresh()
        idle_seconds, size_bytes = _idle_seconds_and_bytes(folder)
        described = SubjectDirectory(
            folder=folder,
            subject=subject,
            cases=len({entry.case for entry in reader.entries.values()}),
            samples=len(reader.entries),
            size_bytes=size_bytes,
            idle_seconds=idle_seconds,
            busy=is_used and idle_seconds < SILENT_SECONDS,
            damage=tuple(reader.damage),
        )
        subjects.append(described)
    return sorted(subjects, key=lambda item: (item.idle_seconds, item.folder.name))


def _idle_seconds_and_bytes(folder: Path) -> tuple[float, int]:
    """Return the time since the last change of a file in the folder of a subject, and the size of its files."""
    latest, size_bytes = 0.0, 0
    for path in folder.rglob("*"):
        # Another worker may remove a claim meanwhile.
        with contextlib.suppress(FileNotFoundError):
            status = path.lstat()
            if not path.is_dir():
                latest, size_bytes = max(latest, status.st_mtime), size_bytes + status.st_size
    return max(0.0, time.time() - latest), size_bytes


def _has_living_worker(directory: Path) -> bool:
    files = (directory / WORKERS).glob("*.json")
    return any(WORKER_NAME.fullmatch(file.stem) and not is_worker_dead(file) for file in files)


def delete_subject(item: SubjectDirectory) -> bool:
    """Delete the folder of a subject; return False if it is kept, because a file was changed since it was listed."""
    # A worker that starts now creates a new folder; one that started before has changed a file in this one.
    renamed = item.folder.with_name(f"{DELETED}{secrets.token_hex(4)}")
    item.folder.rename(renamed)
    if _idle_seconds_and_bytes(renamed)[0] < item.idle_seconds:
        with contextlib.suppress(OSError):
            renamed.rename(item.folder)
        return False
    shutil.rmtree(renamed)
    return True


def _subject_folders(directory: Path) -> Iterator[tuple[Path, Subject]]:
    """Yield the directories that are certainly subjects: named by the key of the subject that they describe."""
    for folder in sorted(directory.iterdir()):
        if folder.is_symlink() or not folder.is_dir():
            continue
        with contextlib.suppress(FileNotFoundError):
            subject = decode_record((folder / SUBJECT).read_bytes(), Subject)
            if subject is not None and (folder.name == subject.key or folder.name.startswith(DELETED)):
                yield folder, subject


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
