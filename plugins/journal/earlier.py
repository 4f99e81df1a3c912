"""The scores of the checkpoints that were measured in a journal before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from plugins.journal.housekeeping import subject_folders
from plugins.journal.reading import SUFFIX, SubjectReader


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierScores:
    """The scores of one checkpoint."""

    fingerprint: str
    """The checkpoint's fingerprint."""

    by_key: Mapping[str, float]
    """The scores, 0 to 1, by the key of the sample."""


def latest_scores(directory: Path, fingerprint: str) -> tuple[EarlierScores, EarlierScores | None]:
    """Return the scores of a checkpoint, and those of the other one that was measured last; None if there is none.

    Raises OSError and JournalError.
    """
    folders = list(subject_folders(directory)) if directory.is_dir() else []
    own = {
        key: score
        for folder, subject in folders
        if subject.fingerprint == fingerprint
        for key, score in _scores(folder).items()
    }
    others = [(folder, subject) for folder, subject in folders if subject.fingerprint != fingerprint]
    latest = max(others, key=lambda item: (_changed(item[0]), item[0].name), default=None)
    other = latest and EarlierScores(fingerprint=latest[1].fingerprint, by_key=_scores(latest[0]))
    return EarlierScores(fingerprint=fingerprint, by_key=own), other


def _scores(folder: Path) -> dict[str, float]:
    reader = SubjectReader(folder, run=None, own_file=None)
    reader.refresh(thorough=True)
    return {key: entry.score for key, entry in reader.entries.items()}


def _changed(folder: Path) -> float:
    """Return the time of the last result in a subject's directory."""
    return max((file.stat().st_mtime for file in folder.glob(f"*{SUFFIX}")), default=0.0)
