"""The rate at which a checkpoint answered before, as the journal shows it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from plugins.journal.errors import JournalError
from plugins.journal.housekeeping import subject_folders
from plugins.journal.reading import SUFFIX, SubjectReader

LAST_RESULTS = 200
"""The number of results at the end of a worker's file that the rate is taken from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """The rate of one worker."""

    tokens_per_second: float
    """Prompt tokens per second, those read from a cache included."""

    longest_prompt: int
    """The tokens of the longest prompt behind it; longer ones take more time per token."""


def last_rate(directory: Path, fingerprint: str) -> Rate | None:
    """Return the rate of a checkpoint's last results in a journal; None if there are none that took time."""
    try:
        files = [
            file
            for folder, subject in (subject_folders(directory) if directory.is_dir() else ())
            if subject.fingerprint == fingerprint
            for file in folder.glob(f"*{SUFFIX}")
        ]
        last = max(files, key=lambda file: (file.stat().st_mtime, file.name), default=None)
        return None if last is None else _rate(last)
    except (OSError, JournalError):
        return None


def _rate(file: Path) -> Rate | None:
    reader = SubjectReader(file.parent, run=None, own_file=None)
    reader.refresh(thorough=True)
    entries = sorted((entry for entry in reader.entries.values() if entry.file == file.name), key=lambda e: e.offset)
    generations = [entry.outcome.generation for entry in reader.load(entries[-LAST_RESULTS:])]
    seconds = sum(generation.seconds for generation in generations)
    if seconds <= 0:
        return None
    tokens = [generation.prompt_tokens for generation in generations]
    return Rate(tokens_per_second=sum(tokens) / seconds, longest_prompt=max(tokens))
