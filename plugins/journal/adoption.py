"""Adoption of results that version 0.1 stored under a fingerprint of samples of the weights."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from fixtures.atomic_files import write_file
from plugins.journal.housekeeping import subject_folders
from plugins.journal.lines import Subject, encode_subject
from plugins.journal.subject_folder import SUBJECT


def adopt_results(directory: Path, *, sampled: str, full: str, last_change: float) -> None:
    """Give the results of one checkpoint, stored under the `sampled` fingerprint, its `full` one.

    Two checkpoints may share a sampled fingerprint. So results are adopted only if no file of the checkpoint has
    changed since the first of them was stored (`last_change`, Unix time in seconds). The old name of their directory
    becomes a link, because reports of version 0.1 that serve as baselines name it. Other workers may adopt at the same
    time, and a directory that cannot be written stays as it is.
    """
    if sampled == full or not directory.is_dir():
        return
    with contextlib.suppress(OSError):
        for folder, subject in list(subject_folders(directory)):
            is_same = folder.name == subject.key and subject.fingerprint == sampled
            if is_same and (folder / SUBJECT).stat().st_mtime >= last_change:
                _rename(directory, folder, msgspec.structs.replace(subject, fingerprint=full))


def _rename(directory: Path, folder: Path, subject: Subject) -> None:
    if not (directory / subject.key).exists():
        folder.rename(directory / subject.key)
        write_file(directory / subject.key / SUBJECT, encode_subject(subject))
        folder.symlink_to(subject.key)
